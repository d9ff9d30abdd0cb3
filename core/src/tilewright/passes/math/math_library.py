"""The math functions of the IR, written in its elementary operations, so that every backend
computes the same.

Each is a scalar function of arithmetic, comparisons and bit operations, without regions: a backend
evaluates it on whatever it calls a vector, or lets
:func:`tilewright.passes.expand_math.expand_math` inline it. Special values follow IEEE 754 and C's
Annex F: infinities, NaN, signed zeros, subnormals in and out, overflow to infinity and underflow
through the subnormals to zero.

The arithmetic must not be reassociated or contracted: fusions that pay are written as ``fma``.
Polynomials were fitted by ``core/tools/fit_math.py``. :data:`MATH` states each function's error.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir.core import Function
from tilewright.ir.expressions import Number, fma, select
from tilewright.ir.types import F32, F64, I32, FloatType, IntType
from tilewright.passes.math.math_casts import cast_function
from tilewright.passes.math.math_coefficients import COEFFICIENTS
from tilewright.passes.math.math_expressions import (
    Scope,
    at_most,
    clamp,
    estrin,
    horner,
    split_constant,
)
from tilewright.passes.math.math_trigonometry import FAST_LIMIT, sine_or_cosine


@dataclass(frozen=True, slots=True)
class MathRow:
    """One function for one element type.

    Attributes:
        strict_ulp: the error of the function here, at most, in units in the last place of the exact
            result.
        relaxed_ulp: the error a backend's own instruction may have where accuracy is relaxed; of
            exp it grows with |x| (3 + 1.173 |x|), and this is the largest.
        source: the method.
        fast_limit: where not None, ``math_function(..., full_range=False)`` is a shorter function
            within the same bound for |x| up to this (and infinities and NaN). A backend that can
            branch cheaply evaluates that one, and the other only where some |x| is beyond.
    """

    strict_ulp: float
    relaxed_ulp: float
    source: str
    fast_limit: float | None = None


_LN2 = (
    "0.69314718055994530941723212145817656807550013436025"
    "5254120680009493393621969694715605863326996418687"
)
_LOG2E = (
    "1.44269504088896340735992468100189213742664595415298"
    "5934135449406931109219181185079885526622893506344"
)

#: f32 and f64: (1.5 * 2**mantissa: adding it rounds to an integer in the low bits; ln 2 in two
#: pieces, the first short so that its products are exact)
_MAGIC = {F32: 1.5 * 2.0**23, F64: 1.5 * 2.0**52}
_LN2_HIGH = {F32: 0.693145751953125, F64: math.ldexp(math.floor(math.ldexp(math.log(2), 42)), -42)}


#: Lower bound of exponents where one instruction scales by any power of two. Near the subnormal
#: numbers that instruction takes 17 times as long on Intel's processors: exponentials of -inf,
#: which masks make, stay far from there.
_FAR_BELOW = -10000.0


def _float_type(x: Number) -> FloatType:
    assert isinstance(x.element, FloatType)
    return x.element


def _coefficients(name: str, element: FloatType) -> tuple[float, ...]:
    return COEFFICIENTS[name, str(element)]


def _polynomial(name: str, x: Number) -> Number:
    coefficients = _coefficients(name, _float_type(x))
    return estrin(coefficients, x) if len(coefficients) > 8 else horner(coefficients, x)


def _nearest_integer(x: Number, factor: float) -> tuple[Number, Number]:
    """round(x * factor) as a float and as the low 32 bits of an integer, for magnitudes far below
    2**mantissa. NaN yields NaN and any integer: a cast would be undefined there."""
    element = _float_type(x)
    magic = _MAGIC[element]
    shifted = x + magic if factor == 1.0 else fma(x, factor, magic)
    bits = shifted.bits()
    base = bits.like(_encoding(magic, element))
    return shifted - magic, (bits - base).cast(I32)


def _encoding(value: float, element: FloatType) -> int:
    import struct

    return int.from_bytes(struct.pack("<f" if element is F32 else "<d", value), "little")


def _power_of_two(exponent: Number, element: FloatType) -> Number:
    """2**exponent for exponents of normal numbers."""
    biased = (exponent + element.bias).cast(IntType(element.bits))
    return (biased << element.mantissa).bitcast(element)


def _scale(x: Number, exponent: Number, native: bool) -> Number:
    """x * 2**exponent rounded once, for normal x near 1 and exponents that at most halve out of
    range."""
    if native:
        return x.ldexp(exponent)
    element = _float_type(x)
    half = exponent >> 1
    return x * _power_of_two(half, element) * _power_of_two(exponent - half, element)


def _exp_parts(x: Number) -> tuple[Number, Number]:
    """(p, k) with exp(x) = p * 2**k and p near 1, for |x| where k fits."""
    element = _float_type(x)
    n, k = _nearest_integer(x, 1 / math.log(2))
    high = _LN2_HIGH[element]
    low = split_constant(str(_exact_rest(_LN2, high)), element, 1)[0]
    r = fma(n, -low, fma(n, -high, x))
    return fma(r * r, _polynomial("exp", r), r) + 1.0, k


def _exact_rest(decimal: str, high: float) -> object:
    from fractions import Fraction

    return Fraction(decimal) - Fraction(high)


def _exp_inside(x: Number) -> Number:
    """exp(x) for x whose result is a normal number; NaN stays NaN."""
    p, k = _exp_parts(x)
    return p * _power_of_two(k, _float_type(x))


def _exp(x: Number, native: bool) -> Number:
    # Beyond these bounds the result is 0 or infinity, which p * 2**k at the bound already is.
    low, high = (-104.0, 89.0) if x.element is F32 else (-746.0, 710.0)
    p, k = _exp_parts(clamp(x, _FAR_BELOW if native else low, high))
    return _scale(p, k, native)


def _exp2_of_fraction(r: Number) -> Number:
    """2**r of f32 for |r| of at most a half."""
    return fma(_polynomial("exp2", r), r, 1.0)


def _exp2(x: Number, native: bool) -> Number:
    element = _float_type(x)
    low, high = (-151.0, 129.0) if element is F32 else (-1076.0, 1025.0)
    x = clamp(x, _FAR_BELOW if native else low, high)
    n, k = _nearest_integer(x, 1.0)
    r = x - n
    if element is F32:
        return _scale(_exp2_of_fraction(r), k, native)
    first, second = split_constant(_LN2, element, 2)
    return _scale(fma(r, first, fma(r * r, _polynomial("exp2", r), r * second)) + 1.0, k, native)


def _significand(x: Number) -> tuple[Number, Number]:
    """(f, e) with x = (1 + f) * 2**e and 1 + f in [sqrt(1/2), sqrt(2)), both floats, for finite x >
    0, subnormals included."""
    element = _float_type(x)
    tiny = x < math.ldexp(1.0, 1 - element.bias)
    bits = select(tiny, x * 2.0**element.mantissa, x).bits()
    exponent = (bits - _encoding(math.sqrt(0.5), element)) >> element.mantissa
    significand = (bits - (exponent << element.mantissa)).bitcast(element)
    # exponent fits 32 bits; the cast from 64 would be slow where vectors have none
    count = exponent.cast(I32).cast(element)
    return significand - 1.0, count + select(tiny, float(-element.mantissa), x.like(0.0))


def _log_specials(x: Number, y: Number) -> Number:
    """The logarithm's values at 0, below, at infinity and NaN; ``y`` elsewhere."""
    y = select(x < math.inf, y, x)
    return select(x > 0.0, y, select(x.equals(0.0), -math.inf, x.like(math.nan)))


def _log_series_f64(f: Number) -> tuple[Number, Number]:
    """(f*f/2, q) with log(1 + f) = f - (f*f/2 - q)."""
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    return half, s * fma(z, _polynomial("log", z), half)


def _log(x: Number) -> Number:
    element = _float_type(x)
    f, e = _significand(x)
    if element is F32:
        high, low = 0.693359375, split_constant(str(_exact_rest(_LN2, 0.693359375)), element, 1)[0]
        f2 = f * f
        q = fma(f2 * f, _polynomial("log", f), e * low)
        y = fma(e, high, fma(f2, -0.5, q) + f)
    else:
        high = _LN2_HIGH[element]
        low = split_constant(str(_exact_rest(_LN2, high)), element, 1)[0]
        half, q = _log_series_f64(f)
        y = fma(e, high, f - (half - fma(e, low, q)))
    return _log_specials(x, y)


def _log2(x: Number) -> Number:
    element = _float_type(x)
    first, second = split_constant(_LOG2E, element, 2)
    f, e = _significand(x)
    if element is F32:
        y = fma(f, first, fma(f * f, _polynomial("log2", f), f * second)) + e
    else:
        half, q = _log_series_f64(f)
        rest = half - q
        # log(1 + f) as a sum, times log2(e) as a sum, added to e without losing what the additions
        # drop
        natural = f - rest
        lost = (f - natural) - rest
        product = natural * first
        small = fma(natural, first, -product) + fma(natural, second, lost * first)
        total = e + product
        y = total + (small + ((e - total) + product))
    return _log_specials(x, y)


def _tanh(x: Number, native_exp: bool) -> Number:
    a, t = abs(x), x * x
    small = fma(t * a, _polynomial("tanh", t), a)
    # 1 - 2/(exp(2a) + 1), which is 1 from the bound on, and where exp is infinite
    if native_exp:
        quotient = x.like(2.0).apply("div", (a + a).apply("exp") + 1.0, fast=True)
    else:
        quotient = 2.0 / (_exp_inside(at_most(a, 10.0 if x.element is F32 else 20.0) * 2.0) + 1.0)
    large = 1.0 - quotient
    return select(a < 0.625, small, large).apply("copysign", x)


def _erf(x: Number, native_exp: bool) -> Number:
    split, end = (0.9375, 3.93) if x.element is F32 else (1.0, 5.95)
    a, t = abs(x), x * x
    small = fma(_polynomial("erf_small", t), a, a)
    bounded = at_most(a, end)  # erf is 1 from there on
    logarithm = fma(_polynomial("erf_large", bounded), bounded, -bounded)
    large = 1.0 - (logarithm.apply("exp") if native_exp else _exp_inside(logarithm))
    return select(a < split, small, large).apply("copysign", x)


def _rsqrt(x: Number) -> Number:
    return 1.0 / x.apply("sqrt")


def _ldexp(x: Number, exponent: Number) -> Number:
    """x * 2**exponent rounded once: two steps bring the exponent into range, neither rounding
    unless the result is zero or infinity anyway."""
    element = _float_type(x)
    largest, minimum = element.bias, 1 - element.bias
    down = element.bias - 1 - element.mantissa - 1
    for _ in range(2):
        over, under = exponent > largest, exponent < minimum
        x = x * select(over, 2.0**largest, select(under, 2.0**-down, x.like(1.0)))
        # not below the smallest integer: the subtraction must not wrap around
        exponent = exponent - select(over, largest, select(under, -down, exponent.like(0)))
    return x * _power_of_two(clamp(exponent, minimum, largest), element)


@dataclass(frozen=True, slots=True)
class _Form:
    """Form in which a function is written; see :func:`math_function`."""

    native_ldexp: bool
    native_exp: bool
    full_range: bool
    double: bool


#: The functions by operation.
_FUNCTIONS: dict[str, Callable[[Number, _Form], Number]] = {
    "exp": lambda x, form: _exp(x, form.native_ldexp),
    "exp2": lambda x, form: _exp2(x, form.native_ldexp),
    "log": lambda x, form: _log(x),
    "log2": lambda x, form: _log2(x),
    "sin": lambda x, form: sine_or_cosine(
        x, cosine=False, full_range=form.full_range, double=form.double
    ),
    "cos": lambda x, form: sine_or_cosine(
        x, cosine=True, full_range=form.full_range, double=form.double
    ),
    "tanh": lambda x, form: _tanh(x, form.native_exp),
    "erf": lambda x, form: _erf(x, form.native_exp),
    "rsqrt": lambda x, form: _rsqrt(x),
}

_REDUCED = "power of two split off, minimax polynomial"
_SERIES = "power of two split off, minimax polynomial in (x-1)/(x+1)"
_TURNS = "Cody and Waite, Payne and Hanek reduction; minimax polynomials"
_TANH = "minimax polynomial below 0.625, 1 - 2/(exp(2x) + 1) above"
_ERF = "minimax polynomials of erf(x)/x near 0 and of log(erfc(x)) beyond"

#: The error of every function, by operation and element. Bounds of f32 were measured over all
#: arguments, of f64 over random ones.
MATH: dict[tuple[str, FloatType], MathRow] = {
    ("exp", F32): MathRow(1.03, 105.0, _REDUCED),
    ("exp", F64): MathRow(1.0, 2.0, _REDUCED),
    ("exp2", F32): MathRow(0.97, 3.0, _REDUCED),
    ("exp2", F64): MathRow(1.0, 2.0, _REDUCED),
    ("log", F32): MathRow(0.86, 4.0, _REDUCED),
    ("log", F64): MathRow(1.0, 4.0, _SERIES),
    ("log2", F32): MathRow(1.27, 4.0, _REDUCED),
    ("log2", F64): MathRow(1.0, 4.0, _SERIES),
    ("sin", F32): MathRow(1.58, 4.0, _TURNS, FAST_LIMIT[F32]),
    ("sin", F64): MathRow(1.0, 4.0, _TURNS, FAST_LIMIT[F64]),
    ("cos", F32): MathRow(1.58, 4.0, _TURNS, FAST_LIMIT[F32]),
    ("cos", F64): MathRow(1.0, 4.0, _TURNS, FAST_LIMIT[F64]),
    ("tanh", F32): MathRow(1.34, 4.0, _TANH),
    ("tanh", F64): MathRow(1.5, 4.0, _TANH),
    ("erf", F32): MathRow(1.03, 4.0, _ERF),
    ("erf", F64): MathRow(1.2, 4.0, _ERF),
    ("rsqrt", F32): MathRow(1.5, 2.2, "1/sqrt(x), both correctly rounded"),
    ("rsqrt", F64): MathRow(1.5, 2.0, "1/sqrt(x), both correctly rounded"),
}


@functools.cache
def math_function(
    name: str,
    element: FloatType,
    *,
    full_range: bool = True,
    native_ldexp: bool = True,
    native_exp: bool = False,
    double: bool = True,
) -> Function | None:
    """The scalar function that computes an operation of the table for f32 or f64, ended by
    ``return``; None where there is none.

    The function is shared: read it, or clone its body; do not change it. The error is that of
    :data:`MATH`.

    Args:
        name: ``exp exp2 log log2 sin cos tanh erf rsqrt``; or ``ldexp``, for targets without one
            (exact, two arguments).
        full_range: False yields the shorter function for arguments within the row's ``fast_limit``,
            where it has one.
        native_ldexp: False writes exp and exp2 without the operation ldexp, for targets where that
            is slow.
        native_exp: True writes tanh and erf with the operation exp, for targets that compute it
            themselves: the error is then within ``relaxed_ulp`` if that of exp is.
        double: False writes functions of f32 without f64.
    """
    if name == "ldexp" and element in (F32, F64):
        scope = Scope(f"ldexp_{element}", (element, I32), element)
        return scope.finish(_ldexp(*scope.arguments))
    write = _FUNCTIONS.get(name)
    if write is None or element not in (F32, F64):
        return None
    scope = Scope(f"{name}_{element}", (element,), element)
    (x,) = scope.arguments
    return scope.finish(write(x, _Form(native_ldexp, native_exp, full_range, double)))


@functools.cache
def exp2_of_fraction() -> Function:
    """Return the function 2**x in f32 for x between -1/2 and 1/2.

    It remains of ``exp2`` on a target whose own instructions split a float into its exponent and
    fraction. See :func:`math_function`.
    """
    scope = Scope("exp2_fraction", (F32,), F32)
    return scope.finish(_exp2_of_fraction(*scope.arguments))


__all__ = ["MATH", "MathRow", "cast_function", "exp2_of_fraction", "math_function"]
