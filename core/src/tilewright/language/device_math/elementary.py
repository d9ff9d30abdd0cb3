"""Powers, logarithms, hyperbolic and inverse functions.

They are composed of the exponential, the logarithm and the sine of the IR.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

from tilewright.ir import types as ir_types
from tilewright.ir.expressions import fma, select
from tilewright.language.device_math.numbers import INFINITY, NAN, MathValue, function, polynomial


def constant_pair(x: MathValue, value: str) -> tuple[float, float]:
    """Split a constant of many digits into two floats of the type of ``x``: value and error."""
    exact = Decimal(value)
    high = _rounded(float(exact), x)
    return high, _rounded(float(exact - Decimal(high)), x)


def _rounded(value: float, x: MathValue) -> float:
    return value if x.wide else float(struct.unpack("f", struct.pack("f", value))[0])


def exp(x: MathValue) -> MathValue:
    return x.apply("exp")


def log(x: MathValue) -> MathValue:
    return x.apply("log")


def sqrt(x: MathValue) -> MathValue:
    return x.apply("sqrt")


def copysign(x: MathValue | float, sign: MathValue) -> MathValue:
    return sign.like(x).apply("copysign", sign)


def is_nan(x: MathValue) -> MathValue:
    return x.differs(x)


# -- pow -------------------------------------------------------------------------------------------


def split(x: MathValue) -> tuple[MathValue, MathValue]:
    """(m, e) with x = m * 2**e, m in [sqrt(1/2), sqrt(2)), of a positive finite x; e a float."""
    mantissa, smallest, scale = (52, 2.0**-1022, 54) if x.wide else (23, 2.0**-126, 25)
    small = x < smallest
    bits = select(small, x * 2.0**scale, x).bits()
    exponent = (bits - (0x3FE6A09E667F3BCD if x.wide else 0x3F3504F3)) >> mantissa
    fraction = (bits - (exponent << mantissa)).bitcast(x.element)
    return fraction, exponent.cast(x.element) - select(small, x.like(float(scale)), 0.0)


def log_pair(x: MathValue) -> tuple[MathValue, MathValue]:
    """Logarithm of a positive finite x as an unevaluated sum of two floats.

    Its relative error is some 2**-58 (fp64) or 2**-29 (fp32).

    log m = 2 atanh(s) with s = (m - 1) / (m + 1), s itself in two floats.
    """
    m, e = split(x)
    f, d = m - 1.0, m + 1.0
    s = f / d
    s_low = fma(-s, m - (d - 1.0), fma(-s, d, f)) / d
    z = s * s
    cube = s * z
    # s**3 / 3, the largest term of the tail, with its error; that of the others is too small to
    # matter.
    third, third_low = constant_pair(
        x, "0.33333333333333333333333333333333333333333333333333333333333333"
    )
    lead = cube * third
    cube_low = fma(s, z, -cube) + s * fma(s, s, -z) + z * s_low * 3.0
    lead_low = fma(cube, third, -lead) + fma(cube, third_low, cube_low * third)
    others = cube * z * polynomial(z, [1 / (2 * n + 5) for n in range(10 if x.wide else 4)])
    # The first part of ln 2 is so short that e times it is exact.
    high = math.ldexp(math.floor(math.ldexp(math.log(2), 42)), -42) if x.wide else 0.693145751953125
    low = float(Decimal(_LN2) - Decimal(high))
    a, b = e * high, s + s
    total = a + b
    upper = total + lead * 2.0
    rest = (
        (total - upper)
        + lead * 2.0
        + ((a - total) + b)
        + ((s_low + others + lead_low) * 2.0 + e * low)
    )
    total = upper
    first = total + rest
    return first, rest - (first - total)


_LN2 = (
    "0.69314718055994530941723212145817656807550013436025"
    "5254120680009493393621969694715605863326996418687"
)


def power(x: MathValue, y: MathValue) -> MathValue:
    """x to the y, by exp(y log x) with logarithm and exponent in two floats.

    Special cases are as in C's Annex F.
    """
    size = abs(x)
    high, low = log_pair(size)
    exponent = y * high
    error = fma(y, high, -exponent) + y * low
    # Beyond the range of the exponential the error is of no use, and may be NaN.
    error = select(abs(exponent) < (800.0 if x.wide else 200.0), error, 0.0)
    # Where the exponential is about to overflow, a little of its argument (whole units of its last
    # place) goes to the error: the result may be smaller.
    near = exponent > (700.0 if x.wide else 88.0)
    moved = select(near, 2.0**-38 if x.wide else 2.0**-14, x.like(0.0))
    exponent, error = exponent - moved, error + moved
    value = exp(exponent)
    value = select(value.equals(INFINITY), value, fma(value, fma(error * 0.5, error, error), value))
    value = select(size.equals(1.0), 1.0, value)
    value = select(
        size.equals(0.0) | size.equals(INFINITY),
        select(size.equals(0.0) ^ (y < 0.0), x.like(0.0), INFINITY),
        value,
    )
    whole = y.apply("trunc").equals(y)
    half = y * 0.5
    odd = whole & half.apply("trunc").differs(half)
    # A negative base, -0.0 included.
    negative = copysign(1.0, x) < 0.0
    value = select(negative & odd, -value, value)
    value = select((x < 0.0) & whole.inverted() & size.differs(INFINITY), NAN, value)
    value = select(is_nan(x) | is_nan(y), x + y, value)
    return select(y.equals(0.0) | x.equals(1.0), 1.0, value)


# -- exponentials and logarithms -------------------------------------------------------------------


def expm1(x: MathValue) -> MathValue:
    """exp(x) - 1; near zero (u - 1) x / log(u) with u = exp(x), whose errors cancel (W. Kahan)."""
    u = exp(x)
    v = u - 1.0
    near = v * x / log(u)
    near = select(u.equals(1.0), x, near)
    return select(abs(x) < 1.0, near, v)


def log1p(x: MathValue) -> MathValue:
    """log(1 + x), as log(u) x / (u - 1) with u = 1 + x rounded (W. Kahan)."""
    u = x + 1.0
    value = log(u) * (x / (u - 1.0))
    value = select(u.equals(1.0), x, value)
    return select(u.equals(INFINITY) | (x <= -1.0), log(u), value)


_LOG10_E = (
    "0.43429448190325182765112891891660508229439700580366"
    "6566114453783165864649208870774729224949338431748"
)
_LOG2_10 = (
    "3.32192809488736234787031942948939017586483139302458"
    "061205475639581593477660862521585013974335937015"
)


def log10(x: MathValue) -> MathValue:
    high, low = constant_pair(x, _LOG10_E)
    value = log(x)
    scaled = value * high
    corrected = scaled + (fma(value, high, -scaled) + value * low)
    return select(abs(value).equals(INFINITY), value, corrected)


def exp10(x: MathValue) -> MathValue:
    """2 to the (x log2 10), with the exponent in two floats."""
    high, low = constant_pair(x, _LOG2_10)
    exponent = x * high
    error = fma(x, high, -exponent) + x * low
    value = exponent.apply("exp2")
    ordinary = abs(exponent) < (1100.0 if x.wide else 160.0)
    return select(ordinary & value.differs(INFINITY), fma(value, error * math.log(2), value), value)


# -- hyperbolic functions and their inverses -------------------------------------------------------


#: (v, exp(v) / 2) of fp32 and fp64: v so that x - v is exact for x > 80 or 700, and the other
#: number right far beyond the format's digits
_PART_OF_EXPONENT = {
    False: (1.0570602416992188, 1.4389491081237793),
    True: (0.8010089974031871, 1.1138938133878804),
}


def _half_exponential(x: MathValue) -> MathValue:
    """exp(x) / 2 without premature overflow.

    For large x a part of the exponent becomes a factor.
    """
    part, factor = _PART_OF_EXPONENT[x.wide]
    far = x > (700.0 if x.wide else 80.0)
    return exp(select(far, x - part, x)) * select(far, x.like(factor), 0.5)


def sinh(x: MathValue) -> MathValue:
    size = abs(x)
    t = expm1(size)
    small = (t + t / (t + 1.0)) * 0.5
    return copysign_of(select(size < 20.0, small, _half_exponential(size)), x)


def copysign_of(magnitude: MathValue, sign: MathValue) -> MathValue:
    """The magnitude with the sign; NaN stays."""
    return magnitude.apply("copysign", sign)


def cosh(x: MathValue) -> MathValue:
    half = _half_exponential(abs(x))
    return half + 0.25 / half


def asinh(x: MathValue) -> MathValue:
    size = abs(x)
    square = size * size
    near = log1p(size + square / (sqrt(square + 1.0) + 1.0))
    return copysign_of(
        select(size > (2.0**28 if x.wide else 2.0**14), log(size) + math.log(2), near), x
    )


def acosh(x: MathValue) -> MathValue:
    t = x - 1.0
    near = log1p(t + sqrt(t * 2.0 + t * t))
    value = select(x > (2.0**28 if x.wide else 2.0**14), log(x) + math.log(2), near)
    # Below 1 the root is of a negative number only from -1 on, and far below rounding and overflow
    # take over.
    return select(x < 1.0, NAN, value)


def atanh(x: MathValue) -> MathValue:
    size = abs(x)
    return copysign_of(log1p(size * 2.0 / (1.0 - size)) * 0.5, x)


# -- trigonometric functions and their inverses ----------------------------------------------------


def tan(x: MathValue) -> MathValue:
    return select(x.equals(0.0), x, x.apply("sin") / x.apply("cos"))


def _turns(x: MathValue) -> tuple[MathValue, MathValue]:
    """(r, k): x = r + k/2 modulo 2, |r| <= 1/4, k in 0..3 as i32, of a finite x."""
    reduced = x - (x * 0.5).apply("round_even") * 2.0
    quarter = (reduced * 2.0).apply("round_even")
    return reduced - quarter * 0.5, quarter.cast(ir_types.I32) & 3


def _of_turns(x: MathValue, shift: int) -> MathValue:
    r, k = _turns(x)
    k = (k + shift) & 3
    angle = r * math.pi
    value = select((k & 1).equals(1), angle.apply("cos"), angle.apply("sin"))
    value = select((k & 2).equals(2), -value, value)
    return select(abs(x) < INFINITY, value, NAN)


def sinpi(x: MathValue) -> MathValue:
    whole = x.apply("trunc").equals(x) & (abs(x) < INFINITY)
    return select(whole, copysign(0.0, x), _of_turns(x, 0))


def cospi(x: MathValue) -> MathValue:
    size = abs(x)
    # Exact from 1/4 to where all numbers are whole; of a negative x the difference would be
    # rounded.
    half = size - 0.5
    return select(
        (half.apply("trunc").equals(half)) & (size < 2.0 ** (52 if x.wide else 23)),
        0.0,
        _of_turns(x, 1),
    )


def atan(x: MathValue) -> MathValue:
    """The arc tangent: range reduction, then the Taylor series.

    Above 1 the argument is 1/x; the nearest of 0, 1/4 ... 1 is subtracted.
    """
    size = abs(x)
    large = size > 1.0
    t = select(large, 1.0 / size, size)
    quarters = (t * 4.0).apply("round_even")
    c = quarters * 0.25
    r = (t - c) / fma(t, c, 1.0)
    z = r * r
    series = fma(
        r * z, polynomial(z, [(-1) ** (n + 1) / (2 * n + 3) for n in range(9 if x.wide else 4)]), r
    )
    offset, offset_low = t.like(0.0), t.like(0.0)
    for k, text in enumerate(_ATAN_QUARTERS, 1):
        high, low = constant_pair(x, text)
        chosen = quarters.equals(float(k))
        offset, offset_low = select(chosen, high, offset), select(chosen, low, offset_low)
    near = offset + (series + offset_low)
    high, low = constant_pair(x, _HALF_PI)
    shifted = (high - offset) + ((low - offset_low) - series)
    return copysign_of(select(large, shifted, near), x)


#: atan(1/4), atan(1/2), atan(3/4), atan(1), and pi/2
_ATAN_QUARTERS = (
    "0.2449786631268641541720824812112758109141440983811840671273759",
    "0.4636476090008061162142562314612144020285370542861202638109331",
    "0.6435011087932843868028092287173226380415105911153123828656112",
    "0.7853981633974483096156608458198757210492923498437764552437361",
)
_HALF_PI = "1.5707963267948966192313216916397514420985846996875529104874723"
_PI = "3.1415926535897932384626433832795028841971693993751058209749446"


def atan2(y: MathValue, x: MathValue) -> MathValue:
    """The angle of the point (x, y); special cases as in C's Annex F."""
    a, b = abs(y), abs(x)
    swap = a > b
    top, bottom = select(swap, b, a), select(swap, a, b)
    ratio = top / bottom
    ratio = select(bottom.equals(0.0), 0.0, ratio)
    ratio = select(top.equals(INFINITY), 1.0, ratio)
    angle = atan(ratio)
    half, half_low = constant_pair(x, _HALF_PI)
    whole, whole_low = constant_pair(x, _PI)
    angle = select(swap, (half - angle) + half_low, angle)
    angle = select(copysign(1.0, x) < 0.0, (whole - angle) + whole_low, angle)
    return select(is_nan(x) | is_nan(y), x + y, copysign_of(angle, y))


def asin(x: MathValue) -> MathValue:
    return atan2(x, sqrt((1.0 - x) * (x + 1.0)))


def acos(x: MathValue) -> MathValue:
    return atan2(sqrt((1.0 - x) * (x + 1.0)), x)


# -- roots and norms -------------------------------------------------------------------------------


def cbrt(x: MathValue) -> MathValue:
    """The cube root.

    Two steps of Halley's method from a line compute it for m in [1/2, 2) times 2**(0..2); the rest
    is in the exponent.
    """
    size = abs(x)
    ordinary = (size > 0.0) & (size < INFINITY)
    m, e = split(select(ordinary, size, 1.0))
    third = (e * (1.0 / 3.0)).apply("floor")
    a = m * select(
        (e - third * 3.0).equals(0.0),
        m.like(1.0),
        select((e - third * 3.0).equals(1.0), m.like(2.0), 4.0),
    )
    t = fma(a, 0.1875, 0.83)
    for _ in range(3 if x.wide else 2):
        cube = t * t * t
        t = t * ((cube + a * 2.0) / (cube * 2.0 + a))
    t = t - (t * t * t - a) / (t * t * 3.0)
    return copysign_of(select(ordinary, t.ldexp(third.cast(ir_types.I32)), size), x)


def rcbrt(x: MathValue) -> MathValue:
    return 1.0 / cbrt(x)


def _root_and_scale(parts: tuple[MathValue, ...]) -> tuple[MathValue, MathValue, MathValue]:
    """Return (r, s, the largest part): the length of a vector is r times s.

    s is a power of two, so that no square overflows. The parts must be finite and not all 0.
    """
    sizes = [abs(part) for part in parts]
    largest = sizes[0]
    for size in sizes[1:]:
        largest = select(size > largest, size, largest)
    usable = (largest > 0.0) & (largest < INFINITY)
    # A power of two, so that the division is exact.
    exponent = select(usable, largest, 1.0).bits() & (
        0x7FF0000000000000 if parts[0].wide else 0x7F800000
    )
    scale = exponent.bitcast(parts[0].element)
    scale = select(scale.equals(0.0), 2.0 ** (-1022 if parts[0].wide else -126), scale)
    total = parts[0].like(0.0)
    for size in sizes:
        scaled = size / scale
        total = fma(scaled, scaled, total)
    return sqrt(total), scale, largest


def _with_specials(value: MathValue, parts: tuple[MathValue, ...], infinite: float) -> MathValue:
    """Return ``value``, NaN where a part is, and ``infinite`` where a part is infinite."""
    for part in parts:
        value = select(is_nan(part), NAN, value)
    for part in parts:
        value = select(abs(part).equals(INFINITY), infinite, value)
    return value


def norm(*parts: MathValue) -> MathValue:
    """The length of a vector, scaled so that nothing overflows; infinite where any part is."""
    root, scale, largest = _root_and_scale(parts)
    return _with_specials(select(largest.equals(0.0), 0.0, root * scale), parts, INFINITY)


def reciprocal_norm(*parts: MathValue) -> MathValue:
    """1 over the length of a vector, also where the length itself is out of range."""
    root, scale, largest = _root_and_scale(parts)
    return _with_specials(select(largest.equals(0.0), INFINITY, (1.0 / root) / scale), parts, 0.0)


FUNCTIONS: dict[str, Any] = {
    name: function(name, parameters, meaning, body)
    for name, parameters, meaning, body in (
        ("pow", "x y", "``x`` to the ``y``, of floats; within 2 ULP.", power),
        ("expm1", "x", "``exp(x) - 1``, accurate also near 0.", expm1),
        ("log1p", "x", "``log(1 + x)``, accurate also near 0.", log1p),
        ("log10", "x", "The logarithm to base 10.", log10),
        ("exp10", "x", "10 to the ``x``.", exp10),
        ("sinh", "x", "The hyperbolic sine.", sinh),
        ("cosh", "x", "The hyperbolic cosine.", cosh),
        ("asinh", "x", "The inverse hyperbolic sine.", asinh),
        ("acosh", "x", "The inverse hyperbolic cosine.", acosh),
        ("atanh", "x", "The inverse hyperbolic tangent.", atanh),
        ("tan", "x", "The tangent of ``x`` radians.", tan),
        ("sinpi", "x", "The sine of ``x`` half turns.", sinpi),
        ("cospi", "x", "The cosine of ``x`` half turns.", cospi),
        ("atan", "x", "The arc tangent, in radians.", atan),
        (
            "atan2",
            "x y",
            "The angle of the point (``y``, ``x``): the arc tangent of ``x / y``, in radians.",
            atan2,
        ),
        ("asin", "x", "The arc sine, in radians.", asin),
        ("acos", "x", "The arc cosine, in radians.", acos),
        ("cbrt", "x", "The cube root.", cbrt),
        ("rcbrt", "x", "1 over the cube root.", rcbrt),
        ("hypot", "x y", "``sqrt(x*x + y*y)`` without overflow.", norm),
        ("rhypot", "x y", "``1 / sqrt(x*x + y*y)`` without overflow.", reciprocal_norm),
        ("norm3d", "x y z", "The length of a vector of three.", norm),
        ("rnorm3d", "x y z", "1 over the length of a vector of three.", reciprocal_norm),
        ("norm4d", "x y z w", "The length of a vector of four.", norm),
        ("rnorm4d", "x y z w", "1 over the length of a vector of four.", reciprocal_norm),
    )
}
