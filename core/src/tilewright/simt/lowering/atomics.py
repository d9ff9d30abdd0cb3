"""Atomic updates of global memory. An element is updated by one thread; where several hold it, the old value goes to them through shared memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.memory import AtomicCas, AtomicLoad, AtomicRmw, AtomicStore, Clock
from tilewright.ir.types import TileType, Type, element_type, shape_of
from tilewright.llvm.registers import storage_size
from tilewright.simt import layout_rules
from tilewright.simt.context import SimtContext
from tilewright.simt.facts import layout_of
from tilewright.simt.interface import Interface
from tilewright.simt.lowering.publish import both, give_to_all
from tilewright.simt.rules import one_layout
from tilewright.simt.target import SimtTarget


def lower_atomic_rmw(context: SimtContext, operation: AtomicRmw) -> None:
    pointer, value, mask = operation.pointer, operation.value, operation.mask
    kind, order, scope = operation.kind, operation.order, operation.scope
    element = element_type(value.type)

    def update(names: Sequence[str], predicate: str | None) -> str:
        return context.target.atomic_rmw(context, kind, names[0], element, names[1], predicate, order, scope)

    _update_all(context, operation, [pointer, value], mask, update)


def lower_atomic_cas(context: SimtContext, operation: AtomicCas) -> None:
    order, scope = operation.order, operation.scope
    element = element_type(operation.results[0].type)

    def update(names: Sequence[str], predicate: str | None) -> str:
        return context.target.atomic_cas(context, names[0], element, names[1], names[2], predicate, order, scope)

    _update_all(context, operation, [operation.pointer, operation.compare, operation.value], None, update)


def lower_atomic_load(context: SimtContext, operation: AtomicLoad) -> None:
    order, scope = operation.order, operation.scope
    element = element_type(operation.results[0].type)

    def read(names: Sequence[str], predicate: str | None) -> str:
        return context.target.atomic_load(context, names[0], element, predicate, order, scope)

    _update_all(context, operation, [operation.pointer], operation.mask, read)


def lower_atomic_store(context: SimtContext, operation: AtomicStore) -> None:
    pointer, value, mask = operation.pointer, operation.value, operation.mask
    order, scope, element = operation.order, operation.scope, element_type(value.type)
    owner = context.is_owner(context.layout(pointer)) if isinstance(value.type, TileType) else context.is_first_thread()
    masks = context.registers[mask] if mask is not None else None
    for i, (place, name) in enumerate(zip(context.registers[pointer], context.registers[value], strict=True)):
        context.target.atomic_store(context, place, element, name, both(context, owner, masks[i] if masks is not None else None), order, scope)


def lower_clock(context: SimtContext, operation: Clock) -> None:
    """One thread's time is that of all, so that what depends on it is the same in all."""
    (result,) = operation.results
    now = context.target.clock(context.writer)
    context.bind(result, give_to_all(context, operation, result, [now], context.is_first_thread()) if result.uses else [now])


def _update_all(
    context: SimtContext, operation: Operation, operands: Sequence[Value], mask: Value | None, update: Callable[[Sequence[str], str | None], str]
) -> None:
    (result,) = operation.results
    tile = isinstance(result.type, TileType)
    owner = context.is_owner(context.layout(result)) if tile else context.is_first_thread()
    if owner == "true":
        owner = None
    registers = [context.registers[operand] for operand in operands]
    masks = context.registers[mask] if mask is not None else None
    old = []
    for i in range(len(registers[0])):
        predicate = both(context, owner, masks[i] if masks is not None else None)
        old.append(update([names[i] for names in registers], predicate))
    if owner is not None and result.uses:
        old = give_to_all(context, operation, result, old, owner)
    context.bind(result, old)


def _scratch(operation: Operation, target: SimtTarget) -> int:
    """Bytes to pass old values on: none where every element has one thread, or nobody asks."""
    (result,) = operation.results
    if not result.uses:
        return 0
    if isinstance(result.type, TileType) and layout_of(result).redundant_threads() == (0, 0):
        return 0
    type_: Type = element_type(result.type)
    return math.prod(shape_of(result.type)) * storage_size(type_)


INTERFACES: dict[str, Interface] = {
    "atomic_rmw": Interface(lower_atomic_rmw, layout_rules.access, one_layout, _scratch),
    "atomic_cas": Interface(lower_atomic_cas, layout_rules.access, one_layout, _scratch),
    "atomic_load": Interface(lower_atomic_load, layout_rules.access, one_layout, _scratch),
    "atomic_store": Interface(lower_atomic_store, layout_rules.access, one_layout),
    "clock": Interface(lower_clock, scratch=_scratch),
}
