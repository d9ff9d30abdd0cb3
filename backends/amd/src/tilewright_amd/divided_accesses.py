"""Loads and stores of tiles whose addresses are a scalar base and a thread's offset (:mod:`tilewright_amd.uniform_bases`); all others are the toolkit's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.types import FloatType, IntType, TileType, element_type
from tilewright.llvm.registers import constant
from tilewright.simt.context import SimtContext
from tilewright.simt.interface import Interface
from tilewright.simt.lowering import accesses
from tilewright.simt.lowering.publish import both
from tilewright.simt.masked_off_lanes import fills_with_zeros
from tilewright_amd import memory_access
from tilewright_amd.kernel_state import kernel_state
from tilewright_amd.uniform_bases import Place

if TYPE_CHECKING:
    from tilewright_amd.target import GcnTarget


def _places(context: SimtContext, operation: Load | Store) -> list[Place] | None:
    """For each register of an operation's pointers; None where the toolkit's own lowering serves."""
    hinted = operation.cache in ("cs", "cv") or operation.eviction == "first" or (isinstance(operation, Load) and operation.volatile)
    if hinted or not isinstance(operation.pointer.type, TileType):
        return None
    return kernel_state(context.writer).bases.places(context, operation)


def lower_load(context: SimtContext, operation: Load) -> None:
    """See :func:`tilewright.simt.lowering.accesses.lower_load`."""
    (result,) = operation.results
    element = element_type(result.type)
    places = _places(context, operation) if isinstance(element, IntType | FloatType) else None
    if places is None:
        accesses.lower_load(context, operation)
        return
    masks = context.registers[operation.mask] if operation.mask is not None else None
    others = context.registers[operation.other] if operation.other is not None else None
    if fills_with_zeros(operation):
        others = [constant(element, 0)] * len(places)
    names: list[str] = []
    for part in accesses.groups(context, operation.pointer, operation.mask, element):
        predicate = masks[part.start] if masks is not None else None
        fallback = [others[i] for i in part] if others is not None else None
        names += memory_access.load_at(context.writer, _target(context).row, places[part.start], element, len(part), predicate, fallback)
    context.bind(result, names)


def lower_store(context: SimtContext, operation: Store) -> None:
    """See :func:`tilewright.simt.lowering.accesses.lower_store`."""
    element = element_type(operation.value.type)
    places = _places(context, operation) if isinstance(element, IntType | FloatType) else None
    if places is None:
        accesses.lower_store(context, operation)
        return
    values = context.registers[operation.value]
    masks = context.registers[operation.mask] if operation.mask is not None else None
    writer = context.is_owner(context.layout(operation.value))
    for part in accesses.groups(context, operation.pointer, operation.mask, element):
        predicate = both(context, writer, masks[part.start] if masks is not None else None)
        memory_access.store_at(context.writer, places[part.start], element, [values[i] for i in part], predicate)


def _target(context: SimtContext) -> GcnTarget:
    from tilewright_amd.target import GcnTarget

    assert isinstance(context.target, GcnTarget)
    return context.target


INTERFACES: Final[dict[str, Interface]] = {
    "load": replace(accesses.INTERFACES["load"], lower=lower_load),
    "store": replace(accesses.INTERFACES["store"], lower=lower_store),
}
