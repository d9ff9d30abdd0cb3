"""Sine and cosine: argument reduction modulo pi/2, then a polynomial on [-pi/4, pi/4].

Up to :data:`FAST_LIMIT` the multiple of pi/2 is subtracted in two or three pieces, each product
exact by fma (W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980). Beyond,
the product of the argument's significand with the 2/pi digits that matter at its exponent is taken
in integers (M. Payne and R. Hanek, Radian reduction for trigonometric functions, SIGNUM Newsletter
18, 1983); the digits are picked by a tree of selects, since a scalar function has no tables.
"""

from __future__ import annotations

import math

from tilewright.ir.expressions import Number, fma, select
from tilewright.ir.types import F32, F64, I32, I64, U32, U64, FloatType, IntType
from tilewright.passes.math.math_coefficients import COEFFICIENTS
from tilewright.passes.math.math_expressions import estrin, horner, split_constant

#: The magnitude up to which the short reduction is within the stated bound.
FAST_LIMIT: dict[FloatType, float] = {F32: 32768.0, F64: 2.0**30}

_PI = (
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899"
    "86280348253421170679821480865132823066470938446095505822317253594081284811174502"
    "84102701938521105559644622948954930381964428810975665933446128475648233786783165"
    "27120190914564856692346034861045432664821339360726024914127372458700660631558817"
    "48815209209628292540917153643678925903600113305305488204665213841469519415116094"
    "330572703657595919530921861173819326117931"
)


def _two_over_pi(bits: int) -> int:
    """floor(2/pi * 2**bits)."""
    digits = _PI.replace(".", "")
    scale: int = 10 ** (len(digits) - 1)
    return (2 * scale << bits) // int(digits)


def _quarter_turns(a: Number, magic: float) -> tuple[Number, Number]:
    """round(a * 2/pi) as a float, and as the low bits of an integer; |a| must be far below
    2**mantissa."""
    shifted = fma(a, 2 / math.pi, magic)
    return shifted - magic, shifted.bits()


def _reduce_f32(a: Number) -> tuple[Number, Number]:
    n, quadrant = _quarter_turns(a, 1.5 * 2.0**23)
    high, middle, low = split_constant(_half(_PI), F32, 3)
    # The first product cancels exactly: both terms are multiples of one power of two and their
    # difference is below 1.
    r = fma(n, -low, fma(n, -middle, fma(n, -high, a)))
    return r, quadrant


def _half(decimal: str) -> str:
    """Half of a decimal number, exactly."""
    digits = decimal.replace(".", "")
    halved = str(int(digits) * 5)
    places = len(digits)
    return f"{halved[:-places] or '0'}.{halved[-places:].rjust(places, '0')}"


def _window(words: list[int], index: Number, shift: Number, size: int, width: int) -> list[Number]:
    """``size`` consecutive words of a bit string, from bit ``index * width + shift`` on.

    ``index`` has as many bits as the words need.
    """
    levels = (len(words) - size - 1).bit_length()
    current: list[Number] = [index.constant(word, IntType(width, False)) for word in words]
    for level in reversed(range(levels)):
        skip = 1 << level
        wanted = size + skip  # words still needed below this level, and one for the bits shifted in
        bit = (index & skip).differs(0)
        current = [
            select(bit, current[i + skip], current[i]) if i + skip < len(current) else current[i]
            for i in range(min(wanted, len(current)))
        ]
    # The bits shifted in are moved in two steps, since a shift by the whole width is undefined.
    back = (shift.like(width - 1) - shift).cast(IntType(width, False))
    forth = shift.cast(IntType(width, False))
    return [(current[i] << forth) | ((current[i + 1] >> 1) >> back) for i in range(size)]


def _reduce_large_f32(a: Number, double: bool) -> tuple[Number, Number]:
    """Reduction of any finite a >= 2**15: the remainder, and the quadrant in the low bits.

    ``double`` lets it use f64.
    """
    # zero digits in front, so that the window of the smallest argument starts at or after the first
    padding = 10
    digits = _two_over_pi(32 * 7 - padding)
    words = [(digits >> (32 * (6 - i))) & 0xFFFFFFFF for i in range(7)]
    bits = a.bits()
    # a = significand * 2**exponent; digits of weight 4 and more times a power of two give whole
    # turns
    start = ((bits >> 23) - (150 + 2 - padding)) & 127
    significand = ((bits & 0x7FFFFF) | 0x800000).cast(U32).cast(U64)
    high, middle, low = (word.cast(U64) for word in _window(words, start >> 5, start & 31, 3, 32))
    turns = (
        ((significand * high) << 32) + significand * middle + ((significand * low) >> 32)
    )  # 2**62 is a quarter turn; whole turns wrap
    quadrant = (turns + (1 << 61)) >> 62
    rest = (turns - (quadrant << 62)).bitcast(I64)
    if double:
        r = (rest.cast(F64) * (math.pi / 2 * 2.0**-62)).cast(F32)
    else:  # both factors as a number and what is left of it
        upper = rest.cast(F32)
        lower = (rest - upper.cast(I64)).cast(F32)
        unit, unit_rest = (part * 2.0**-62 for part in split_constant(_half(_PI), F32, 2))
        r = fma(upper, unit, fma(upper, unit_rest, lower * unit))
    return r, quadrant.cast(U32).bitcast(I32)


def _reduce_f64(a: Number) -> tuple[Number, Number, Number]:
    n, quadrant = _quarter_turns(a, 1.5 * 2.0**52)
    high, middle, low = split_constant(_half(_PI), F64, 3)
    exact = fma(n, -high, a)
    product = n * middle
    r = exact - product
    # two-sum: what r lost, whichever of the terms is greater (D. E. Knuth, The Art of Computer
    # Programming 2, 4.2.2)
    shadow = exact - r
    lost = (exact - (r + shadow)) + (shadow - product)
    rest = lost - fma(n, low, fma(n, middle, -product))
    return r, rest, quadrant


def _reduce_large_f64(a: Number) -> tuple[Number, Number, Number]:
    """Reduction of any finite a >= 2**30: the remainder in two pieces, and the quadrant in the low
    bits."""
    padding = 24
    digits = _two_over_pi(64 * 19 - padding)
    words = [(digits >> (64 * (18 - i))) & 0xFFFFFFFFFFFFFFFF for i in range(19)]
    bits = a.bits(signed=False)
    start = ((bits >> 52) - (1075 + 2 - padding)) & 1023
    significand = (bits & 0xFFFFFFFFFFFFF) | 0x10000000000000
    high, middle, low = _window(words, start >> 6, start & 63, 3, 64)
    below = significand * middle
    fraction = below + significand.apply("mulhi", low)
    carry = (fraction < below).cast(U64)
    turns = significand * high + significand.apply("mulhi", middle) + carry
    quadrant = (turns + (1 << 61)) >> 62
    rest = (turns - (quadrant << 62)).bitcast(I64)
    # The 126 bits of the fraction as a sum of two floats: halves of the upper word convert exactly.
    upper, lower = (rest >> 32).cast(F64) * 2.0**32, (rest & 0xFFFFFFFF).cast(F64)
    whole = upper + lower
    small = (lower - (whole - upper)) + (fraction >> 1).bitcast(I64).cast(F64) * 2.0**-63
    total = whole + small
    left = small - (total - whole)
    unit, unit_rest = (part * 2.0**-62 for part in split_constant(_half(_PI), F64, 2))
    r = total * unit
    return r, fma(total, unit_rest, fma(total, unit, -r)) + left * unit, quadrant.bitcast(I64)


def _kernel_f32(r: Number) -> tuple[Number, Number]:
    """(sin r, cos r) for |r| <= pi/4."""
    t = r * r
    sine = fma(t * r, horner(COEFFICIENTS["sin", "f32"], t), r)
    cosine = fma(t * t, horner(COEFFICIENTS["cos", "f32"], t), fma(t, -0.5, 1.0))
    return sine, cosine


def _kernel_f64(r: Number, rest: Number) -> tuple[Number, Number]:
    """(sin(r + rest), cos(r + rest)) for |r| <= pi/4."""
    t = r * r
    half = t * 0.5
    sine = r + fma(-half, rest, fma(t * r, estrin(COEFFICIENTS["sin", "f64"], t), rest))
    near = 1.0 - half
    cosine = near + (
        ((1.0 - near) - half) + fma(t * t, estrin(COEFFICIENTS["cos", "f64"], t), -(r * rest))
    )
    return sine, cosine


def sine_or_cosine(x: Number, *, cosine: bool, full_range: bool, double: bool = True) -> Number:
    """sin(x) or cos(x); without ``full_range`` only for |x| <= FAST_LIMIT, infinities and NaN.

    Those of f32 use f64 where ``double`` lets them.
    """
    element = x.element
    assert isinstance(element, FloatType)
    a = abs(x)
    near = a <= FAST_LIMIT[element]
    if element is F32:
        r, quadrant = _reduce_f32(a)
        if full_range:
            large, large_quadrant = _reduce_large_f32(a, double)
            r = select(near, r, select(a < math.inf, large, math.nan))
            quadrant = select(near, quadrant, large_quadrant)
        of_sine, of_cosine = _kernel_f32(r)
    else:
        r, rest, quadrant = _reduce_f64(a)
        if full_range:
            large, large_rest, large_quadrant = _reduce_large_f64(a)
            r = select(near, r, select(a < math.inf, large, math.nan))
            rest, quadrant = select(near, rest, large_rest), select(near, quadrant, large_quadrant)
        of_sine, of_cosine = _kernel_f64(r, rest)
    if cosine:
        quadrant = quadrant + 1
    value = select((quadrant & 1).differs(0), of_cosine, of_sine)
    sign = (quadrant & 2) << (element.bits - 2)
    if not cosine:
        sign = sign ^ (x.bits() & (1 << (element.bits - 1)))
    return (value.bits() ^ sign).bitcast(element)
