"""Groups of stores that one loop nest writes: what they store is computed from the same tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.types import TileType, shape_of

#: Stores of a group, of which each is a stream to memory.
_MOST = 8
#: Lazy operations behind a store that are looked at.
_MOST_OPERATIONS = 512


def store_groups(
    function: Function, is_lazy: Callable[[Operation], bool]
) -> Iterator[tuple[Store, ...]]:
    """Yield the groups of two or more stores.

    They have one shape and mask, each reads a load of the others, and nothing between them has an
    effect or a loop nest of its own, so that all may wait for the last.
    """
    regions = [function.body]
    while regions:
        region = regions.pop()
        yield from _groups_of(region, is_lazy)
        for operation in region:
            regions.extend(operation.regions)


def _groups_of(region: Region, is_lazy: Callable[[Operation], bool]) -> Iterator[tuple[Store, ...]]:
    group: list[Store] = []
    loads: set[Value] = set()
    for operation in region:
        if isinstance(operation, Store):
            found = _loads_of(operation, is_lazy) if _is_lazy_tile(operation, is_lazy) else set()
            if not (
                group
                and len(group) < _MOST
                and shape_of(operation.pointer.type) == shape_of(group[0].pointer.type)
                and operation.mask is group[0].mask
                and found & loads
            ):
                if len(group) > 1:
                    yield tuple(group)
                group, loads = [], set()
            if found:
                group.append(operation)
                loads |= found
        elif not _may_stand_between(operation, is_lazy):
            if len(group) > 1:
                yield tuple(group)
            group, loads = [], set()


def _is_lazy_tile(store: Store, is_lazy: Callable[[Operation], bool]) -> bool:
    definition = store.value.definition
    return (
        isinstance(store.pointer.type, TileType) and definition is not None and is_lazy(definition)
    )


def _may_stand_between(operation: Operation, is_lazy: Callable[[Operation], bool]) -> bool:
    if operation.spec.effects or operation.regions or operation.spec.terminator:
        return False
    return is_lazy(operation) or not any(
        isinstance(value.type, TileType) for value in (*operation.results, *operation.operands)
    )


def _loads_of(store: Store, is_lazy: Callable[[Operation], bool]) -> set[Value]:
    """Return the tiles that a store reads by loads; none where it reads too much to tell."""
    found: set[Value] = set()
    stack, seen = list(store.operands), set(store.operands)
    while stack:
        value = stack.pop()
        operation = value.definition
        if operation is None or not isinstance(value.type, TileType) or not is_lazy(operation):
            continue
        if isinstance(operation, Load) and value.type.shape == shape_of(store.pointer.type):
            found.add(value)
        new = [operand for operand in operation.operands if operand not in seen]
        seen.update(new)
        stack.extend(new)
        if len(seen) > _MOST_OPERATIONS:
            return set()
    return found
