"""The meaning of matmuls: exact operands and accumulation in float64, then one rounding.

The rounding is to the accumulator's type. A matmul with an order rounds every step of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir.ops.linear import Dot, DotScaled
from tilewright.ir.order import ANY, SEQUENTIAL, tree_bits
from tilewright.ir.types import FloatType, IntType, Type, element_type
from tilewright.reference.numerics import Array, decode, numpy_dtype, rounded
from tilewright.reference.operations.fused_multiply_add import fma

if TYPE_CHECKING:
    from tilewright.ir.core import Value
    from tilewright.reference.frame import Frame
    from tilewright.reference.operations.arithmetic import Meaning

#: The values of the sixteen e2m1 encodings.
_E2M1 = np.array(
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
)


def _float64(x: Array, type_: Type) -> Array:
    element = element_type(type_)
    return np.asarray(decode(x, element) if isinstance(element, FloatType) else x).astype(
        np.float64
    )


def dot(frame: Frame, operation: Dot, a: Array, b: Array, c: Array) -> Array:
    if operation.order != ANY and isinstance(element_type(operation.result.type), FloatType):
        return _ordered_dot(operation, a, b, c)
    exact = np.matmul(_float64(a, operation.a.type), _float64(b, operation.b.type))
    result = element_type(operation.result.type)
    if isinstance(result, IntType):
        # Matmuls of 8-bit integers with K up to 2**37 are exact in float64.
        return (exact.astype(np.int64) + c).astype(numpy_dtype(result))
    assert isinstance(result, FloatType)
    return rounded(exact + _float64(c, operation.c.type), result)


def _ordered_dot(operation: Dot, a: Array, b: Array, c: Array) -> Array:
    """Multiply in an order: ``c`` has 32 bits or more, which hold every operand exactly."""
    result = element_type(operation.result.type)
    assert isinstance(result, FloatType)
    left, right = (
        rounded(_float64(x, operand.type), result)
        for x, operand in ((a, operation.a), (b, operation.b))
    )
    extent = left.shape[-1]
    if operation.order == SEQUENTIAL:
        for k in range(extent):
            c = fma(left[..., :, k, None], right[..., None, k, :], c, result)
        return c
    terms = left[..., :, :, None] * right[..., None, :, :]
    for bit in tree_bits(extent):
        if bit < 2:
            odd = terms[..., 1::2, :]
            even = terms[..., ::2, :].copy()
            even[..., : odd.shape[-2], :] += odd
            terms = even
        else:
            half = 1 << (terms.shape[-2] - 1).bit_length() - 1
            upper = terms[..., half:, :]
            terms = terms[..., :half, :].copy()
            terms[..., : upper.shape[-2], :] += upper
    return np.asarray(c + terms[..., 0, :])


def dot_scaled(
    frame: Frame,
    operation: DotScaled,
    a: Array,
    a_scale: Array | None,
    b: Array,
    b_scale: Array | None,
    c: Array,
) -> Array:
    left = _unpacked(operation.a, a, operation.a_format, pack_k=operation.a_pack_k, k_axis=-1)
    right = np.swapaxes(
        _unpacked(operation.b, b, operation.b_format, pack_k=operation.b_pack_k, k_axis=-2), -1, -2
    )
    left = _scaled(operation.a_scale, left, a_scale)
    right = _scaled(operation.b_scale, right, b_scale)
    return (np.matmul(left, np.swapaxes(right, -1, -2)) + c.astype(np.float64)).astype(np.float32)


def _unpacked(operand: Value, x: Array, format_: str, *, pack_k: bool, k_axis: int) -> Array:
    """Convert an operand to float64.

    Pairs of e2m1 in a byte, the low half first, spread along K or along the other axis.
    """
    if format_ != "e2m1":
        element = element_type(operand.type)
        assert isinstance(element, FloatType)
        return np.asarray(decode(x, element)).astype(np.float64)
    axis = k_axis if pack_k else -3 - k_axis
    pairs = np.stack(
        [_E2M1[x & np.uint8(15)], _E2M1[x >> np.uint8(4)]], axis=axis if axis == -1 else -2
    )
    shape = list(x.shape)
    shape[axis] *= 2
    return pairs.reshape(shape)


def _scaled(operand: Value | None, x: Array, scale: Array | None) -> Array:
    """``x`` of shape [..., M or N, K] times the scale of each group along K."""
    if scale is None or operand is None:
        return x
    element = element_type(operand.type)
    if isinstance(element, FloatType):
        factor = np.asarray(decode(scale, element)).astype(np.float64)
    else:
        factor = np.where(
            scale == 255, np.nan, np.ldexp(1.0, scale.astype(np.int32) - np.int32(127))
        )
    return x * np.repeat(factor, x.shape[-1] // factor.shape[-1], axis=-1)


MEANINGS: dict[str, Meaning] = {"dot": dot, "dot_scaled": dot_scaled}
