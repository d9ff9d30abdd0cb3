"""Descriptors that a kernel makes in memory of its own: by one thread, the one that starts copies by them."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.simt.context import SimtContext
from tilewright.simt.interface import Interface, SharedEffects
from tilewright.simt.lowering.shared import slot_address
from tilewright.simt.target import MadeDescriptor


def lower_descriptors(context: SimtContext, operation: Operation) -> None:
    context.bind(operation.result, [context.target.descriptors(context, operation)])


def lower_make(context: SimtContext, operation: Operation) -> None:
    memory, slot, base = (operation.operand(name) for name in ("memory", "slot", "base"))
    assert memory is not None and slot is not None and base is not None
    extents, strides = (tuple(context.scalar(value) for value in operation.group(name)) for name in ("shape", "strides"))
    made = MadeDescriptor(context.scalar(memory), slot_address(context, slot), context.scalar(base), extents, strides, operation.attribute("padding"))
    context.bind(operation.result, [context.target.make_descriptor(context, operation, made)])


def lower_show(context: SimtContext, operation: Operation) -> None:
    context.target.show_descriptor(context, operation, context.scalar(operation.operands[0]))


def lower_free(context: SimtContext, operation: Operation) -> None:
    context.target.free_descriptors(context, operation, context.scalar(operation.operands[0]))


def _put_together(operation: Operation) -> SharedEffects:
    slot = operation.operand("slot")
    assert slot is not None
    return SharedEffects(writes=(slot,))


INTERFACES: dict[str, Interface] = {
    "simt.descriptors": Interface(lower_descriptors),
    "simt.make_descriptor": Interface(lower_make, effects=_put_together),
    "simt.show_descriptor": Interface(lower_show),
    "simt.free_descriptors": Interface(lower_free),
}
