"""The number that a constant stands for, and its residue.

The float next to 0.001 is a binary fraction like any other, and its residue is not that of 1/1000:
a kernel that multiplies by it would be another algebra than one that divides by 1000. So constants,
and float arguments of launches, are recognized: the simplest number that rounds to the same f32
stands for all that do.
"""

from __future__ import annotations

import functools
import math
import struct
from fractions import Fraction

from tilewright.passes.exact.ring import Ring

#: The element that stands for log2(e): any unit would do, as exp2 and log2 are defined by it.
LOG2_E = Fraction(1442695040889, 10**12)
_IRRATIONALS = ((math.log2(math.e), LOG2_E), (math.log(2), 1 / LOG2_E))
#: Magnitudes from which a constant stands for an infinity, as in masks of -1e30 and ``finfo.min``.
INFINITE = 1e30
#: Bits of the numerator of a binary fraction that stands for itself.
_SHORT = 12
#: Bits of a factor that is looked for beside an irrational number, fewest first.
_FACTORS = (4, 8)
#: Largest denominators of the fractions that are tried, in turn.
_DENOMINATORS = (16, 256, 4096)
_DECIMALS = range(1, 13)


def _as_f32(value: float) -> float:
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


@functools.cache
def recognized(value: float) -> Fraction:
    """Return the number that a finite constant stands for.

    A binary fraction with a short numerator stands for itself; else a short multiple of log2(e) or
    ln(2) for that multiple of a fixed unit; else the simplest fraction, or the shortest decimal
    number, that rounds to the same f32; else the f32 itself.
    """
    if _is_short(Fraction(value)):
        return Fraction(value)
    value = _as_f32(value)
    if not value:
        return Fraction(0)
    for irrational, element in _IRRATIONALS:
        for bits in _FACTORS:
            factor = _to_bits(value / irrational, bits)
            if abs(factor * irrational - value) <= abs(value) * 2.0**-22:
                return Fraction(factor) * element
    exact = Fraction(value)
    for limit in _DENOMINATORS:
        if abs(exact) >= Fraction(1, 64):
            simple = exact.limit_denominator(limit)
        else:
            simple = 1 / (1 / exact).limit_denominator(limit)
        if simple and _as_f32(float(simple)) == value:
            return simple
    for decimals in _DECIMALS:
        decimal = Fraction(round(exact * 10**decimals), 10**decimals)
        if decimal and _as_f32(float(decimal)) == value:
            return decimal
    return exact


def _is_short(number: Fraction) -> bool:
    numerator, denominator = abs(number.numerator), number.denominator
    odd = numerator // (numerator & -numerator) if numerator else 0
    return not denominator & (denominator - 1) and odd.bit_length() <= _SHORT


def _to_bits(value: float, bits: int) -> float:
    """Return the value rounded to a significand of some bits."""
    significand, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(significand, bits)), exponent - bits)


@functools.lru_cache(maxsize=1024)
def payload_of_constant(value: float, ring: Ring) -> int:
    """Return the payload of a constant or of a float argument.

    A recognized fraction whose denominator 251 divides is undefined.
    """
    if math.isnan(value):
        return ring.nan
    if abs(value) >= INFINITE:
        return ring.negative_infinity if value < 0 else ring.infinity
    try:
        return ring.residue(recognized(float(value)))
    except ValueError:
        return ring.undefined
