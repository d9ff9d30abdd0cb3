"""Arithmetic of payloads: the operations of the ring on residues, IEEE's rules on the codes."""

from __future__ import annotations

from tilewright.ir.expressions import Number, select
from tilewright.ir.types import U32
from tilewright.passes.exact.ring import PRIME, Ring
from tilewright.passes.exact.rules import elementwise


def larger(a: Number, b: Number | int) -> Number:
    """The larger of two unsigned numbers."""
    return a.apply("max", b)


def modulo(x: Number, modulus: int) -> Number:
    """``x`` reduced by a constant."""
    return x.apply("rem", modulus)


def multiply_residues(ring: Ring, x: Number, y: Number | int) -> Number:
    """The product of two residues in the ring's wide type, reduced."""
    return modulo(x * y, ring.modulus)


def power(x: Number, exponent: int, modulus: int) -> Number:
    """``x`` to a positive constant power, by squaring; products must fit ``x``'s type."""
    result = x
    for bit in bin(exponent)[3:]:
        result = modulo(result * result, modulus)
        if bit == "1":
            result = modulo(result * x, modulus)
    return result


def is_finite(ring: Ring, a: Number) -> Number:
    """Return whether a payload is a residue."""
    return a < ring.modulus


def on_codes(ring: Ring, a: Number, finite: Number, minus: int, plus: int) -> Number:
    """``finite`` for residues, two constants at the infinities; NaN and undefined stay."""
    infinite = select(a.equals(ring.negative_infinity), a.like(minus), plus)
    return select(is_finite(ring, a), finite, select(a >= ring.nan, a, infinite))


def reverses_infinity(ring: Ring, a: Number) -> Number:
    """Return whether a factor reverses an infinity's sign.

    Negative binary fractions with a small numerator do, over 16 in f16 and over 256 in f32, and
    negative infinity. Other residues have no sign.
    """
    scale, count = {8: (1, 1 << 4), 16: (16, 1 << 8)}.get(ring.bits, (256, 1 << 19))
    numerator = modulo(a.cast(ring.wide) * scale, ring.modulus)
    small = (numerator >= ring.modulus - count) & is_finite(ring, a)
    return small | a.equals(ring.negative_infinity)


def _infinity(ring: Ring, negative: Number, like: Number) -> Number:
    return select(negative, like.like(ring.negative_infinity), ring.infinity)


@elementwise(
    "add",
    "the residue of the sum; inf - inf is NaN",
    keeps=("a + b = b + a", "(a + b) + c = a + (b + c)"),
)
def add(ring: Ring, a: Number, b: Number) -> Number:
    complement = a.like(ring.modulus) - b
    total = select(a >= complement, a - complement, a + b)
    both = larger(a, b)
    codes = select(a.equals(b), a, larger(both, ring.nan))
    special = select(is_finite(ring, a), b, select(is_finite(ring, b), a, codes))
    return select(both < ring.modulus, total, special)


@elementwise("neg", "the residue's complement; infinities change their sign", keeps=("--a = a",))
def negate(ring: Ring, a: Number) -> Number:
    finite = select(a.equals(0), a, a.like(ring.modulus) - a)
    return select(is_finite(ring, a), finite, select(a < ring.nan, a ^ 1, a))


@elementwise("sub", "a + -b", keeps=("a - b = a + -b",))
def subtract(ring: Ring, a: Number, b: Number) -> Number:
    return add(ring, a, negate(ring, b))


@elementwise(
    "mul",
    "the residue of the product; 0 * inf is NaN",
    keeps=("a * b = b * a", "(a * b) * c = a * (b * c)", "a * (b + c) = a * b + a * c"),
)
def multiply(ring: Ring, a: Number, b: Number) -> Number:
    product = multiply_residues(ring, a.cast(ring.wide), b.cast(ring.wide)).cast(ring.payload)
    both = larger(a, b)
    negative = reverses_infinity(ring, a) ^ reverses_infinity(ring, b)
    zero = a.equals(0) | b.equals(0)
    infinite = select(zero, a.like(ring.nan), _infinity(ring, negative, a))
    return select(both < ring.modulus, product, select(both >= ring.nan, both, infinite))


@elementwise("fma", "a * b + c", keeps=("fma(a, b, c) = a * b + c",))
def multiply_add(ring: Ring, a: Number, b: Number, c: Number) -> Number:
    return add(ring, multiply(ring, a, b), c)


def inverse(ring: Ring, y: Number) -> Number:
    """The inverse of a unit in the ring's wide type: Fermat's theorem for the lowest digit, then
    Newton's iteration, which doubles the digits. Of a multiple of 251 it is anything."""
    x = power(modulo(y, PRIME).cast(U32), PRIME - 2, PRIME)
    if ring.digits >= 2:
        square = PRIME * PRIME
        error = x.like(square + 2) - modulo(modulo(y, square).cast(U32) * x, square)
        x = modulo(x * modulo(error, square), square)
    x = x.cast(ring.wide)
    if ring.digits == 4:
        error = x.like(ring.modulus + 2) - multiply_residues(ring, y, x)
        x = multiply_residues(ring, x, modulo(error, ring.modulus))
    return x


@elementwise(
    "div",
    "a times the inverse of b; undefined where 251 divides b, an infinity or NaN where b is 0",
    keeps=("a / b = a * (1 / b)", "(a * b) / b = a", "a / c + b / c = (a + b) / c"),
)
def divide(ring: Ring, a: Number, b: Number) -> Number:
    wide = b.cast(ring.wide)
    quotient = multiply_residues(ring, a.cast(ring.wide), inverse(ring, wide)).cast(ring.payload)
    negative = reverses_infinity(ring, a) ^ reverses_infinity(ring, b)
    infinity = _infinity(ring, negative, a)
    by_zero = select(a.equals(0), a.like(ring.nan), infinity)
    no_unit = select(modulo(wide, PRIME).equals(0), a.like(ring.undefined), quotient)
    finite = select(b.equals(0), by_zero, no_unit)
    both = larger(a, b)
    infinite = select(is_finite(ring, b), infinity, ring.nan)
    special = select(is_finite(ring, a), a.like(0), infinite)
    return select(both < ring.modulus, finite, select(both >= ring.nan, both, special))
