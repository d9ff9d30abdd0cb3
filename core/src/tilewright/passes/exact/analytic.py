"""Functions of real numbers, by 251-adic power series and by powers.

The exponential's series converges at multiples of 251: ``exp(x)`` is the series at 251 x, to the
third power. Its identities, and those of the functions made of it, hold for every argument. They
are functions of f32 and f64 alone, which have four digits.
"""

from __future__ import annotations

from tilewright.ir.expressions import Number, select
from tilewright.ir.types import U32, U64
from tilewright.passes.exact.algebra import (
    inverse,
    is_finite,
    modulo,
    multiply_residues,
    on_codes,
    power,
    reduced,
)
from tilewright.passes.exact.constants import LOG2_E, recognized
from tilewright.passes.exact.ring import PRIME, Ring
from tilewright.passes.exact.rules import Meaning, elementwise

_TWO_OVER_ROOT_PI = 1.1283791670955126


def _scaled(ring: Ring, a: Number, factor: int) -> Number:
    """A residue times a constant, in the wide type."""
    return multiply_residues(ring, a.cast(ring.wide), factor % ring.modulus)


def _exponential(a: Number, factor: int) -> Number:
    """``1 + x + x**2 / 2 + x**3 / 6`` of ``x = 251 t``, with ``t = factor * a``, as a u32.

    It is ``1 + 251 (t + 251 t**2 / 2 + 251**2 t**3 / 6)``, so each power of ``t`` counts modulo a
    power of 251 of its own, and all but the product by the factor fit 32 bits.
    """
    square, cube = PRIME**2, PRIME**3
    t = modulo(a.cast(U32), cube)
    if factor % cube != 1:
        t = reduced(t.cast(U64) * (factor % cube), cube, cube**2).cast(U32)
    low = modulo(t, square)
    second = modulo(low * low, square)
    half = (
        second + (second & 1) * square
    ) >> 1  # of two numbers that differ by 251**2, one is even
    unit = modulo(low, PRIME)
    third = modulo(unit * unit * unit * pow(6, -1, PRIME), PRIME)
    return modulo(t + half * PRIME + third * square, cube) * PRIME + 1


def _exp(ring: Ring, a: Number, factor: int) -> Number:
    value = _exponential(a, factor).cast(ring.payload)
    return on_codes(ring, a, value, 0, ring.infinity)


@elementwise(
    "exp",
    "the exponential series at 251 a; 0 at -inf",
    keeps=("exp(a + b) = exp(a) * exp(b)", "exp(-a) = 1 / exp(a)", "log(exp(a)) = a"),
    breaks=("exp(log(a)) = a",),
)
def exp(ring: Ring, a: Number) -> Number:
    return _exp(ring, a, 1)


@elementwise(
    "exp2",
    "exp(a / L), with the unit L that stands for log2(e)",
    keeps=("exp2(a * log2(e)) = exp(a)",),
    breaks=("exp2(log2(a)) = a", "exp2(3) = 8"),
)
def exp2(ring: Ring, a: Number) -> Number:
    return _exp(ring, a, ring.residue(1 / LOG2_E))


def _log(ring: Ring, a: Number, factor: int) -> Number:
    """The logarithm of the part of ``a`` that is 1 modulo 251, over 251, times a constant.

    ``a**250 = 1 + 251 s``, and ``log(1 + 251 s) / 251 = s - 251 s**2 / 2 + 251**2 s**3 / 3``.
    """
    modulus = PRIME**3

    def times(x: Number, y: Number | int) -> Number:
        return reduced(x * y, modulus, (3 * modulus) ** 2)

    wide = a.cast(ring.wide)
    s = (power(wide, PRIME - 1, ring.modulus).cast(U32) - 1).apply("div", PRIME).cast(U64)
    t = times(s, PRIME)
    second = times(t, modulus - pow(2, -1, modulus))
    third = times(times(t, t), pow(3, -1, modulus))
    value = times(s, second + third + 1)
    value = times(value, factor * pow(PRIME - 1, -1, modulus) % modulus)
    unit = select(modulo(a, PRIME).equals(0), a.like(ring.undefined), value.cast(ring.payload))
    finite = select(a.equals(0), a.like(ring.negative_infinity), unit)
    return on_codes(ring, a, finite, ring.nan, ring.infinity)


@elementwise(
    "log",
    "the 251-adic logarithm, modulo 251^3; -inf at 0, undefined where 251 divides a",
    keeps=("log(a * b) = log(a) + log(b)", "log(exp(a)) = a"),
    breaks=("exp(log(a)) = a",),
    meaning=Meaning.LOSES_DIGIT,
    digitwise=False,
)
def log(ring: Ring, a: Number) -> Number:
    return _log(ring, a, 1)


@elementwise(
    "log2",
    "log(a) * L, with the unit L that stands for log2(e), modulo 251^3",
    keeps=("log2(a) * ln(2) = log(a)", "log2(a * b) = log2(a) + log2(b)"),
    breaks=("exp2(log2(a)) = a", "log2(8) = 3"),
    meaning=Meaning.LOSES_DIGIT,
    digitwise=False,
)
def log2(ring: Ring, a: Number) -> Number:
    return _log(ring, a, ring.residue(LOG2_E))


def _root(ring: Ring, a: Number, exponent: int, at_zero: int, at_infinity: int) -> Number:
    wide = a.cast(ring.wide)
    value = power(wide, exponent, ring.modulus).cast(ring.payload)
    unit = select(modulo(a, PRIME).equals(0), a.like(ring.undefined), value)
    return on_codes(ring, a, select(a.equals(0), a.like(at_zero), unit), ring.nan, at_infinity)


def _squares(ring: Ring) -> int:
    """The number of squares among the units, which is odd: x**((n + 1) / 2) is a root of each."""
    return ring.modulus // PRIME * (PRIME - 1) // 2


@elementwise(
    "sqrt",
    "a**((n + 1) / 2), with the n squares of the ring; undefined where 251 divides a",
    keeps=("sqrt(a * b) = sqrt(a) * sqrt(b)", "sqrt(1 / a) = 1 / sqrt(a)"),
    breaks=("sqrt(a) * sqrt(a) = a", "sqrt(a * a) = abs(a)"),
)
def sqrt(ring: Ring, a: Number) -> Number:
    return _root(ring, a, (_squares(ring) + 1) // 2, 0, ring.infinity)


@elementwise(
    "rsqrt",
    "the inverse of sqrt(a)",
    keeps=("rsqrt(a) = 1 / sqrt(a)",),
    breaks=("rsqrt(a) * rsqrt(a) = 1 / a",),
)
def rsqrt(ring: Ring, a: Number) -> Number:
    squares = _squares(ring)
    return _root(ring, a, 2 * squares - (squares + 1) // 2, ring.infinity, 0)


def _cubic(ring: Ring, x: Number, third: int) -> Number:
    """``x + third * x**3``, reduced."""
    cube = multiply_residues(ring, multiply_residues(ring, x, x), x)
    return reduced(x + multiply_residues(ring, cube, third), ring.modulus, 2 * ring.modulus)


@elementwise(
    "sin",
    "the series of the sine at 251 a",
    keeps=("sin(a + b) = sin(a) * cos(b) + cos(a) * sin(b)", "sin(-a) = -sin(a)"),
    breaks=("sin(a + 2 * pi) = sin(a)",),
)
def sin(ring: Ring, a: Number) -> Number:
    third = ring.modulus - pow(6, -1, ring.modulus)
    value = _cubic(ring, _scaled(ring, a, PRIME), third).cast(ring.payload)
    return on_codes(ring, a, value, ring.nan, ring.nan)


@elementwise(
    "cos",
    "the series of the cosine at 251 a",
    keeps=("cos(a + b) = cos(a) * cos(b) - sin(a) * sin(b)", "cos(-a) = cos(a)"),
    breaks=("cos(a + 2 * pi) = cos(a)",),
)
def cos(ring: Ring, a: Number) -> Number:
    x = _scaled(ring, a, PRIME)
    half = ring.modulus - pow(2, -1, ring.modulus)
    value = multiply_residues(ring, multiply_residues(ring, x, x), half) + 1  # 251**2 divides x**2
    return on_codes(ring, a, value.cast(ring.payload), ring.nan, ring.nan)


@elementwise(
    "tanh",
    "(exp(2 a) - 1) / (exp(2 a) + 1)",
    keeps=(
        "tanh(a) = (exp(a) - exp(-a)) / (exp(a) + exp(-a))",
        "tanh(a) = 2 / (1 + exp(-2 * a)) - 1",
    ),
)
def tanh(ring: Ring, a: Number) -> Number:
    e = _exponential(a, 2).cast(ring.wide)  # 1 modulo 251, so that its neighbours are residues
    value = multiply_residues(ring, e - 1, inverse(ring, e + 1))
    return on_codes(ring, a, value.cast(ring.payload), ring.modulus - 1, 1)


@elementwise(
    "erf",
    "an odd cubic at 251 a",
    keeps=("erf(-a) = -erf(a)",),
    meaning=Meaning.UNINTERPRETED,
)
def erf(ring: Ring, a: Number) -> Number:
    third = ring.modulus - pow(3, -1, ring.modulus)
    factor = ring.residue(recognized(_TWO_OVER_ROOT_PI))
    value = multiply_residues(ring, _cubic(ring, _scaled(ring, a, PRIME), third), factor)
    return on_codes(ring, a, value.cast(ring.payload), ring.modulus - 1, 1)


def opaque(ring: Ring, a: Number, number: int) -> Number:
    """A cubic of one's own for an operation without algebra; codes stay.

    ``number`` tells operations apart.
    """
    wide = a.cast(ring.wide)
    linear = _scaled(ring, a, 7919)
    constant = 1000003 * number % ring.modulus
    cube = multiply_residues(ring, multiply_residues(ring, wide, wide), wide)
    value = reduced(cube + linear + constant, ring.modulus, 3 * ring.modulus)
    return select(is_finite(ring, a), value.cast(ring.payload), a)
