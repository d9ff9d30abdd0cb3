"""Balanced digits of payloads as operands of matmul instructions, and residues of sums of them.

A digit to base 251 is at most 125 in magnitude, which i8 and every float from bf16 up hold exactly;
of fp8 it is divided into two digits to base 16. Integers accumulate exactly, in i32, or in f32 as
far as they stay below 2^24.

In floats, NaN stands for codes: the lowest digit of NaN and the second digit of every code. Matmul
instructions spread it over the row and the column, so the sums tell of codes by themselves. In i8,
the digits of codes are 0, and the largest payload of each row and column tells of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.expressions import Number, select
from tilewright.ir.types import F16, F32, F64, I8, I32, I64, U32, U64, FloatType, IntType, Type
from tilewright.passes.exact.algebra import is_finite, larger, reduced
from tilewright.passes.exact.ring import PRIME, Ring
from tilewright.passes.math.float_formats import max_finite

#: The largest magnitude of a digit to base 251, and of its digits to base 16.
DIGIT, HALF_DIGIT = PRIME // 2, 8


@dataclass(frozen=True, slots=True)
class DigitOperand:
    """The kind of an operand of a dot.

    Attributes:
        ring: of its payloads.
        float: the float type that holds its digits in a native dot.
    """

    ring: Ring
    float: FloatType


@dataclass(frozen=True, slots=True)
class DigitPlan:
    """The digits of a dot.

    Attributes:
        a, b: the operands.
        ring: of the accumulator.
        accumulator: the type of the sums; i32 for digits in i8.
        is_narrow: whether digits are to base 16.
    """

    a: DigitOperand
    b: DigitOperand
    ring: Ring
    accumulator: Type
    is_narrow: bool

    @property
    def is_native(self) -> bool:
        """Return whether digits are floats."""
        return self.accumulator is not I32

    @property
    def kinds(self) -> tuple[Type, Type]:
        """The types of the digits of both operands."""
        return (self.a.float, self.b.float) if self.is_native else (I8, I8)

    @property
    def source(self) -> Ring:
        """The wider of the operands' rings."""
        return self.a.ring if self.a.ring.bits >= self.b.ring.bits else self.b.ring

    @property
    def counts(self) -> tuple[int, int]:
        """The number of digits of both operands."""
        return (2, 2) if self.is_narrow else (self.a.ring.digits, self.b.ring.digits)

    @property
    def pairs(self) -> list[tuple[int, int, int]]:
        """Positions of the digits of a and b that are multiplied, and the weight of their dot."""
        base = 16 if self.is_narrow else PRIME
        return [
            (i, j, base ** (i + j))
            for i in range(self.counts[0])
            for j in range(self.counts[1])
            if base ** (i + j) % self.ring.modulus
        ]

    @property
    def weights(self) -> tuple[int, ...]:
        """The weights of the sums, in ascending order."""
        return tuple(sorted({weight for _, _, weight in self.pairs}))

    @property
    def limit(self) -> int:
        """The magnitude that sums must stay below: they are read as i32."""
        return 1 << (24 if self.accumulator is F32 else 31)

    @property
    def capacity(self) -> int:
        """The number of terms along K that a sum holds beside a digit."""
        weights = [weight for _, _, weight in self.pairs]
        pairs = max(weights.count(weight) for weight in self.weights)
        magnitude = HALF_DIGIT if self.is_narrow else DIGIT
        return (self.limit - 1 - DIGIT) // (pairs * magnitude**2)


def plan_digits(way: str, a: DigitOperand, b: DigitOperand, ring: Ring, terms: int) -> DigitPlan:
    """Choose the digits of a dot with ``terms`` along K: floats where they are exact."""
    is_narrow = a.ring.digits == b.ring.digits == 1
    magnitude = HALF_DIGIT if is_narrow else DIGIT
    if way == "native" and _holds(a.float, magnitude) and _holds(b.float, magnitude):
        found = DigitPlan(a, b, ring, F64 if a.float is F64 else F32, is_narrow)
        if terms <= found.capacity:
            return found
    return DigitPlan(a, b, ring, I32, is_narrow=False)


def _holds(element: FloatType, magnitude: int) -> bool:
    """Return whether a float type has all integers up to a magnitude; f8e4b15 ends below 2."""
    return magnitude <= min(2 << element.mantissa, max_finite(element))


def digit(ring: Ring, a: Number, position: int) -> Number:
    """A balanced digit of a residue, as an i32; of codes any number of that range."""
    upper = select(a > ring.half, a - (ring.half + 1), a + ring.half)
    upper = upper.cast(U32) if ring.bits >= 32 else upper
    for _ in range(position):
        upper = upper.apply("div", PRIME)
    if position < ring.digits - 1:
        upper = upper - upper.apply("div", PRIME) * PRIME
    return upper.cast(I32) - DIGIT


def _half_digit(ring: Ring, a: Number, position: int) -> Number:
    """The lower or upper digit to base 16 of an fp8 payload's digit, -8 to 8."""
    found = digit(ring, a, 0) + HALF_DIGIT
    upper = found >> 4
    return upper if position else found - (upper << 4) - HALF_DIGIT


def operand_digit(plan: DigitPlan, is_a: bool, a: Number, position: int) -> Number:
    """A digit of an operand's payload in the type that is multiplied."""
    ring, kind = (plan.a if is_a else plan.b).ring, plan.kinds[0 if is_a else 1]
    found = (_half_digit if plan.is_narrow else digit)(ring, a, position)
    if not plan.is_native:
        return select(is_finite(ring, a), found, 0).cast(kind)
    assert isinstance(kind, FloatType)
    found = _small_float(found, kind)
    if position > 1:
        return found
    is_coded = a.equals(ring.nan) if position == 0 else a >= ring.modulus
    return select(is_coded, found.constant(math.nan, kind), found)


def _small_float(digit: Number, kind: FloatType) -> Number:
    """A digit as a float, by bits and a subtraction: conversions are slow on some GPUs."""
    found = kind if kind in (F16, F64) else F32
    if found is F64:
        return digit.cast(F64)
    bits = IntType(found.bits, signed=False)
    # 2**mantissa + DIGIT + digit, whose lowest bits are those of the integer
    start = 1 << found.mantissa
    exponent = (found.bias + found.mantissa) << found.mantissa
    return ((digit + (exponent + DIGIT)).cast(bits).bitcast(found) - (start + DIGIT)).cast(kind)


def accumulator_digit(plan: DigitPlan, c: Number, position: int) -> Number:
    """A digit of the accumulator's payload in the type of the sums; 0 of codes."""
    found = digit(plan.ring, c, position)
    return select(is_finite(plan.ring, c), found, 0).cast(plan.accumulator)


def residue_of_sums(
    ring: Ring, weights: Sequence[int], limit: int, sums: Sequence[Number], added: Number | None
) -> Number:
    """The residue of sums below ``limit`` times weights, and of a residue that is added."""
    weights = [weight % ring.modulus for weight in weights]
    bound = limit * sum(weights) + ring.modulus
    # a multiple of the modulus makes the number positive
    offset = -(-bound // ring.modulus) * ring.modulus
    total: Number | None = None
    for weight, part in zip(weights, sums, strict=True):
        term = part.cast(I32).cast(I64) * weight
        total = term + offset if total is None else total + term
    assert total is not None
    total = total.cast(U64)
    if added is not None:
        total = total + added.cast(U64)
    return reduced(total, ring.modulus, offset + bound).cast(ring.payload)


def is_nan(x: Number) -> Number:
    """Return whether a float is NaN."""
    return x.differs(x)


def with_codes(
    ring: Ring, found: Number, is_coded: Number, has_nan: Number, c: Number | None
) -> Number:
    """The result of a dot where operands, or the accumulator's payload ``c``, have codes.

    NaN in a row or a column makes NaN; an infinity there has no defined result.
    """
    code = select(has_nan, found.like(ring.nan), ring.undefined)
    if c is None:
        return select(is_coded, code, found)
    code = select(c.equals(ring.undefined), c, code)
    return select(is_coded, code, select(is_finite(ring, c), found, c))


def codes_of_maxima(plan: DigitPlan, a: Number, b: Number) -> tuple[Number, Number]:
    """Return whether there are codes, and NaN, by the largest payloads of a row and a column."""
    both = larger(a, b)
    return both >= plan.source.modulus, both.equals(plan.source.nan)
