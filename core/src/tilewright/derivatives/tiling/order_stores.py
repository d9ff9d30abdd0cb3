"""Stores to different arguments in the order in which the fewest loads are needed after each.

A backend that fuses elementwise operations into the loops of stores keeps in memory what was loaded
before a store and is used after it. The store that needs the most loads therefore goes first.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.derivatives.analysis.addresses import Addresses
from tilewright.ir.core import Module, Region, Value
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.table import Effect
from tilewright.passes.effects import effects_of


def order_stores(module: Module) -> bool:
    """Sort stores between which nothing but arithmetic stands, by the loads that each needs.

    Returns:
        whether the order changed.
    """
    addresses, changed = Addresses(), False
    for region in list(_regions(module)):
        for stores in list(_runs(region)):
            roots = {addresses.root(store.pointer) for store in stores}
            if None in roots or len(roots) < len(stores):
                continue
            needed = {store: len(_loads(store)) for store in stores}
            wanted = sorted(stores, key=lambda store: -needed[store])
            if wanted == stores:
                continue
            after = stores[-1].next  # where the values of all are there
            for store in wanted:
                if after is None:
                    store.move_to_end(region)
                else:
                    store.move_before(after)
            changed = True
    return changed


def _regions(module: Module) -> Iterator[Region]:
    function = module.kernel
    yield function.body
    for operation in function.walk():
        yield from operation.regions


def _runs(region: Region) -> Iterator[list[Store]]:
    """Yield the stores of a region between which no operation has effects, two and more."""
    run: list[Store] = []
    for operation in region:
        if isinstance(operation, Store):
            run.append(operation)
        elif operation.regions or effects_of(operation) is not Effect.NONE:
            if len(run) > 1:
                yield run
            run = []
    if len(run) > 1:
        yield run


def _loads(store: Store) -> set[Load]:
    """Return the loads that a store's operands are computed from, outside loops and branches."""
    found: set[Load] = set()
    pending: list[Value] = list(store.operands)
    seen = set(pending)
    while pending:
        operation = pending.pop().definition
        if operation is None:
            continue
        if isinstance(operation, Load):
            found.add(operation)
        for operand in operation.operands:
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return found


__all__ = ["order_stores"]
