"""Lowering of explicit shared memory: buffers, slots, and loads and stores of tiles.

A place in shared memory is a byte offset, an i32; for a buffer, and for mbarriers, it is a
constant.
"""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.types import TileType, element_type
from tilewright.simt.dialect.attributes import layout_of, offset_of
from tilewright.simt.dialect.op_interface import Interface, Reader, SharedEffects
from tilewright.simt.dialect.ops import buffers as ops
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.dialect.types import BufferType, slot_type
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shared_access import read_tile, write_tile


def slot_address(context: SimtContext, slot: Value) -> str:
    """Emit the address of a slot."""
    return context.shared_address(context.scalar(slot))


def lower_buffer(context: SimtContext, operation: ops.Buffer) -> None:
    context.bind(operation.results[0], [str(offset_of(operation))])


def lower_release(context: SimtContext, operation: ops.Release) -> None:
    """Emit nothing: the shared-memory allocation has already used the release."""


def lower_slot(context: SimtContext, operation: ops.Slot) -> None:
    buffer, index = operation.buffer, operation.index
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


def lower_view(context: SimtContext, operation: ops.SharedView) -> None:
    context.bind(operation.results[0], [context.scalar(operation.x)])


def lower_load(context: SimtContext, operation: ops.SharedLoad) -> None:
    slot, result = operation.slot, operation.result
    tile = (
        slot_address(context, slot),
        context.layout(result),
        slot_type(slot).layout,
        element_type(result.type),
    )
    names = context.target.matrix.read_fragments(context, *tile)
    context.bind(result, read_tile(context, *tile) if names is None else names)


def lower_store(context: SimtContext, operation: ops.SharedStore) -> None:
    slot, x = operation.slot, operation.x
    write_tile(
        context,
        slot_address(context, slot),
        context.layout(x),
        slot_type(slot).layout,
        element_type(x.type),
        context.registers[x],
    )


def _reads(operation: ops.SharedLoad) -> SharedEffects:
    return SharedEffects(reads=(operation.slot,))


def _writes(operation: ops.SharedStore) -> SharedEffects:
    return SharedEffects(writes=(operation.slot,), ordered=operation.ordered)


def _describe_buffer(report: Reader, operation: ops.Buffer) -> list[str]:
    type_ = operation.results[0].type
    assert isinstance(type_, BufferType)
    return [f"{type_.count} slots of {type_.tile_bytes} bytes"]


def _describe_load(report: Reader, operation: ops.SharedLoad) -> list[str]:
    slot, result = operation.slot, operation.result
    assert isinstance(result.type, TileType)
    return [report.traffic("read", layout_of(result), slot_type(slot).layout, result.type.element)]


def _describe_store(report: Reader, operation: ops.SharedStore) -> list[str]:
    slot, x = operation.slot, operation.x
    assert isinstance(x.type, TileType)
    return [
        report.layout(x),
        report.traffic("written", layout_of(x), slot_type(slot).layout, x.type.element),
    ]


INTERFACES = register_interfaces(
    {
        "simt.buffer": Interface(lower_buffer, describe=_describe_buffer),
        "simt.release": Interface(lower_release),
        "simt.slot": Interface(lower_slot),
        "simt.view": Interface(lower_view),
        "simt.load": Interface(lower_load, effects=_reads, describe=_describe_load),
        "simt.store": Interface(lower_store, effects=_writes, describe=_describe_store),
    }
)
