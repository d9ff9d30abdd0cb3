"""Sums along an axis of a tile, and their transposes."""

from __future__ import annotations

from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Region, Value
from tilewright.ir.types import I32, TileType, Type, element_type, shape_of


def combine_along(b: Builder, name: str, x: Value, axis: int, kind: str, **named: Any) -> Value:
    """Append a reduction or scan (``name``) by one binary operation (``kind``)."""
    element = element_type(x.type)
    region = Region([element, element])
    with b.at_region(region):
        b.yield_([getattr(b, kind)(*region.arguments)])
    return b.region_op(name, [x], regions=[region], axis=axis, **named).results[0]


def sum_along(b: Builder, x: Value, axis: int) -> Value:
    """Append the sum of a tile along an axis."""
    return combine_along(b, "reduce", x, axis, "add")


def sum_keeping(b: Builder, x: Value, axis: int) -> Value:
    """Append the sum of a tile along an axis, which stays with an extent of 1."""
    shape = tuple(1 if i == axis else extent for i, extent in enumerate(shape_of(x.type)))
    total, type_ = sum_along(b, x, axis), TileType(shape, element_type(x.type))
    is_tile = isinstance(total.type, TileType)
    found: Value = b.reshape(total, result=type_) if is_tile else b.splat(total, result=type_)
    return found


def broadcast_along(b: Builder, x: Value, axis: int, type_: Type) -> Value:
    """Repeat a tile that lacks an axis, or a scalar, along it.

    Args:
        type_: the type of the result.
    """
    if not isinstance(x.type, TileType):
        wide: Value = b.splat(x, result=type_)
    else:
        wide = b.broadcast(b.expand_dims(x, axis=axis), result=type_)
    return wide


def coordinates_along(b: Builder, like: Value, axis: int) -> Value:
    """Append the coordinate of each element of a tile along an axis, in i32."""
    shape = shape_of(like.type)
    index = b.arange(start=0, end=shape[axis])
    row = tuple(extent if i == axis else 1 for i, extent in enumerate(shape))
    found: Value = b.broadcast(
        b.reshape(index, result=TileType(row, I32)), result=TileType(shape, I32)
    )
    return found


def neighbours(b: Builder, x: Value, axis: int, distance: int) -> Value:
    """Append the elements of a tile at a distance along an axis; at the edges, the last one."""
    index = coordinates_along(b, x, axis)
    moved = b.add(index, b.constant_like(index.type, distance))
    low, high = (b.constant_like(index.type, edge) for edge in (0, shape_of(x.type)[axis] - 1))
    found: Value = b.gather(x, b.min(b.max(moved, low), high), axis=axis)
    return found
