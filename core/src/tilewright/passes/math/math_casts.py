"""Casts that hardware seldom has: bf16, the fp8 formats, f16 on some, rounding towards zero.

All are exact: rounded once, by integer arithmetic on the encodings, subnormals included. Overflow
to nearest yields infinity, and so does infinity itself, but fp8 saturates: both give the largest
finite number. Rounding towards zero leaves finite numbers finite, and infinity becomes NaN in a
format without. NaN yields the canonical quiet NaN of its sign.
"""

from __future__ import annotations

import functools
import math

from tilewright.ir.core import Function
from tilewright.ir.expressions import Number, select
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I32,
    U8,
    U16,
    U32,
    U64,
    FloatType,
    IntType,
    Type,
)
from tilewright.passes.math.math_expressions import Scope

_BITS: dict[int, IntType] = {8: U8, 16: U16, 32: U32, 64: U64}


#: The formats that most targets convert by themselves.
NATIVE: frozenset[FloatType] = frozenset({F16, F32, F64})


def _is_foreign(type_: Type, native: frozenset[FloatType]) -> bool:
    return isinstance(type_, FloatType) and type_.bits <= 16 and type_ not in native


def _infinity_bits(format_: FloatType) -> int:
    return ((1 << format_.exponent) - 1) << format_.mantissa


def nan_bits(format_: FloatType) -> int:
    """The canonical NaN.

    Formats without infinity have theirs in the all-ones encoding; the fnuz kinds in that of
    negative zero.
    """
    if not format_.has_negative_zero:
        return 1 << (format_.bits - 1)
    if format_.has_infinity:
        return _infinity_bits(format_) | (1 << (format_.mantissa - 1))
    return (1 << (format_.bits - 1)) - 1


def _largest_bits(format_: FloatType) -> int:
    """The encoding of the largest finite number."""
    if format_.has_infinity:
        return _infinity_bits(format_) - 1
    everything = (1 << (format_.bits - 1)) - 1
    return everything - 1 if format_.has_negative_zero else everything


def _magnitude_and_sign(bits: Number, width: int) -> tuple[Number, Number]:
    sign = bits & (1 << (width - 1))
    return bits ^ sign, sign


def _decode(x: Number, format_: FloatType) -> Number:
    """A number of 16 or 8 bits as f32, exactly."""
    bits = x.bits(signed=False).cast(U32)
    if format_ is BF16:
        return (bits << 16).bitcast(F32)
    magnitude, sign = _magnitude_and_sign(bits, format_.bits)
    shifted = magnitude << (F32.mantissa - format_.mantissa)
    normal = shifted + ((F32.bias - format_.bias) << F32.mantissa)
    # A subnormal is its fraction times the smallest number: let the fraction be the low bits of a
    # power of two whose unit that is, and subtract it.
    anchor = math.ldexp(1.0, F32.mantissa + 1 - format_.bias - format_.mantissa)
    subnormal = ((magnitude + _f32_bits(anchor)).bitcast(F32) - anchor).bits(signed=False)
    found = select(magnitude < (1 << format_.mantissa), subnormal, normal)
    if format_.has_infinity:
        infinity = _infinity_bits(format_)
        found = select(
            magnitude < infinity,
            found,
            select(magnitude > infinity, nan_bits(F32), found.like(_infinity_bits(F32))),
        )
    elif format_.has_negative_zero:
        found = select(magnitude.equals(nan_bits(format_)), nan_bits(F32), found)
    else:
        found = select(bits.equals(nan_bits(format_)), nan_bits(F32), found)
    return (found | (sign << (32 - format_.bits))).bitcast(F32)


def _f32_bits(value: float) -> int:
    import struct

    return int.from_bytes(struct.pack("<f", value), "little")


def _encode(x: Number, format_: FloatType, rounding: str) -> Number:
    """An f32 or f64 number rounded to a narrower format."""
    source = x.element
    assert isinstance(source, FloatType)
    bits = x.bits(signed=False)
    magnitude, sign = _magnitude_and_sign(bits, source.bits)
    dropped = source.mantissa - format_.mantissa
    rebias = (source.bias - format_.bias) << source.mantissa
    if rounding == "rtne":
        # half a unit, less one where a tie goes down to even; a carry out of the fraction is a
        # carry into the exponent
        odd = (magnitude >> dropped) & 1
        rounded = (magnitude + odd + ((1 << (dropped - 1)) - 1 - rebias)) >> dropped
    else:
        rounded = (magnitude - rebias) >> dropped
    if source.bias != format_.bias:
        smallest_normal = rebias + (1 << source.mantissa)
        rounded = select(
            magnitude < smallest_normal, _subnormal(magnitude, source, format_, rounding), rounded
        )
    largest, overflow = (
        _largest_bits(format_),
        _infinity_bits(format_) if format_.has_infinity else nan_bits(format_),
    )
    if rounding == "rtne":
        # to nearest, fp8 saturates
        rounded = select(rounded > largest, largest if format_.is_fp8 else overflow, rounded)
    else:
        infinite = magnitude.equals(_infinity_bits(source))
        rounded = select(infinite, overflow, select(rounded > largest, largest, rounded))
    rounded = select(magnitude > _infinity_bits(source), nan_bits(format_), rounded)
    narrow_sign = sign >> (source.bits - format_.bits)
    if not format_.has_negative_zero:
        plain = rounded.equals(0)
        narrow_sign = select(plain, 0, narrow_sign)
    return (rounded | narrow_sign).cast(_BITS[format_.bits]).bitcast(format_)


def _subnormal(magnitude: Number, source: FloatType, format_: FloatType, rounding: str) -> Number:
    """Return the encoding of a magnitude below the format's smallest normal number.

    It is how many times the smallest subnormal the magnitude is, rounded."""
    # value / smallest number = significand * 2**-shift; beyond the significand's width the quotient
    # is below a half
    minimum = 1 - format_.bias - format_.mantissa  # exponent of the smallest number
    exponent = magnitude >> source.mantissa
    significand = (magnitude & ((1 << source.mantissa) - 1)) | (1 << source.mantissa)
    shift = exponent.like(minimum + source.bias + source.mantissa) - exponent
    limit = source.mantissa + 2
    shift = select(
        shift > limit, limit, shift
    )  # unsigned: what is not subnormal has wrapped around, and is not used
    quotient = significand >> shift
    if rounding == "rtz":
        return quotient
    # twice the rest against the divisor, odd quotients rounding a tie up
    rest = significand - (quotient << shift)
    half = (shift.like(1) << shift) >> 1
    return quotient + select((rest + (quotient & 1)) > half, 1, quotient.like(0))


def _to_float64(x: Number) -> Number:
    """An integer as f64; 64-bit ones beyond 2**53 keep their upper 53 bits with the last one set
    where bits below are: enough to round once more."""
    type_ = x.element
    assert isinstance(type_, IntType)
    if type_.bits < 64:
        return x.cast(F64)
    if type_.signed:
        negative = x < 0
        magnitude = select(negative, -x, x).bitcast(U64)
    else:
        negative, magnitude = None, x
    sticky = (magnitude & ~0xFFF) | select((magnitude & 0xFFF).differs(0), 0x800, magnitude.like(0))
    odd = select(magnitude < (1 << 53), magnitude, sticky)
    found = odd.cast(F64)
    return found if negative is None else select(negative, -found, found)


def _to_odd_float32(x: Number) -> Number:
    """An integer as f32, with the last bit set where bits below are: enough to round once more to a
    format of 22 bits or fewer. For targets without f64."""
    type_ = x.element
    assert isinstance(type_, IntType)
    if type_.bits <= 16:
        return x.cast(F32)
    unsigned = IntType(type_.bits, signed=False)
    negative = x < 0 if type_.signed else None
    magnitude = (
        x.bitcast(unsigned) if negative is None else select(negative, -x, x).bitcast(unsigned)
    )
    exponent, step = magnitude.like(0).cast(U32), type_.bits // 2
    while (
        step
    ):  # down to 24 bits, by half as many places each time; what is dropped is kept in the last bit
        large = magnitude >= (1 << (23 + step)) if 23 + step < type_.bits else None
        if large is not None:
            dropped = (magnitude & ((1 << step) - 1)).differs(0)
            shifted = (magnitude >> step) | select(dropped, 1, magnitude.like(0))
            magnitude, exponent = (
                select(large, shifted, magnitude),
                select(large, exponent + step, exponent),
            )
        step //= 2
    power = ((exponent + F32.bias) << F32.mantissa).bitcast(F32)
    found = magnitude.cast(I32).cast(F32) * power
    return found if negative is None else select(negative, -found, found)


@functools.cache
def cast_function(
    source: Type, result: Type, rounding: str = "rtne", *, native: frozenset[FloatType] = NATIVE
) -> Function | None:
    """The scalar function of a ``cast`` between element types that targets rarely have; None where
    the target's own conversion serves.

    Given for every cast from or to a format that is not ``native`` (f32 always is, and f64 where it
    is meant to be used), for floats made narrower towards zero, and for f64 to f16, which many
    targets round twice. The function is shared and ended by ``return``. It uses integer operations,
    f32 and f64 arithmetic, and the casts that targets do have.
    """
    if source is result:
        return None
    narrowing = (
        isinstance(source, FloatType)
        and isinstance(result, FloatType)
        and result.bits < source.bits
    )
    if not (
        _is_foreign(source, native)
        or _is_foreign(result, native)
        or (narrowing and (rounding == "rtz" or (source is F64 and result is F16)))
    ):
        return None
    scope = Scope(f"cast_{source}_{result}_{rounding}", (source,), result)
    (x,) = scope.arguments
    return scope.finish(_convert(x, result, rounding, native))


def _convert(x: Number, result: Type, rounding: str, native: frozenset[FloatType]) -> Number:
    source = x.element
    if isinstance(source, FloatType):
        if result is I1:
            return _truth(x)
        if _is_foreign(source, native):
            x = _decode(x, source)
        elif source is F16 or source is BF16:
            x = x.cast(F32)
    else:
        x = _to_float64(x) if F64 in native else _to_odd_float32(x)
    if not isinstance(result, FloatType):
        return x.cast(result)
    if not (
        _is_foreign(result, native) or rounding == "rtz" or (x.element is F64 and result is F16)
    ):
        return x.cast(result)
    return _encode(x, result, rounding)


def _truth(x: Number) -> Number:
    """x != 0; NaN is not 0."""
    format_ = x.element
    assert isinstance(format_, FloatType)
    bits = x.bits(signed=False)
    if not format_.has_negative_zero:
        return bits.differs(0)
    return (bits & ((1 << (format_.bits - 1)) - 1)).differs(0)


__all__ = ["NATIVE", "cast_function", "nan_bits"]
