"""Exact values of the functions of floats, in arithmetic of arbitrary precision (needs mpmath)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]

#: Bits that are computed with: twice those of f64, and what the functions below may lose.
PRECISION = 220
#: Beyond this an exponential is zero or infinity in every format.
_FAR = 20000


def _bounded(x: Any) -> Any:
    return mp.mpf(max(min(x, _FAR), -_FAR))


def _sinpi(x: Any) -> Any:
    return mp.sinpi(x - 2 * mp.floor(x / 2 + mp.mpf(0.25)))


def _cospi(x: Any) -> Any:
    return mp.cospi(x - 2 * mp.floor(x / 2 + mp.mpf(0.25)))


def _acosh(x: Any) -> Any:
    """log1p(t + sqrt(t (t + 2))) with t = x - 1: nothing cancels near 1."""
    t = x - 1
    return mp.log1p(t + mp.sqrt(t * (t + 2)))


def _erfc(x: Any) -> Any:
    if x > 200:
        return mp.mpf(0)
    return mp.mpf(2) if x < -200 else mp.erfc(x)


def _erfcx(x: Any) -> Any:
    if x > 1e15:
        return (1 - 1 / (2 * x * x)) / (x * mp.sqrt(mp.pi))
    if x < -40:
        return mp.inf
    with mp.workprec(PRECISION + 60):
        return mp.exp(x * x) * mp.erfc(x) if x < 60 else _laplace(x)


def _laplace(x: Any) -> Any:
    """P. Laplace's continued fraction."""
    fraction = x
    for k in range(80, 0, -1):
        fraction = x + mp.mpf(k) / 2 / fraction
    return 1 / (mp.sqrt(mp.pi) * fraction)


def _erfcinv(q: Any) -> Any:
    """Newton's method on the logarithm of erfc, from double precision."""
    if q > 1:
        return -_erfcinv(2 - q)
    if q > 0.5:
        return mp.erfinv(1 - q)
    y = mp.sqrt(-mp.log(q * mp.sqrt(mp.pi) * mp.sqrt(max(-mp.log(q), mp.mpf(0.4)))))
    for _ in range(60):
        value = mp.erfc(y)
        step = mp.log(value / q) * value * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step
        if abs(step) < abs(y) * mp.mpf(2) ** -110:
            break
    return y


def _erfinv(x: Any) -> Any:
    if abs(x) <= 0.5:
        if abs(x) < 1e-40:
            return x * mp.sqrt(mp.pi) / 2
        return mp.erfinv(x)
    return mp.sign(x) * _erfcinv(1 - abs(x))


def _normcdf(x: Any) -> Any:
    return _erfc(-x / mp.sqrt(2)) / 2


def _lgamma(x: Any) -> Any:
    if x <= 0:
        return mp.log(mp.pi / abs(x * _sinpi(x))) - mp.loggamma(-x)
    if x > 1e30:
        return x * (mp.log(x) - 1) - mp.log(x) / 2 + mp.log(2 * mp.pi) / 2
    return mp.loggamma(x)


def _tgamma(x: Any) -> Any:
    if x > 200:
        return mp.inf
    if x < -200:
        return mp.mpf(2) ** -5000 * (-1 if mp.floor(x) % 2 else 1)  # mpmath has no negative zero
    return mp.gamma(x)


def _bessel(kind: Callable[..., Any], order: int) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        if abs(x) > 1e6:
            return _hankel(kind, order, x)
        return kind(order, x)

    return function


def _hankel(kind: Callable[..., Any], order: int, x: Any) -> Any:
    """H. Hankel's expansion, whose terms fall fast out here."""
    sign = -1 if x < 0 and order % 2 else 1
    x = abs(x)
    totals, term = [mp.mpf(0), mp.mpf(0)], mp.mpf(1)
    for k in range(1, 60):
        totals[(k - 1) % 2] += term * (1 - (k - 1) // 2 % 2 * 2)
        term *= (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
    with mp.workprec(PRECISION + max(0, int(mp.log(x, 2)))):
        angle = x - (2 * order + 1) * mp.pi / 4
        sine, cosine = mp.sin(angle), mp.cos(angle)
    size = mp.sqrt(2 / (mp.pi * x))
    if kind is mp.besselj:
        return sign * size * (totals[0] * cosine - totals[1] * sine)
    return size * (totals[0] * sine + totals[1] * cosine)


def _bessel_i(order: int) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        if abs(x) > 800:
            return mp.inf if x > 0 or order == 0 else -mp.inf
        return mp.besseli(order, x)

    return function


def _power(x: Any, y: Any) -> Any:
    """x to the y, for an integer y where x is below 0."""
    size = mp.exp(_bounded(y * mp.log(abs(x)))) if abs(x) != 1 else mp.mpf(1)
    return -size if x < 0 and y % 2 == 1 else size


def _atan2(y: Any, x: Any) -> Any:
    return mp.atan2(y, x)


def _length(*parts: Any) -> Any:
    with mp.workprec(5000):
        return mp.sqrt(sum(part * part for part in parts))


def _trigonometric(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def reduced(x: Any) -> Any:
        with mp.workprec(PRECISION + 1100 if abs(x) > 1e10 else PRECISION + 60):
            return function(x)

    return reduced


#: name -> the function of finite numbers, inside its domain
EXACT: dict[str, Callable[..., Any]] = {
    "exp": lambda x: mp.exp(_bounded(x)),
    "exp2": lambda x: mp.mpf(2) ** _bounded(x),
    "exp10": lambda x: mp.mpf(10) ** _bounded(x),
    "expm1": lambda x: mp.expm1(_bounded(x)),
    "log": mp.log,
    "log2": lambda x: mp.log(x, 2),
    "log10": lambda x: mp.log(x, 10),
    "log1p": mp.log1p,
    "sin": _trigonometric(mp.sin),
    "cos": _trigonometric(mp.cos),
    "tan": _trigonometric(mp.tan),
    "sinpi": _sinpi,
    "cospi": _cospi,
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "sinh": lambda x: mp.sinh(_bounded(x)),
    "cosh": lambda x: mp.cosh(_bounded(x)),
    "tanh": lambda x: mp.tanh(_bounded(x)),
    "asinh": mp.asinh,
    "acosh": _acosh,
    "atanh": mp.atanh,
    "sqrt": mp.sqrt,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "rcbrt": lambda x: mp.sign(x) / mp.cbrt(abs(x)),
    "erf": mp.erf,
    "erfc": _erfc,
    "erfcx": _erfcx,
    "erfinv": _erfinv,
    "erfcinv": _erfcinv,
    "normcdf": _normcdf,
    "normcdfinv": lambda p: -mp.sqrt(2) * _erfcinv(2 * p),
    "lgamma": _lgamma,
    "tgamma": _tgamma,
    "j0": _bessel(mp.besselj, 0),
    "j1": _bessel(mp.besselj, 1),
    "y0": _bessel(mp.bessely, 0),
    "y1": _bessel(mp.bessely, 1),
    "cyl_bessel_i0": _bessel_i(0),
    "cyl_bessel_i1": _bessel_i(1),
    "pow": _power,
    "atan2": _atan2,
    "length": _length,
    "reciprocal_length": lambda *parts: 1 / _length(*parts),
}


def exact(name: str, *numbers: float) -> Any:
    """The function of finite numbers as an arbitrary-precision number."""
    with mp.workprec(PRECISION):
        return EXACT[name](*map(mp.mpf, numbers))


#: name -> where a function of one number has a finite value; everywhere where it is not named
INSIDE: dict[str, Callable[[float], bool]] = {
    **dict.fromkeys(("log", "log2", "log10", "rsqrt", "y0", "y1"), lambda x: x > 0),
    **dict.fromkeys(("asin", "acos"), lambda x: abs(x) <= 1),
    **dict.fromkeys(("atanh", "erfinv"), lambda x: abs(x) < 1),
    **dict.fromkeys(("lgamma", "tgamma"), lambda x: x > 0 or x != math.floor(x)),
    "log1p": lambda x: x > -1,
    "acosh": lambda x: x >= 1,
    "sqrt": lambda x: x >= 0,
    "rcbrt": lambda x: x != 0,
    "erfcinv": lambda x: 0 < x < 2,
    "normcdfinv": lambda x: 0 < x < 1,
}
#: Where it has none it is NaN, but here.
POLES: dict[str, Callable[[float], bool]] = {
    **dict.fromkeys(
        ("log", "log2", "log10", "rsqrt", "rcbrt", "y0", "y1", "tgamma"), lambda x: x == 0
    ),
    **dict.fromkeys(("atanh", "erfinv"), lambda x: abs(x) == 1),
    "lgamma": lambda x: True,
    "log1p": lambda x: x == -1,
    "erfcinv": lambda x: x in (0, 2),
    "normcdfinv": lambda x: x in (0, 1),
}
#: Odd functions, whose zero has the sign of its argument.
ODD = {
    *("sin", "tan", "sinpi", "asin", "atan", "sinh", "tanh", "asinh", "atanh"),
    *("expm1", "log1p", "cbrt", "sqrt", "erf", "erfinv", "j1", "cyl_bessel_i1"),
}


def size(name: str, x: float, wanted: Any) -> Any:
    """The number that errors of a value are relative to.

    It is the value itself, but where the function oscillates between zeros or is a difference, the
    magnitude of the numbers around it.
    """
    if name in ("j0", "j1", "y0", "y1") and abs(x) > 0.5:
        return max(abs(wanted), 1 / mp.sqrt(abs(mp.mpf(x))))
    if name == "lgamma" and x <= -0.5:
        return max(abs(wanted), abs(exact(name, -x)), 1)
    return wanted


def error(found: float, wanted: Any, mantissa: int, bias: int, of: Any = None) -> float:
    """The error of ``found`` in units in the last place of ``of``, or of the exact value.

    An infinity counts as the number after the maximum.
    """
    limit = mp.mpf(2) ** (bias + 1)
    with mp.workprec(PRECISION):
        if mp.isinf(wanted) or abs(wanted) >= limit:
            wanted = mp.sign(wanted) * limit
        if found != found:
            return math.inf
        shown = mp.mpf(found) if math.isfinite(found) else mp.sign(found) * limit
        of = wanted if of is None else of
        exponent = 1 - bias if of == 0 else min(max(mp.mag(of) - 1, 1 - bias), bias)
        return float(abs(shown - wanted) / mp.mpf(2) ** (exponent - mantissa))
