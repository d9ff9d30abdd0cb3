"""Functions of real numbers, by 251-adic power series and by powers.

The exponential's series converges at multiples of 251: ``exp(x)`` is the series at 251 x, to the
third power. Its identities, and those of the functions made of it, hold for every argument. They
are functions of f32 and f64 alone, which have four digits.
"""

from __future__ import annotations

from tilewright.ir.expressions import Number, select
from tilewright.passes.exact.algebra import (
    inverse,
    is_finite,
    modulo,
    multiply_residues,
    on_codes,
    power,
)
from tilewright.passes.exact.constants import LOG2_E, recognized
from tilewright.passes.exact.ring import PRIME, Ring
from tilewright.passes.exact.rules import Meaning, elementwise

_TWO_OVER_ROOT_PI = 1.1283791670955126


def _scaled(ring: Ring, a: Number, factor: int) -> Number:
    """A residue times a constant, in the wide type."""
    return multiply_residues(ring, a.cast(ring.wide), factor % ring.modulus)


def _exponential(ring: Ring, x: Number) -> Number:
    """``1 + x + x**2 / 2 + x**3 / 6`` of a multiple of 251."""
    half, third = pow(2, -1, ring.modulus), pow(3, -1, ring.modulus)
    tail = multiply_residues(ring, x, third) + 1
    tail = multiply_residues(ring, multiply_residues(ring, x, half), tail) + 1
    return modulo(multiply_residues(ring, x, tail) + 1, ring.modulus)


def _exp(ring: Ring, a: Number, factor: int) -> Number:
    value = _exponential(ring, _scaled(ring, a, PRIME * factor)).cast(ring.payload)
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
    wide = a.cast(ring.wide)
    s = modulo((power(wide, PRIME - 1, ring.modulus) - 1).apply("div", PRIME), modulus)
    t = modulo(s * PRIME, modulus)
    second = modulo(t * (modulus - pow(2, -1, modulus)), modulus)
    third = modulo(modulo(t * t, modulus) * pow(3, -1, modulus), modulus)
    value = modulo(s * modulo(second + third + 1, modulus), modulus)
    value = modulo(value * (factor * pow(PRIME - 1, -1, modulus) % modulus), modulus)
    unit = select(modulo(wide, PRIME).equals(0), a.like(ring.undefined), value.cast(ring.payload))
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
    unit = select(modulo(wide, PRIME).equals(0), a.like(ring.undefined), value)
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
    return modulo(x + multiply_residues(ring, cube, third), ring.modulus)


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
    value = modulo(multiply_residues(ring, multiply_residues(ring, x, x), half) + 1, ring.modulus)
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
    e = _exponential(ring, _scaled(ring, a, 2 * PRIME))
    below = modulo(e + (ring.modulus - 1), ring.modulus)
    value = multiply_residues(ring, below, inverse(ring, modulo(e + 1, ring.modulus)))
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
    value = modulo(modulo(cube + linear, ring.modulus) + constant, ring.modulus)
    return select(is_finite(ring, a), value.cast(ring.payload), a)
