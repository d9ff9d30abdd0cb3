"""XOR exchanges: gathers from a coordinate that differs in constant bits, as in bitonic networks.

A linear layout maps thread bits to coordinates by XOR, so an exchange over a constant distance
moves whole registers and lanes: registers are renamed, or every lane shuffles with the lane whose
number differs in constant bits. Only a distance across warps needs shared memory.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Arange
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Gather, Reshape
from tilewright.ir.types import TileType, Type
from tilewright.passes.rewriter import constant_of
from tilewright.simt.dialect.ops.buffers import Convert
from tilewright.simt.layouts.linear_layout import Basis, LinearLayout, axis_shifts

#: Operations that broadcast, reshape or convert an index tile.
_MOVED: Final = (Reshape, ExpandDims, Broadcast, Convert)


class XorExchange(NamedTuple):
    """Bits by which the register and the lane of an element's partner differ from its own."""

    register: int
    lane: int


def xor_distance(operation: Gather) -> int | None:
    """Return the constant XOR of the row-major indices of each element and its source, if any."""
    distance = distance_of(operation)
    bits = None if distance is None else constant_of(distance)
    shape = _shape(operation.x)
    if not isinstance(bits, int) or not 0 <= bits < shape[operation.axis]:
        return None
    return bits << axis_shifts(shape)[operation.axis]


def distance_of(operation: Gather) -> Value | None:
    """Return the tile that is XORed with the coordinates along the axis to compute the index.

    None if the index is not such an XOR.
    """
    shape = _shape(operation.x)
    if shape != _shape(operation.results[0]):
        return None
    index = _unmoved(operation.index, shape, operation.axis).definition
    if index is None or index.name != "xor":
        return None
    for position, distance in (index.operands, reversed(index.operands)):
        if _is_position(position, shape, operation.axis):
            while isinstance(distance.definition, _MOVED):
                distance = distance.definition.x
            return distance
    return None


def _shape(tile: Value) -> tuple[int, ...]:
    assert isinstance(tile.type, TileType)
    return tile.type.shape


def _unmoved(value: Value, shape: tuple[int, ...], axis: int) -> Value:
    """Strip broadcasts and reshapes that keep the coordinates along an axis of ``shape``."""
    while isinstance(value.definition, _MOVED) and _lies_along(
        value.definition.x.type, shape, axis
    ):
        value = value.definition.x
    return value


def _lies_along(type_: Type, shape: tuple[int, ...], axis: int) -> bool:
    """Return whether a reshape of a tile to ``shape`` keeps the coordinates along the axis.

    That holds if the tile has this shape, or only its extent along the axis.
    """
    alone = tuple(extent if i == axis else 1 for i, extent in enumerate(shape))
    return isinstance(type_, TileType) and type_.shape in (shape, alone, (shape[axis],))


def _is_position(value: Value, shape: tuple[int, ...], axis: int) -> bool:
    """Return whether a tile that broadcasts to ``shape`` holds the coordinates along ``axis``."""
    if not _lies_along(value.type, shape, axis):
        return False
    value = _unmoved(value, shape, axis)
    operation = value.definition
    return (
        isinstance(operation, Arange)
        and operation.start == 0
        and isinstance(value.type, TileType)
        and value.type.numel == shape[axis]
    )


def exchange_within_warp(layout: LinearLayout, distance: int) -> XorExchange | None:
    """Return the exchange over a distance in a layout; None if an element has to change warps."""
    found = Basis((*layout.registers, *layout.lanes)).solve(distance)
    if found is None:
        return None
    count = len(layout.registers)
    return XorExchange(found & (1 << count) - 1, found >> count)
