"""Tiles one after the other in memory: tapes, and tiles that are evaluated."""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ir.types import I32, I64, TileType, Type


def elements_of(type_: Type) -> int:
    """Return the number of elements of a tile; 1 for a scalar."""
    return type_.numel if isinstance(type_, TileType) else 1


def tile_at(b: Builder, base: Value, number: Value, type_: Type) -> Value:
    """Append the pointers to the tile of a number, in row-major order.

    Args:
        base: the pointer to tile 0.
        number: an i64.
        type_: the tile's type, or a scalar's.
    """
    if not isinstance(type_, TileType):
        pointer: Value = b.addptr(base, number)
        return pointer
    start = b.addptr(base, b.mul(number, b.constant_like(I64, type_.numel)))
    at: Value = b.splat(start, result=TileType(type_.shape, base.type))
    stride = 1
    for axis in reversed(range(type_.rank)):
        extent = type_.shape[axis]
        index = b.arange(start=0, end=extent)
        index = b.mul(index, b.constant_like(index.type, stride))
        for other in range(type_.rank):
            if other != axis:
                index = b.expand_dims(index, axis=other)
        at = b.addptr(at, b.broadcast(index, result=TileType(type_.shape, I32)))
        stride *= extent
    return at
