"""Tiles in other layouts, and in shared memory: buffers of slots, each of which is a value."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, SingleOperand, TypedAttribute
from tilewright.ir.table import Effect, RuleError, Shape
from tilewright.ir.types import Type
from tilewright.simt.dialect.ops import fields
from tilewright.simt.dialect.ops.type_rules import require_index, slot_of
from tilewright.simt.dialect.types import BufferType, SlotType


def _same(shape: Shape) -> list[Type]:
    return [shape.type("x")]


def _buffer(shape: Shape) -> list[Type]:
    if not isinstance(shape.result, BufferType):
        raise RuleError(f"the result must be a buffer, not {shape.result}")
    return [shape.result]


def _buffer_of(shape: Shape) -> BufferType:
    buffer = shape.type("buffer")
    if not isinstance(buffer, BufferType):
        raise RuleError(f"buffer must be a buffer, not {buffer}")
    return buffer


def _release(shape: Shape) -> list[Type]:
    _buffer_of(shape)
    return []


def _slot(shape: Shape) -> list[Type]:
    buffer = _buffer_of(shape)
    require_index(shape)
    return [buffer.slot]


def _view(shape: Shape) -> list[Type]:
    slot, result = slot_of(shape, "x"), shape.result
    if (
        not isinstance(result, SlotType)
        or result.element is not slot.element
        or len(result.layout.images) != len(slot.layout.images)
    ):
        raise RuleError(
            f"the result must be a slot of as many elements of the same type, not {result}"
        )
    return [result]


def _load(shape: Shape) -> list[Type]:
    return [slot_of(shape).tile]


def _store(shape: Shape) -> list[Type]:
    tile = slot_of(shape).tile
    if shape.type("x") is not tile:
        raise RuleError(f"x must be {tile}, not {shape.type('x')}")
    return []


OPS = Declarations()


@OPS.operation("simt.convert", "convert a tile to another layout", _same, forwards="x")
class Convert(Operation):
    __slots__ = ()

    x = SingleOperand()


@OPS.operation(
    "simt.buffer",
    "allocate shared memory for a buffer. A buffer is an array of slots, and each slot holds one "
    "tile. After the last access to the buffer, other buffers may use its memory",
    _buffer,
    effects=Effect.ORDER,
    explicit_results=True,
)
class Buffer(Operation):
    __slots__ = ()

    alignment = TypedAttribute[int]("the alignment of the first byte, in bytes", 16)


@OPS.operation(
    "simt.release",
    "state that all other partitions have made their last access to a buffer. (A partition is a "
    "group of warps that executes its own region, see `simt.part`.) The partition that executes "
    "this operation may then use the memory of the buffer for other buffers",
    _release,
    effects=Effect.ORDER,
)
class Release(Operation):
    __slots__ = ()

    buffer = SingleOperand()


@OPS.operation("simt.slot", "the slot with the given index in a buffer", _slot)
class Slot(Operation):
    __slots__ = ()

    buffer = SingleOperand()
    index = SingleOperand("the index of the slot, from 0 on")


@OPS.operation(
    "simt.view",
    "a slot that has the same memory as the slot `x`, but a tile of another shape. The layout of "
    "the result and the layout of `x` address the same bytes",
    _view,
    explicit_results=True,
)
class SharedView(Operation):
    __slots__ = ()

    x = SingleOperand()


@OPS.operation("simt.load", "load a tile from a slot in shared memory", _load, effects=Effect.READ)
class SharedLoad(Operation):
    __slots__ = ()

    slot = fields.SLOT


@OPS.operation(
    "simt.store", "store a tile to a slot in shared memory", _store, effects=Effect.WRITE
)
class SharedStore(Operation):
    __slots__ = ()

    slot = fields.SLOT
    x = SingleOperand()
    ordered = TypedAttribute[bool](
        f"{fields.ORDERED.meaning}, and that no later operation of the region reads the written "
        "data before a barrier",
        False,
    )
