"""Hardware arithmetic on arrays: fused multiply-add, minimum and maximum, conversions, bits."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum of f64 and what rounding lost."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded product of f64 and what rounding lost (no overflow in between)."""
    split = np.float64(134217729.0)
    ca, cb = a * split, b * split
    ah, bh = ca - (ca - a), cb - (cb - b)
    al, bl = a - ah, b - bh
    product = a * b
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _odd(value: Array, rest: Array) -> Array:
    """Round ``value + rest`` to odd, where ``rest`` is less than an ulp.

    The last bit of the result is 1 if the sum is not exact.
    """
    bits = value.view(np.int64)
    inexact = (rest != 0) & np.isfinite(value) & np.isfinite(rest) & ((bits & 1) == 0)
    towards_zero = (rest < 0) == (value > 0)
    return np.where(inexact, np.where(towards_zero, bits - 1, bits + 1), bits).view(np.float64)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """f32 of a * b + c, rounded once."""
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = np.atleast_1d(product + addend)
    rounded = total.astype(np.float32)
    # twice rounded differs only where f64 lies on a midpoint of f32, or the result is a denormal
    suspicious = ((total.view(np.int64) & 0x1FFFFFFF) == 0x10000000) | (
        (np.abs(total) < 1.2e-38) & (total != 0)
    )
    if suspicious.any():
        _, rest = _two_sum(product, addend)
        rounded = _odd(total, np.broadcast_to(rest, total.shape)).astype(np.float32)
    return rounded


def fma64(a: Array, b: Array, c: Array, power: Array | int = 0) -> Array:
    """Return (a * b + c) * 2**power as f64, rounded once.

    The computation uses mantissas, so that no intermediate value overflows.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    (first, first_exponent), (second, second_exponent) = np.frexp(a), np.frexp(b)
    exponent = first_exponent + second_exponent
    addend = np.ldexp(c, -exponent)
    high, low = _two_product(first, second)
    partial, lost = _two_sum(addend, low)
    total, rest = _two_sum(high, partial)
    rounded, below = _two_sum(total, _odd(*_two_sum(lost, rest)))
    exponent = exponent + power
    result = np.ldexp(rounded, exponent)
    # a denormal result is rounded when the exponent comes back, and on its midpoints what is below
    # decides
    off = rounded - np.ldexp(result, -exponent)
    tie = (
        (np.frexp(rounded)[1] + exponent < -1021)
        & (np.abs(off) == np.ldexp(0.5, -1074 - exponent))
        & (off * below > 0)
    )
    result = np.where(tie, np.nextafter(result, np.copysign(np.inf, below)), result)
    result = np.where(np.isfinite(c) & ~np.isfinite(addend), np.ldexp(c, power), result)
    return np.where(
        np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0),
        result,
        np.ldexp(a * b + c, power),
    )


def fma16(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c in f16, rounded once: f64 holds the product and nearly the sum exactly."""
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float16)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of f16, f32 or f64."""
    return {2: fma16, 4: fma32, 8: fma64}[a.dtype.itemsize](a, b, c)


def minimum_number(a: Array, b: Array) -> Array:
    """The smaller; the other where one is a NaN; -0 is below 0."""
    smaller = np.where(np.signbit(a) & (a == b), a, np.fmin(a, b))
    return np.where(np.signbit(b) & (a == b), b, smaller)


def maximum_number(a: Array, b: Array) -> Array:
    """The larger; the other where one is a NaN; 0 is above -0."""
    larger = np.where(~np.signbit(a) & (a == b), a, np.fmax(a, b))
    return np.where(~np.signbit(b) & (a == b), b, larger)


def minimum_nan(a: Array, b: Array) -> Array:
    """IEEE minimum: a NaN where either is one."""
    return np.where(np.isnan(a) | np.isnan(b), a + b, minimum_number(a, b))


def maximum_nan(a: Array, b: Array) -> Array:
    """IEEE maximum: a NaN where either is one."""
    return np.where(np.isnan(a) | np.isnan(b), a + b, maximum_number(a, b))


def median(a: Array, b: Array, c: Array) -> Array:
    """The one in the middle; for floats the minimum of all where one is a NaN."""
    if a.dtype.kind == "f":
        low, high = minimum_number(minimum_number(a, b), c), maximum_number(maximum_number(a, b), c)
        nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
        middle = np.where(
            a == high,
            maximum_number(b, c),
            np.where(b == high, maximum_number(a, c), maximum_number(a, b)),
        )
        return np.where(nan, low, middle)
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def to_integer(value: Array, dtype: Any) -> Array:
    """Floats to integers: towards zero, saturating, NaN to 0."""
    info = np.iinfo(dtype)
    wide = np.trunc(value.astype(np.float64))
    wide = np.where(np.isnan(wide), 0, np.clip(wide, info.min, info.max))
    return wide.astype(np.int64).astype(dtype)


def shift_left(amount: Array, value: Array) -> Array:
    """``value << amount``, modulo the width."""
    width = value.dtype.itemsize * 8
    return value << (amount.astype(value.dtype) & value.dtype.type(width - 1))


def shift_right(amount: Array, value: Array) -> Array:
    """``value >> amount``, modulo the width; arithmetic for signed integers."""
    width = value.dtype.itemsize * 8
    return value >> (amount.astype(value.dtype) & value.dtype.type(width - 1))


def ones(value: Array) -> Array:
    """Population count, as uint32."""
    return np.bitwise_count(value).astype(np.uint32)


def first_high(value: Array) -> Array:
    """Zeros above the highest bit set, -1 where there is none: uint32 of uint32 or uint64."""
    width = value.dtype.itemsize * 8
    spread = value.copy()
    step = 1
    while step < width:
        spread |= spread >> value.dtype.type(step)
        step *= 2
    return np.where(
        value == 0, np.uint32(0xFFFFFFFF), np.uint32(width) - np.bitwise_count(spread)
    ).astype(np.uint32)


def first_high_signed(value: Array) -> Array:
    """Count the bits before the first that differs from the sign; -1 if there is none.

    The argument is int32 or int64, the result uint32.
    """
    flipped = np.where(value < 0, -1 - value, value)
    return first_high(flipped.view(np.uint32 if value.dtype.itemsize == 4 else np.uint64))


def first_low(value: Array) -> Array:
    """The lowest bit set, -1 where there is none: uint32 of uint32 or uint64."""
    lowest = value & (value.dtype.type(0) - value)
    return np.where(
        value == 0,
        np.uint32(0xFFFFFFFF),
        np.bitwise_count(lowest - value.dtype.type(1)).astype(np.uint32),
    ).astype(np.uint32)


def reversed_bits(value: Array) -> Array:
    """uint32 with its bits in the other order."""
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        value = (value >> np.uint32(shift)) & np.uint32(mask) | (
            value & np.uint32(mask)
        ) << np.uint32(shift)
    return value >> np.uint32(16) | value << np.uint32(16)


def field(value: Array, offset: Array, width: Array) -> Array:
    """Return bits [offset, offset + width) of an integer; signed integers are sign-extended.

    Offset and width follow the rules of 32-bit instructions.
    """
    shift, length = (
        offset.astype(np.uint32) & np.uint32(31),
        width.astype(np.uint32) & np.uint32(31),
    )
    left = np.maximum(32 - shift.astype(np.int64) - length, 0).astype(np.uint32)
    moved = (value.view(np.uint32) << left).view(value.dtype)
    taken = moved >> np.minimum(shift + left, np.uint32(31)).astype(value.dtype)
    return np.where(length == 0, value.dtype.type(0), taken)


def permuted_bytes(high: Array, low: Array, selector: Array) -> Array:
    """v_perm_b32: select each byte from the 8 bytes of high:low, a sign, 0 or 255."""
    joined = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    out = np.zeros(np.broadcast_shapes(joined.shape, selector.shape), np.uint32)
    for place in range(4):
        code = (selector >> np.uint32(8 * place)) & np.uint32(0xFF)
        byte = (
            joined >> (np.minimum(code, np.uint32(7)).astype(np.uint64) * np.uint64(8))
        ) & np.uint64(0xFF)
        sign = (
            joined >> ((code.astype(np.uint64) & np.uint64(3)) * np.uint64(16) + np.uint64(15))
        ) & np.uint64(1)
        byte = np.where((code >= 8) & (code <= 11), sign * np.uint64(0xFF), byte)
        byte = np.where(code == 12, np.uint64(0), byte)
        byte = np.where(code >= 13, np.uint64(0xFF), byte)
        out |= byte.astype(np.uint32) << np.uint32(8 * place)
    return out


def classes(value: Array, wanted: Array) -> Array:
    """v_cmp_class: bool, whether the class of a float is among the bits of ``wanted``."""
    nan, infinite, negative, zero = np.isnan(value), np.isinf(value), np.signbit(value), value == 0
    mantissa_top = {2: 0x0200, 4: 0x00400000, 8: 0x0008000000000000}[value.dtype.itemsize]
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[value.dtype.itemsize]
    quiet = (value.view(unsigned) & unsigned(mantissa_top)) != 0
    denormal = ~zero & (np.abs(value) < np.finfo(value.dtype).tiny)
    normal = ~(nan | infinite | zero | denormal)
    kinds = (
        nan & ~quiet, nan & quiet, infinite & negative, normal & negative, denormal & negative,
        zero & negative,
        zero & ~negative, denormal & ~negative, normal & ~negative, infinite & ~negative,
    )  # fmt: skip
    bits = wanted.astype(np.uint32)
    out = np.zeros(np.broadcast_shapes(value.shape, wanted.shape), np.bool_)
    for place, kind in enumerate(kinds):
        out |= kind & ((bits >> np.uint32(place)) & np.uint32(1) != 0)
    return out


def bfloat_bits(value: Array) -> Array:
    """f32 to bf16 bits (uint16), to nearest, ties to even; NaN stays a NaN."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(value), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(
        np.uint16
    )


def bfloat_value(bits: Array) -> Array:
    """bf16 bits (uint16) to f32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
