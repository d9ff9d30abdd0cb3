"""Explicit shared memory: buffers and their slots, tiles to and from them.

A place in shared memory is the number of its first byte there, an i32; of a buffer, and of barrier objects, it is a constant.
"""

from __future__ import annotations

from tilewright.ir.core import Operation, Value
from tilewright.ir.types import TileType, element_type
from tilewright.simt.context import SimtContext
from tilewright.simt.facts import layout_of, offset_of
from tilewright.simt.interface import Interface, Reader, SharedEffects
from tilewright.simt.lowering.shared_accesses import read_tile, write_tile
from tilewright.simt.types import BufferType, SlotType


def slot_type(value: Value) -> SlotType:
    """The type of a slot."""
    type_ = value.type
    assert isinstance(type_, SlotType)
    return type_


def slot_address(context: SimtContext, slot: Value) -> str:
    """The address of a slot."""
    return context.shared_address(context.scalar(slot))


def lower_buffer(context: SimtContext, operation: Operation) -> None:
    context.bind(operation.results[0], [str(offset_of(operation))])


def lower_release(context: SimtContext, operation: Operation) -> None:
    """Nothing: where memory is was decided by it."""


def lower_slot(context: SimtContext, operation: Operation) -> None:
    buffer, index = operation.operands
    assert isinstance(buffer.type, BufferType)
    w, start, number = context.writer, context.scalar(buffer), context.scalar(index)
    size = buffer.type.tile_bytes
    if number.lstrip("-").isdecimal():
        place = str(int(start) + int(number) * size)
    else:
        type_ = context.llvm_type(index.type)
        if type_ != "i32":
            number = w.emit(f"{'trunc' if type_ == 'i64' else 'zext'} {type_} {number} to i32")
        place = w.emit(f"mul i32 {number}, {size}")
        if start != "0":
            place = w.emit(f"add i32 {place}, {start}")
    context.bind(operation.results[0], [place])


def lower_view(context: SimtContext, operation: Operation) -> None:
    context.bind(operation.results[0], [context.scalar(operation.operands[0])])


def lower_load(context: SimtContext, operation: Operation) -> None:
    (slot,), (result,) = operation.operands, operation.results
    shared = slot_type(slot).layout
    context.bind(result, read_tile(context, slot_address(context, slot), context.layout(result), shared, element_type(result.type)))


def lower_store(context: SimtContext, operation: Operation) -> None:
    slot, x = operation.operands
    write_tile(context, slot_address(context, slot), context.layout(x), slot_type(slot).layout, element_type(x.type), context.registers[x])


def _reads(operation: Operation) -> SharedEffects:
    return SharedEffects(reads=(operation.operands[0],))


def _writes(operation: Operation) -> SharedEffects:
    return SharedEffects(writes=(operation.operands[0],), ordered=operation.attribute("ordered"))


def _describe_buffer(report: Reader, operation: Operation) -> list[str]:
    type_ = operation.results[0].type
    assert isinstance(type_, BufferType)
    return [f"{type_.count} slots of {type_.tile_bytes} bytes"]


def _describe_load(report: Reader, operation: Operation) -> list[str]:
    (slot,), (result,) = operation.operands, operation.results
    assert isinstance(result.type, TileType)
    return [report.traffic("read", layout_of(result), slot_type(slot).layout, result.type.element)]


def _describe_store(report: Reader, operation: Operation) -> list[str]:
    slot, x = operation.operands
    assert isinstance(x.type, TileType)
    return [report.layout(x), report.traffic("written", layout_of(x), slot_type(slot).layout, x.type.element)]


INTERFACES: dict[str, Interface] = {
    "simt.buffer": Interface(lower_buffer, describe=_describe_buffer),
    "simt.release": Interface(lower_release),
    "simt.slot": Interface(lower_slot),
    "simt.view": Interface(lower_view),
    "simt.load": Interface(lower_load, effects=_reads, describe=_describe_load),
    "simt.store": Interface(lower_store, effects=_writes, describe=_describe_store),
}
