"""Micro-scaling (MX) formats: elements of 8 or 4 bits, and a power of two for 32 along a row.

Source: "OCP Microscaling Formats (MX) Specification", version 1.0, 2023.
"""

from __future__ import annotations

from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.element_types import name_of
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.frameworks import framework_of

#: Elements of a block, which share a scale.
BLOCK = 32
_BLOCK = tl.constexpr(BLOCK)
#: Type of elements -> its name in the language, the exponent of its largest power of two, and its
#: largest magnitude.
FORMATS = {
    "float8_e4m3fn": ("e4m3", 8, 448.0),
    "float8_e5m2": ("e5m2", 15, 57344.0),
    "float4_e2m1": ("e2m1", 2, 6.0),
}
#: Magnitudes of the 4-bit type, by their bits.
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: Bits of the exponent 0 of a scale, and of no number.
_BIAS, _NAN = 127, 255


def is_packed(dtype: str) -> bool:
    """Return whether a byte has two elements of a type, the first in its low half."""
    return dtype == "float4_e2m1"


def as_bytes(scale: Any) -> Any:
    """Return scales of float8_e8m0fnu as uint8; others as they are."""
    if name_of(scale) != "float8_e8m0fnu":
        return scale
    if hasattr(scale, "view") and not type(scale).__module__.startswith("jax"):
        xp = array_api_compat.array_namespace(scale)
        return scale.view(xp.uint8)
    import jax

    return jax.lax.bitcast_convert_type(scale, "uint8")


def decoded_scales(scale: Any, dtype: Any) -> Any:
    """Return scales, of uint8 or float8_e8m0fnu, as numbers of a type."""
    xp = array_api_compat.array_namespace(scale)
    scale = as_bytes(scale)
    exponents = xp.astype(scale, dtype) - _BIAS
    powers = xp.pow(2 * xp.ones_like(exponents), exponents)
    return xp.where(scale == _NAN, xp.nan * xp.ones_like(powers), powers)


def decoded_elements(q: Any, dtype: Any, axis: int) -> Any:
    """Return elements as numbers of a type; pairs of 4-bit elements lie along an axis."""
    xp = array_api_compat.array_namespace(q)
    if name_of(q) != "uint8":
        return xp.astype(q, dtype)
    codes = xp.stack([q & 15, q >> 4], axis=2 if axis else 1)
    codes = xp.reshape(codes, (q.shape[0] * (2 - axis), q.shape[1] * (1 + axis)))
    magnitudes = xp.zeros_like(codes, dtype=dtype)
    for code, magnitude in enumerate(_MAGNITUDES):
        magnitudes = xp.where((codes & 7) == code, magnitude + 0 * magnitudes, magnitudes)
    return xp.where(codes >= 8, -magnitudes, magnitudes)


@tw.jit
def quantize_mx_kernel(
    x_ptr, q_ptr, scale_ptr, M, N, stride_m, stride_n, stride_qm, stride_qn, stride_sm, stride_sn,
    EMAX: tl.constexpr, MAXIMUM: tl.constexpr, IS_PACKED: tl.constexpr,
    BLOCK_M: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Divide blocks by powers of two, the floors of their largest magnitudes by the type's."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    first = tl.program_id(1) * GROUPS
    columns = first * _BLOCK + tl.arange(0, GROUPS * _BLOCK)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    places = rows[:, None] * stride_m + columns[None, :] * stride_n
    x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
    x = tl.reshape(x, (BLOCK_M, GROUPS, _BLOCK))
    # magnitudes are ordered as their bits are, infinity and NaN last
    bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    exponent = tl.max(bits, 2) >> 23
    scale = tl.where(exponent == 255, 255, tl.maximum(exponent - EMAX, 0))
    factor = (tl.maximum(254 - scale, 1) << 23).to(tl.float32, bitcast=True)
    y = tl.reshape(x * factor[:, :, None], (BLOCK_M, GROUPS * _BLOCK))
    if IS_PACKED:
        magnitude = tl.abs(y)
        code = (magnitude > 0.25).to(tl.int32) + (magnitude >= 0.75).to(tl.int32)
        code += (magnitude > 1.25).to(tl.int32) + (magnitude >= 1.75).to(tl.int32)
        code += (magnitude > 2.5).to(tl.int32) + (magnitude >= 3.5).to(tl.int32)
        code += (magnitude > 5.0).to(tl.int32)
        code |= (y.to(tl.int32, bitcast=True) >> 28) & 8
        low, high = tl.split(tl.reshape(code, (BLOCK_M, GROUPS * _BLOCK // 2, 2)))
        bytes_ = first * (_BLOCK // 2) + tl.arange(0, GROUPS * _BLOCK // 2)
        tl.store(
            q_ptr + rows[:, None] * stride_qm + bytes_[None, :] * stride_qn,
            (low | high << 4).to(tl.uint8),
            mask=(rows < M)[:, None] & (bytes_ < N // 2)[None, :],
        )
    else:
        tl.store(
            q_ptr + rows[:, None] * stride_qm + columns[None, :] * stride_qn,
            tl.clamp(y, -MAXIMUM, MAXIMUM).to(q_ptr.dtype.element_ty),
            mask=inside,
        )
    groups = first + tl.arange(0, GROUPS)
    tl.store(
        scale_ptr + rows[:, None] * stride_sm + groups[None, :] * stride_sn,
        scale.to(tl.uint8),
        mask=(rows < M)[:, None] & (groups < N // _BLOCK)[None, :],
    )


def quantize_mx_reference(x: Any, dtype: str = "float8_e4m3fn") -> tuple[Any, Any]:
    """Return the quotients of elements by their blocks' scales, not rounded yet, and the scales."""
    xp = array_api_compat.array_namespace(x)
    _, emax, maximum = FORMATS[dtype]
    m, n = x.shape
    blocks = xp.reshape(x, (m, n // BLOCK, BLOCK))
    largest = xp.max(xp.abs(blocks), axis=2)
    is_number = xp.isfinite(largest)
    tiny = 2.0 ** (emax - _BIAS)
    clipped = xp.where(is_number & (largest >= tiny), largest, tiny * xp.ones_like(largest))
    exponents = xp.floor(xp.log2(clipped)) - emax
    powers = xp.pow(2 * xp.ones_like(exponents), exponents)
    quotients = xp.clip(blocks / powers[:, :, None], -maximum, maximum)
    exponents = xp.where(is_number, exponents + _BIAS, _NAN * xp.ones_like(exponents))
    return xp.reshape(quotients, (m, n)), xp.astype(exponents, xp.uint8)


def _rounded(x: Any, dtype: str) -> tuple[Any, Any]:
    """Return the reference's results, rounded as the type's are."""
    xp, framework = array_api_compat.array_namespace(x), framework_of(x)
    quotients, scale = quantize_mx_reference(framework.converted(x, "float32"), dtype)
    if not is_packed(dtype):
        return framework.converted(quotients, dtype), scale
    magnitudes = xp.abs(quotients)
    codes = xp.zeros(quotients.shape, dtype=xp.uint8)
    for code in range(1, len(_MAGNITUDES)):
        middle = (_MAGNITUDES[code - 1] + _MAGNITUDES[code]) / 2
        is_above = magnitudes >= middle if code % 2 == 0 else magnitudes > middle
        codes = codes + xp.astype(is_above, xp.uint8)
    codes = codes + 8 * xp.astype(xp.signbit(quotients), xp.uint8)
    return codes[:, ::2] + 16 * codes[:, 1::2], scale


def _shapes(make: Any, x: Any, dtype: str) -> tuple[Any, ...]:
    m, n = x.shape
    elements = make((m, n // 2), "uint8") if is_packed(dtype) else make((m, n), dtype)
    return elements, make((m, n // BLOCK), "uint8")


def _launch(run: Launcher, q: Any, scale: Any, x: Array, dtype: str) -> None:
    m, n = x.shape
    if m == 0 or n == 0:
        return
    groups = min(4, tw.next_power_of_2(n // BLOCK))
    rows = min(16, tw.next_power_of_2(m))
    _, emax, maximum = FORMATS[dtype]
    run(
        quantize_mx_kernel,
        (tw.cdiv(m, rows), tw.cdiv(n // BLOCK, groups)),
        x,
        q,
        scale,
        m,
        n,
        *strides(x),
        *strides(q),
        *strides(scale),
        EMAX=emax,
        MAXIMUM=maximum,
        IS_PACKED=is_packed(dtype),
        BLOCK_M=rows,
        GROUPS=groups,
    )


QUANTIZE_MX = Operation("quantize_mx", ("q", "scale"), _shapes, _launch, reference=_rounded)


def quantize_mx(x: Any, dtype: str = "float8_e4m3fn", *, out: Any = None) -> tuple[Any, Any]:
    """Quantize a matrix to a micro-scaling format, with a scale for every 32 elements of a row.

    Args:
        x: of shape (M, N), of float16, bfloat16 or float32, of any strides. N is a multiple of 32.
        dtype: ``"float8_e4m3fn"``, ``"float8_e5m2"`` or ``"float4_e2m1"``.
        out: the arrays for the results.

    Returns:
        A pair of the elements and their scales. 8-bit elements have the shape (M, N). 4-bit
        elements are stored as uint8 of shape (M, N / 2): each byte contains two elements, the first
        one in its lower half. The scales have the shape (M, N / 32) and type uint8: a scale is a
        power of two, stored as its exponent plus 127. Each quantized element represents the product
        of the element and its scale. To compute the scale of a block of 32 elements, the function
        takes the largest power of two that is not above the block's largest magnitude, and divides
        it by the largest power of two that the element type can represent. Elements are rounded to
        nearest, ties to even. Elements beyond the range of the element type saturate. If a block
        contains infinity or NaN, its scale is stored as 255, which means NaN.

    Raises:
        ValueError: x is not a matrix with a multiple of 32 columns, or ``dtype`` is none of the
            listed types.
    """
    if x.ndim != 2 or x.shape[1] % BLOCK:
        raise ValueError(
            f"x must be a matrix of a multiple of {BLOCK} columns, and has the shape "
            f"{tuple(x.shape)}"
        )
    if dtype not in FORMATS:
        raise ValueError(f"dtype must be one of {', '.join(FORMATS)}, not {dtype!r}")
    found: tuple[Any, Any] = QUANTIZE_MX(x, dtype, out=out)
    return found
