"""Statistics of a scalar or tile as Tile IR: which elements are not finite, counts, minima."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from tilewright.ir.builder import Builder
from tilewright.ir.core import Region, Value
from tilewright.ir.expressions import Number
from tilewright.ir.types import (
    F32,
    F64,
    I32,
    FloatType,
    TileType,
    Type,
    bit_width,
    element_type,
    shape_of,
)


def widened(x: Number) -> Number:
    """Convert to f32, exactly; f64 stays."""
    return x.cast(F64 if x.element is F64 else F32)


def not_finite(wide: Number) -> tuple[Number, Number]:
    """Return which elements are NaN, and which are infinite."""
    return wide.differs(wide), abs(wide).equals(math.inf)


def ordered(wide: Number) -> Number:
    """Return integers in the order of the floats, which may have either sign."""
    bits, width = wide.bits(), bit_width(wide.element)
    return bits ^ ((bits >> (width - 1)) & ((1 << (width - 1)) - 1))


def reduced(b: Builder, x: Number, kind: str) -> Number:
    """Combine all elements by an operation of two operands; a scalar stays as it is."""
    while isinstance(x.value.type, TileType):
        element = x.element
        combine = Region([element, element], ["a", "b"])
        with b.at_region(combine):
            b.yield_([getattr(b, kind)(*combine.arguments)])
        axis = len(shape_of(x.value.type)) - 1
        (found,) = b.region_op("reduce", [x.value], regions=[combine], axis=axis).results
        x = Number(b, found)
    return x


def count(b: Builder, mask: Number) -> Number:
    """Count the elements of a mask that hold, as an i32."""
    return reduced(b, mask.cast(I32), "add")


def positions(b: Builder, type_: Type) -> Number:
    """Return the row-major positions of the elements of a scalar or tile type, as i32."""
    if not isinstance(type_, TileType):
        return Number(b, b.constant(value=0, result=I32))
    found: Number | None = None
    stride = math.prod(type_.shape)
    for axis, extent in enumerate(type_.shape):
        stride //= extent
        line = (
            b.arange(start=0, end=extent) if extent > 1 else b.constant_like(TileType((1,), I32), 0)
        )
        shape = tuple(extent if axis == other else 1 for other in range(type_.rank))
        tile = b.reshape(line, result=TileType(shape, I32))
        if shape != type_.shape:
            tile = b.broadcast(tile, result=TileType(type_.shape, I32))
        part = Number(b, tile) * stride
        found = part if found is None else found + part
    assert found is not None
    return found


@contextlib.contextmanager
def branch(b: Builder, condition: Number) -> Iterator[None]:
    """Build what runs where a scalar condition holds."""
    then, otherwise = Region(), Region()
    with b.at_region(then):
        yield
        b.yield_([])
    with b.at_region(otherwise):
        b.yield_([])
    b.region_op("if", condition.value, regions=[then, otherwise])


def is_float(value: Value) -> bool:
    """Return whether a value is a float or a tile of floats."""
    return isinstance(element_type(value.type), FloatType)
