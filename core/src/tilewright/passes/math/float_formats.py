"""Exact arithmetic in Tile IR's float formats: rounding of rationals, values to bits and back.

Floats are held as Python floats, in which every format but f64's own arithmetic is exact.
"""

from __future__ import annotations

import functools
import math
import struct
from fractions import Fraction

from tilewright.ir.types import F32, F64, FloatType


@functools.cache
def max_finite(type_: FloatType) -> float:
    """The largest finite number of the format."""
    top = (1 << type_.exponent) - 1 - type_.bias
    if type_.has_infinity:  # the top exponent holds infinity and NaN
        return math.ldexp(2.0 - math.ldexp(1.0, -type_.mantissa), top - 1)
    lost = (
        2 if type_.has_negative_zero else 1
    )  # the all-ones encoding is NaN, or no number is lost to it
    return math.ldexp(2.0 - math.ldexp(lost, -type_.mantissa), top)


@functools.cache
def min_exponent(type_: FloatType) -> int:
    """The binary exponent of the smallest positive number, a subnormal."""
    return 1 - type_.bias - type_.mantissa


def contains(wide: FloatType, narrow: FloatType) -> bool:
    """Return whether every finite number of ``narrow`` is one of ``wide``, and infinities and
    zero's sign survive."""
    return wide is narrow or (
        wide.mantissa >= narrow.mantissa
        and max_finite(wide) >= max_finite(narrow)
        and min_exponent(wide) <= min_exponent(narrow)
        and wide.has_infinity >= narrow.has_infinity
        and wide.has_negative_zero >= narrow.has_negative_zero
    )


def round_to(value: float | Fraction, type_: FloatType, *, towards_zero: bool = False) -> float:
    """``value`` rounded once to the format.

    Overflow yields infinity, or NaN where the format has none; towards zero, the largest finite
    number.
    """
    if isinstance(value, float):
        if type_ is F64:
            return value
        if not math.isfinite(value):
            if value == value and not type_.has_infinity:
                return math.nan
            return value
        if value == 0:
            return value if type_.has_negative_zero else 0.0
        if type_ is F32 and not towards_zero:
            try:
                return float(struct.unpack("<f", struct.pack("<f", value))[0])
            except OverflowError:
                return math.copysign(math.inf, value)
    if value == 0:
        return 0.0
    numerator, denominator = value.as_integer_ratio()
    numerator = abs(numerator)
    # The unit in the last place: 2**scale, with 2**mantissa <= magnitude / unit < 2**(mantissa + 1)
    # unless subnormal.
    exponent = numerator.bit_length() - denominator.bit_length()
    if (numerator << max(-exponent, 0)) < (denominator << max(exponent, 0)):
        exponent -= 1
    scale = max(exponent - type_.mantissa, min_exponent(type_))
    numerator, denominator = numerator << max(-scale, 0), denominator << max(scale, 0)
    units, rest = divmod(numerator, denominator)
    if not towards_zero:
        units += 2 * rest > denominator - (units & 1)  # ties go to even units
    try:
        result = math.ldexp(units, scale)
    except OverflowError:
        result = math.inf
    if result > max_finite(type_):
        result = max_finite(type_) if towards_zero else math.inf if type_.has_infinity else math.nan
    if value < 0 and (result != 0 or type_.has_negative_zero):
        return -result
    return result


def saturates(type_: FloatType) -> bool:
    """Return whether ``cast`` to the format, and arithmetic in it, make infinity the largest
    finite number."""
    return type_.is_fp8 and type_.has_infinity


def cast_to(value: float | Fraction, type_: FloatType) -> float:
    """``value`` as ``cast`` rounds it to nearest: as :func:`round_to`, but fp8 saturates, so that
    overflow and infinity give the largest finite number."""
    if type_.is_fp8 and value == value:
        largest = max_finite(type_)
        value = max(-largest, min(value, largest))
    return round_to(value, type_)


def to_bits(value: float, type_: FloatType) -> int | None:
    """The encoding of a number of the format; None for NaN, whose encodings are many."""
    if value != value:
        return None
    sign = int(math.copysign(1.0, value) < 0) << (type_.bits - 1)
    magnitude = abs(value)
    if magnitude == math.inf:
        return sign | ((1 << type_.exponent) - 1) << type_.mantissa
    if magnitude == 0:
        return sign
    _, exponent = math.frexp(magnitude)  # magnitude = fraction * 2**exponent, 0.5 <= fraction < 1
    biased = exponent - 1 + type_.bias
    if biased < 1:
        return sign | int(math.ldexp(magnitude, -min_exponent(type_)))
    fraction = int(math.ldexp(magnitude, type_.mantissa - exponent + 1)) - (1 << type_.mantissa)
    return sign | biased << type_.mantissa | fraction


def from_bits(bits: int, type_: FloatType) -> float | None:
    """The number that ``bits`` encode; None for NaN."""
    negative = bits >> (type_.bits - 1)
    exponent = (bits >> type_.mantissa) & ((1 << type_.exponent) - 1)
    fraction = bits & ((1 << type_.mantissa) - 1)
    top = (1 << type_.exponent) - 1
    if type_.has_infinity:
        if exponent == top:
            return None if fraction else (-math.inf if negative else math.inf)
    elif not type_.has_negative_zero:
        if negative and not exponent and not fraction:
            return None
    elif exponent == top and fraction == (1 << type_.mantissa) - 1:
        return None
    if exponent:
        magnitude = math.ldexp(
            (1 << type_.mantissa) + fraction, exponent - type_.bias - type_.mantissa
        )
    else:
        magnitude = math.ldexp(fraction, min_exponent(type_))
    return -magnitude if negative else magnitude
