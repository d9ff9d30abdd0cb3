"""Operands of block-scaled matmuls as tiles of f32, and their scales spread over their elements.

The derivative of ``dot_scaled`` by an element of a floating-point format is that of the plain
matmul, times the element's scale. Scales are constants: an e8m0 scale is a power of two, and where
a kernel computes it from what varies, it varies in steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.derivatives.refusals import DerivativeError, refusal
from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ir.expressions import Number, select
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import F32, I32, FloatType, TileType, element_type, shape_of, with_element

#: The bias of e8m0 codes, and the code of NaN.
_BIAS, _NAN = 127, 255


@dataclass(frozen=True)
class FloatOperand:
    """An operand of a block-scaled matmul.

    Attributes:
        value: the operand of the operation.
        scale: its scales; None without.
        k_axis: its axis along which groups share a scale, -1 or -2.
        pair_axis: the axis along which a byte has two elements; None where it has one.
    """

    value: Value
    scale: Value | None
    k_axis: int
    pair_axis: int | None

    def elements(self, b: Builder, primal: Callable[[Value], Value]) -> Value:
        """Append the operand as f32, times its scales.

        Args:
            primal: returns what stands for a value of the kernel.
        """
        found = primal(self.value)
        if self.pair_axis is not None:
            found = _unpacked(b, found, self.pair_axis)
        else:
            found = b.cast(found, result=with_element(found.type, F32))
        return self.scaled(b, found, primal)

    def scaled(self, b: Builder, tile: Value, primal: Callable[[Value], Value]) -> Value:
        """Append the product of a tile of f32, in the operand's shape, and the scales."""
        if self.scale is None:
            return tile
        found: Value = b.mul(tile, self._factors(b, primal(self.scale), shape_of(tile.type)))
        return found

    def _factors(self, b: Builder, scale: Value, shape: tuple[int, ...]) -> Value:
        """Append the scale of each element of the operand."""
        if isinstance(element_type(scale.type), FloatType):
            factors: Value = b.cast(scale, result=with_element(scale.type, F32))
        else:
            code = Number(b, scale).cast(I32)
            one = code.constant(1.0, F32)
            power = one.ldexp(code - _BIAS)
            factors = select(code.equals(_NAN), power.like(float("nan")), power).value
        narrow = shape_of(factors.type)
        rank, extent = len(narrow), shape[self.k_axis]
        wide = b.broadcast(
            b.expand_dims(factors, axis=rank),
            result=TileType((*narrow, extent // narrow[-1]), F32),
        )
        flat: Value = b.reshape(wide, result=TileType((*narrow[:-1], extent), F32))
        return flat if self.k_axis == -1 else transposed(b, flat)


def operands_of(operation: DotScaled) -> tuple[FloatOperand, FloatOperand]:
    """Return the operands of a block-scaled matmul."""
    formats = (operation.a_format, operation.b_format)
    packs = (operation.a_pack_k, operation.b_pack_k)
    pairs = [
        None if form != "e2m1" else axis if pack_k else -3 - axis
        for form, pack_k, axis in zip(formats, packs, (-1, -2), strict=True)
    ]
    return (
        FloatOperand(operation.a, operation.a_scale, -1, pairs[0]),
        FloatOperand(operation.b, operation.b_scale, -2, pairs[1]),
    )


def scale_refusal(operation: DotScaled) -> DerivativeError:
    """Return the error of scales that vary."""
    return refusal(
        operation,
        "its scales depend on what has a derivative",
        "stop the gradient before the scales: tl.stop_gradient(...)",
    )


def transposed(b: Builder, tile: Value) -> Value:
    """Append the transpose of a tile's last two axes."""
    rank = len(shape_of(tile.type))
    found: Value = b.permute(tile, order=(*range(rank - 2), rank - 1, rank - 2))
    return found


def _unpacked(b: Builder, packed: Value, axis: int) -> Value:
    """Append the e2m1 elements of bytes, the low half the first of two along an axis."""
    byte = Number(b, packed).cast(I32)
    halves = [_decoded(code) for code in (byte & 15, (byte >> 4) & 15)]
    pairs = b.join(halves[0].value, halves[1].value)
    shape = shape_of(packed.type)
    place = len(shape) + axis
    order = (*range(place + 1), len(shape), *range(place + 1, len(shape)))
    wide = tuple(extent * 2 if own == place else extent for own, extent in enumerate(shape))
    found: Value = b.reshape(b.permute(pairs, order=order), result=TileType(wide, F32))
    return found


def _decoded(code: Number) -> Number:
    """Return an e2m1 element: 0, 0.5, 1, 1.5, 2, 3, 4 or 6, and its sign."""
    magnitude = code & 7
    above = select(magnitude.equals(7), magnitude.like(12), magnitude * 2 - 4)
    halves = select(magnitude > 4, above, magnitude).cast(F32)
    return select(code >= 8, halves * -0.5, halves * 0.5)


__all__ = ["FloatOperand", "operands_of", "scale_refusal", "transposed"]
