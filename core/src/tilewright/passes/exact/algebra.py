"""Arithmetic of payloads: the operations of the ring on residues, IEEE's rules on the codes."""

from __future__ import annotations

from tilewright.ir.expressions import Number, select
from tilewright.ir.types import U32, U64
from tilewright.passes.exact.ring import PRIME, Ring
from tilewright.passes.exact.rules import elementwise


def larger(a: Number, b: Number | int) -> Number:
    """The larger of two unsigned numbers."""
    return a.apply("max", b)


def modulo(x: Number, modulus: int) -> Number:
    """``x`` reduced by a constant."""
    return x.apply("rem", modulus)


def reduced(x: Number, modulus: int, bound: int) -> Number:
    """``x``, below ``bound``, reduced by a constant; 64-bit numbers by Barrett's method.

    The quotient is estimated by a product of two 32-bit numbers, which vector units and GPUs have,
    where ``rem`` takes the upper half of a product of 64-bit ones. The estimate may be up to three
    too small; ``rem`` remains where it would be more.
    """
    dropped = max((bound - 1).bit_length() - 32, 0)
    # the reciprocal has 32 bits
    shift = 31 + modulus.bit_length()
    reciprocal = (1 << shift) // modulus
    # the error of the quotient: of the bits dropped, of the reciprocal, of the truncation
    error = (1 << dropped) / modulus + bound / (1 << shift) + 1
    if x.element is not U64 or error >= 4 or bound // modulus >= 1 << 32:
        return modulo(x, modulus)
    quotient = (((x >> dropped) * reciprocal) >> (shift - dropped)).cast(U32)
    if error * modulus < 1 << 32:
        low = x.cast(U32) - quotient * modulus
        for times in (2, 1) if error > 2 else (1,):
            low = low.apply("min", low - times * modulus)  # wraps where it is below
        return low.cast(U64)
    rest = x - quotient.cast(U64) * modulus
    if error > 2:  # below twice the modulus, as 2**32 is little more than it
        assert 4 * modulus > 3 << 32
        rest = (rest >> 32) * ((1 << 32) % modulus) + (rest & 0xFFFFFFFF)
    low = rest.cast(U32)
    return select(rest >= modulus, low - modulus, low).cast(U64)


def multiply_residues(ring: Ring, x: Number, y: Number | int) -> Number:
    """The product in the ring's wide type, reduced, of numbers that are at most the modulus."""
    return reduced(x * y, ring.modulus, ring.modulus**2 + 1)


def power(x: Number, exponent: int, modulus: int) -> Number:
    """``x`` to a positive constant power, by squaring; products must fit ``x``'s type."""
    result, bound = x, modulus**2
    for bit in bin(exponent)[3:]:
        result = reduced(result * result, modulus, bound)
        if bit == "1":
            result = reduced(result * x, modulus, bound)
    return result


def is_finite(ring: Ring, a: Number) -> Number:
    """Return whether a payload is a residue."""
    return a < ring.modulus


def on_codes(ring: Ring, a: Number, finite: Number, minus: int, plus: int) -> Number:
    """``finite`` for residues, two constants at the infinities; NaN and undefined stay."""
    infinite = select(a.equals(ring.negative_infinity), a.like(minus), plus)
    return select(is_finite(ring, a), finite, select(a >= ring.nan, a, infinite))


def _small_numerators(ring: Ring) -> tuple[int, int]:
    """The denominator and the largest numerator of the fractions that have a sign.

    Negative ones reverse an infinity's sign, as negative infinity does. Other residues have none.
    """
    return {8: (1, 1 << 4), 16: (16, 1 << 8)}.get(ring.bits, (256, 1 << 19))


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
    both = larger(a, b)
    finite = both < ring.modulus
    product, reversed_ = _product_or_sign(ring, a, b, b, finite)
    # the infinities differ in the lowest bit
    one = select(is_finite(ring, a), b, a) ^ reversed_
    one = select(product.equals(0), one.like(ring.nan), one)
    neither = ((a ^ b) & 1) ^ ring.infinity
    special = select(is_finite(ring, a) | is_finite(ring, b), one, neither)
    return select(finite, product, select(both >= ring.nan, both, special))


def _product_or_sign(
    ring: Ring, a: Number, b: Number, factor: Number, is_product: Number
) -> tuple[Number, Number]:
    """``a * factor`` where ``is_product``, and a bit elsewhere.

    The bit says whether the residue among ``a`` and ``b``, ``a`` if both are, reverses an
    infinity's sign. Both need one product and its reduction, which they share.
    """
    scale, count = _small_numerators(ring)
    residue = select(is_finite(ring, a), a, b).cast(ring.wide)
    factor = select(is_product, factor, scale).cast(ring.wide)
    product = multiply_residues(ring, residue, factor).cast(ring.payload)
    return product, (product >= ring.modulus - count).cast(ring.payload)


@elementwise("fma", "a * b + c", keeps=("fma(a, b, c) = a * b + c",))
def multiply_add(ring: Ring, a: Number, b: Number, c: Number) -> Number:
    return add(ring, multiply(ring, a, b), c)


def inverse(ring: Ring, y: Number) -> Number:
    """The inverse of a unit in the ring's wide type: Fermat's theorem for the lowest digit, then
    Newton's iteration, which doubles the digits. Of a multiple of 251 it is anything."""
    narrow = y.cast(U32)
    x = power(modulo(narrow, PRIME), PRIME - 2, PRIME)
    if ring.digits >= 2:
        square = PRIME * PRIME
        error = x.like(square + 2) - modulo(modulo(narrow, square) * x, square)
        x = modulo(x * modulo(error, square), square)
    x = x.cast(ring.wide)
    if ring.digits == 4:
        error = x.like(ring.modulus + 2) - multiply_residues(ring, y, x)
        x = reduced(x * error, ring.modulus, ring.modulus**2)
    return x


@elementwise(
    "div",
    "a times the inverse of b; undefined where 251 divides b, an infinity or NaN where b is 0",
    keeps=("a / b = a * (1 / b)", "(a * b) / b = a", "a / c + b / c = (a + b) / c"),
)
def divide(ring: Ring, a: Number, b: Number) -> Number:
    wide, both = b.cast(ring.wide), larger(a, b)
    finite = both < ring.modulus
    factor = inverse(ring, wide).cast(ring.payload)
    quotient, reversed_ = _product_or_sign(ring, a, b, factor, finite & b.differs(0))
    by_zero = select(a.equals(0), a.like(ring.nan), reversed_ ^ ring.infinity)
    no_unit = select(modulo(b, PRIME).equals(0), a.like(ring.undefined), quotient)
    found = select(b.equals(0), by_zero, no_unit)
    infinite = select(is_finite(ring, b), a ^ reversed_, ring.nan)
    special = select(is_finite(ring, a), a.like(0), infinite)
    return select(finite, found, select(both >= ring.nan, both, special))
