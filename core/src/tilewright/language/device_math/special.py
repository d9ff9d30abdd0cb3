"""The error function's relatives, the gamma function, and Bessel functions of orders 0 and 1.

fp32 is computed in fp64.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir.expressions import fma, select
from tilewright.language.device_math.coefficients import SERIES
from tilewright.language.device_math.elementary import (
    constant_pair,
    copysign_of,
    exp,
    is_nan,
    log,
    power,
    sinpi,
    sqrt,
)
from tilewright.language.device_math.numbers import (
    INFINITY,
    NAN,
    MathValue,
    chebyshev,
    function,
    polynomial,
)

# -- error function --------------------------------------------------------------------------------


def _erfcx_positive(x: MathValue) -> MathValue:
    """exp(x*x) erfc(x) for x >= 0: a series in (x - 3.75) / (x + 3.75), over 1 + 2x.

    M. Shepherd and J. Laframboise, 1981.
    """
    t = select(x.equals(INFINITY), 1.0, (x - 3.75) / (x + 3.75))
    # Halves of both: 2x overflows where the quotient is subnormal.
    return chebyshev(t, SERIES["erfcx"]) * 0.5 / (x + 0.5)


def _exp_of_square(x: MathValue, sign: float) -> MathValue:
    """exp(sign * x * x), the square in two floats."""
    square = x * x
    error = select(square < INFINITY, fma(x, x, -square), 0.0)
    value = exp(square * sign)
    return select(value < INFINITY, fma(value, error * sign, value), value)


def _erfc_far(size: MathValue) -> MathValue:
    return _exp_of_square(size, -1.0) * _erfcx_positive(size)


def erfc(x: MathValue) -> MathValue:
    size = abs(x)
    tail = _erfc_far(size)
    return select(size < 0.5, 1.0 - x.apply("erf"), select(x < 0.0, 2.0 - tail, tail))


def erfcx(x: MathValue) -> MathValue:
    size = abs(x)
    tail = _erfcx_positive(size)
    return select(x < 0.0, _exp_of_square(size, 1.0) * 2.0 - tail, tail)


def _slope(y: MathValue) -> MathValue:
    """The derivative of erf."""
    return _exp_of_square(y, -1.0) * (2 / math.sqrt(math.pi))


def _tail_inverse(q: MathValue) -> MathValue:
    """The y with erfc(y) = q for q up to 1/2.

    It is S. Winitzki's formula, with Newton's method on the logarithm, and Halley's at the end.

    Where q is so small that exp(-y*y) would be subnormal, q and the exponential are both multiplied
    by a power of two.
    """
    scale = select(q < 2.0**-900, q.like(2.0**200), 1.0)
    logarithm = log(q * (2.0 - q))
    half = logarithm * 0.5 + 2 / (math.pi * 0.147)
    y = sqrt(sqrt(half * half - logarithm * (1 / 0.147)) - half)
    q = q * scale
    for _ in range(2):
        reduced = _erfcx_positive(y)
        y = y + log(_scaled_exp_of_square(y, scale) * reduced / q) * reduced * (
            math.sqrt(math.pi) / 2
        )
    exponential = _scaled_exp_of_square(y, scale)
    ratio = (exponential * _erfcx_positive(y) - q) / (exponential * (2 / math.sqrt(math.pi)))
    return y + ratio / (1.0 - ratio * y)


def _scaled_exp_of_square(x: MathValue, scale: MathValue) -> MathValue:
    """exp(-x * x) times a scale: of half the square, twice, so that neither is out of range."""
    square = x * x
    root = exp(square * -0.5)
    value = root * (root * scale)
    return fma(value, -fma(x, x, -square), value)


def _middle_inverse(t: MathValue) -> MathValue:
    """The y with erf(y) = t for t from 0 to 1/2: the Taylor series, then Halley's method."""
    y = t * polynomial(
        t * t,
        [
            0.886226925452758,
            0.2320136665346544,
            0.12755617530559793,
            0.0865521292415474,
            0.06495961774538539,
        ],
    )
    start = y
    for _ in range(2):
        ratio = (y.apply("erf") - t) / _slope(y)
        y = y - ratio / (ratio * y + 1.0)
    return select(t < 1e-20, start, y)


def erfcinv(q: MathValue) -> MathValue:
    """Through erf where q is within 1/2 of 1, through erfc elsewhere; a q above 1 is mirrored.

    Both differences are exact.
    """
    mirrored = q > 1.0
    small = select(mirrored, 2.0 - q, q)
    central = small >= 0.5
    y = select(
        central,
        _middle_inverse(select(central, 1.0 - small, 0.0)),
        _tail_inverse(select(central | (small <= 0.0), 0.5, small)),
    )
    y = select(small.equals(0.0), INFINITY, y)
    return select((small < 0.0) | is_nan(q), NAN, select(mirrored, -y, y))


def erfinv(x: MathValue) -> MathValue:
    """As :func:`erfcinv`, of 1 - x."""
    size = abs(x)
    central = size <= 0.5
    far = _tail_inverse(select(central | (size >= 1.0), 0.5, 1.0 - size))
    y = select(central, _middle_inverse(select(central, size, 0.0)), far)
    y = select(size.equals(1.0), INFINITY, y)
    return copysign_of(select((size > 1.0) | is_nan(x), NAN, y), x)


def normcdf(x: MathValue) -> MathValue:
    """erfc(-x / sqrt 2) / 2, corrected for the rounding of the argument."""
    high, low = constant_pair(
        x, "0.70710678118654752440084436210484903928483593768847403658833986899536623923105"
    )
    t = -x * high
    error = -(fma(x, high, t) + x * low)
    value = erfc(t)
    slope = select(abs(t) < 40.0, _exp_of_square(t, -1.0) * (-2 / math.sqrt(math.pi)) * error, 0.0)
    return (value + slope) * 0.5


def normcdfinv(p: MathValue) -> MathValue:
    value = erfcinv(p * 2.0) * -math.sqrt(2)
    return select(p.equals(0.5), 0.0, value)


# -- gamma -----------------------------------------------------------------------------------------

#: B(2n) / (2n (2n - 1)): the terms of Stirling's series
_STIRLING = [
    1 / 12,
    -1 / 360,
    1 / 1260,
    -1 / 1680,
    1 / 1188,
    -691 / 360360,
    1 / 156,
    -3617 / 122400,
]


def _stirling(x: MathValue) -> MathValue:
    """lgamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2) for x >= 8."""
    inverse = 1.0 / x
    return inverse * polynomial(inverse * inverse, _STIRLING)


def _down(x: MathValue) -> tuple[MathValue, MathValue]:
    """(y, p) with gamma(x) = p gamma(y) and y in [1/2, 5/2], for x from 1/2 to 14."""
    factor = x.like(1.0)
    for _ in range(12):
        above = x > 2.5
        lower = x - 1.0
        factor = select(above, factor * lower, factor)
        x = select(above, lower, x)
    return x, factor


def _near_lgamma(y: MathValue) -> MathValue:
    return (y - 1.0) * (y - 2.0) * chebyshev(y - 1.5, SERIES["lgamma"])


def _lgamma_of_size(x: MathValue) -> MathValue:
    """lgamma(|x|); for |x| < 1/2 lgamma(x) itself, as lgamma(1 + x) - log |x|."""
    size = abs(x)
    tiny = size < 0.5
    middle = select(tiny, x + 1.0, select(size < 9.0, size, 1.0))
    y, factor = _down(middle)
    near = _near_lgamma(y)
    near = select(tiny, near - log(size), near + select(factor.equals(1.0), 0.0, log(factor)))
    far_x = select(size < 9.0, 9.0, size)
    far = (far_x - 0.5) * (log(far_x) - 1.0) + (
        0.5 * math.log(2 * math.pi) - 0.5 + _stirling(far_x)
    )
    return select(size < 9.0, near, select(size.equals(INFINITY), INFINITY, far))


def lgamma(x: MathValue) -> MathValue:
    """log |gamma(x)|; from -1/2 down by reflection."""
    size = abs(x)
    positive = _lgamma_of_size(x)
    sine = abs(sinpi(x))
    reflected = math.log(math.pi) - log(size * sine) - positive
    value = select(x <= -0.5, reflected, positive)
    value = select(sine.equals(0.0) & (x <= 0.0), INFINITY, value)
    value = select(size.equals(INFINITY), INFINITY, value)
    return select(is_nan(x), x, value)


def tgamma(x: MathValue) -> MathValue:
    """gamma(x): by its recurrence, by Stirling's formula, or by reflection.

    The recurrence starts from [1/2, 5/2], reflection is used from -1/2 down, Stirling's formula for
    large x.
    """
    size = abs(x)
    tiny = size < 0.5
    y, factor = _down(select(tiny, x + 1.0, select(size < 14.0, size, 1.0)))
    near = factor * exp(_near_lgamma(y))
    near = select(tiny, near / x, near)
    far_x = select(size < 14.0, 14.0, select(size > 190.0, 190.0, size))
    # The power in two halves, since gamma(171) is in range and 171**170.5 is not; and the
    # reciprocal is even where gamma itself is out of range.
    half = power(far_x, fma(far_x, 0.5, -0.25))
    rest = exp(-far_x) * half * (math.sqrt(2 * math.pi) * exp(_stirling(far_x)))
    close = size < 14.0
    positive = select(close, near, select(size > 172.0, INFINITY, half * rest))
    # gamma(-x) gamma(x) = -pi / (x sin(pi x)) for x > 0, and sine is that of -x
    reflected = (math.pi / (size * sinpi(x))) / select(close, near, rest) / select(close, 1.0, half)
    value = select(x <= -0.5, reflected, positive)
    value = select((x < 0.0) & (x.apply("trunc").equals(x)), NAN, value)
    value = select(x.equals(0.0), copysign_of(x.like(INFINITY), x), value)
    return select(x.equals(INFINITY) | is_nan(x), x, value)


# -- Bessel functions ------------------------------------------------------------------------------


def _phases(x: MathValue, order: int, shift: float) -> MathValue:
    """sqrt(2 / (pi x)) (P cos c - Q sin c) with c = x - shift * pi/4, for x > 8.

    Y is the same with the shift greater by 2.
    """
    w = 8.0 / x
    t = fma(w * w, 2.0, -1.0)
    p, q = chebyshev(t, SERIES[f"p{order}"]), chebyshev(t, SERIES[f"q{order}"]) * w
    # cos(x - a) and sin(x - a) from those of x: no rounding of the difference.
    cosine, sine = x.apply("cos"), x.apply("sin")
    ca, sa = math.cos(shift * math.pi / 4), math.sin(shift * math.pi / 4)
    c, s = cosine * ca + sine * sa, sine * ca - cosine * sa
    return sqrt((2 / math.pi) / x) * (p * c - q * s)


def _bessel_j(x: MathValue, order: int) -> MathValue:
    size = abs(x)
    inner = select(size < 8.0, size, 8.0)
    near = chebyshev(fma(inner * inner, 1 / 32, -1.0), SERIES[f"j{order}"])
    if order == 1:
        near = near * inner
    value = select(size < 8.0, near, _phases(select(size < 8.0, 8.0, size), order, 1.0 + 2 * order))
    value = select(size.equals(INFINITY), 0.0, value)
    value = select(is_nan(x), x, value)
    return select(x.like(1.0).apply("copysign", x) < 0.0, -value, value) if order == 1 else value


def _bessel_y(x: MathValue, order: int) -> MathValue:
    inner = select(x < 8.0, x, 8.0)
    t = fma(inner * inner, 1 / 32, -1.0)
    j, rest = chebyshev(t, SERIES[f"j{order}"]), chebyshev(t, SERIES[f"y{order}"])
    if order == 0:
        near = fma(log(inner) * (2 / math.pi), j, rest)
    else:
        near = fma(log(inner) * (2 / math.pi), j * inner, rest * inner) - (2 / math.pi) / inner
    value = select(x < 8.0, near, _phases(select(x < 8.0, 8.0, x), order, 3.0 + 2 * order))
    value = select(x.equals(INFINITY), 0.0, value)
    value = select(x.equals(0.0), -INFINITY, value)
    return select((x < 0.0) | is_nan(x), NAN, value)


def _bessel_i(x: MathValue, order: int) -> MathValue:
    size = abs(x)
    inner, outer = select(size < 8.0, size, 8.0), select(size < 8.0, 8.0, size)
    near = chebyshev(fma(inner, 0.25, -1.0), SERIES[f"i{order}"])
    if order == 1:
        near = near * inner / (inner + 1.0)
    far = chebyshev(16.0 / outer - 1.0, SERIES[f"i{order}_far"]) / sqrt(outer)
    half = exp(size * 0.5)
    value = select(size < 8.0, near * exp(size), far * half * half)
    value = select(size.equals(INFINITY), INFINITY, value)
    value = select(is_nan(x), x, value)
    return select(x.like(1.0).apply("copysign", x) < 0.0, -value, value) if order == 1 else value


FUNCTIONS: dict[str, Any] = {
    name: function(name, "x", meaning, body, through_f64=True)
    for name, meaning, body in (
        ("erfc", "1 minus the error function, accurate also for small results.", erfc),
        ("erfcx", "``exp(x*x) * erfc(x)``.", erfcx),
        ("erfinv", "The inverse of the error function.", erfinv),
        ("erfcinv", "The inverse of ``erfc``.", erfcinv),
        ("normcdf", "The probability that a standard normal variable is at most ``x``.", normcdf),
        ("normcdfinv", "The inverse of ``normcdf``.", normcdfinv),
        ("lgamma", "The logarithm of the absolute value of the gamma function.", lgamma),
        ("tgamma", "The gamma function.", tgamma),
        ("j0", "The Bessel function of the first kind of order 0.", lambda x: _bessel_j(x, 0)),
        ("j1", "The Bessel function of the first kind of order 1.", lambda x: _bessel_j(x, 1)),
        ("y0", "The Bessel function of the second kind of order 0.", lambda x: _bessel_y(x, 0)),
        ("y1", "The Bessel function of the second kind of order 1.", lambda x: _bessel_y(x, 1)),
        (
            "cyl_bessel_i0",
            "The modified Bessel function of the first kind of order 0.",
            lambda x: _bessel_i(x, 0),
        ),
        (
            "cyl_bessel_i1",
            "The modified Bessel function of the first kind of order 1.",
            lambda x: _bessel_i(x, 1),
        ),
    )
}
