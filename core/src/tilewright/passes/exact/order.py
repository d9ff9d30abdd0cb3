"""Order of payloads: residues as the balanced numbers that they stand for, -M/2 to M/2.

Integers stand in their order. Fractions stand somewhere, consistently: minimum and maximum are a
lattice, but no longer move with sums and scales.
"""

from __future__ import annotations

from tilewright.ir.expressions import Number, select
from tilewright.ir.types import IntType
from tilewright.passes.exact.algebra import (
    add,
    is_finite,
    larger,
    multiply,
    negate,
)
from tilewright.passes.exact.analytic import opaque
from tilewright.passes.exact.ring import Ring
from tilewright.passes.exact.rules import Meaning, elementwise


def balanced(ring: Ring, a: Number) -> Number:
    """The signed number of a payload, with infinities at the ends of the payload's width."""
    signed = IntType(ring.bits)
    inside = select(a > ring.half, a - ring.modulus, a)
    ends = select(a.equals(ring.negative_infinity), a.like(1 << (ring.bits - 1)), signed.maximum)
    return select(is_finite(ring, a), inside, ends).bitcast(signed)


def is_negative(ring: Ring, a: Number) -> Number:
    """Return whether a payload is in the upper half of the residues, or negative infinity."""
    residue = (a > ring.half) & is_finite(ring, a)
    return residue | a.equals(ring.negative_infinity)


_LATTICE = ("max(a, b) = max(b, a)", "max(max(a, b), c) = max(a, max(b, c))")
_MOVED = ("max(a, b) + c = max(a + c, b + c)", "max(a, b) * c = max(a * c, b * c) for c > 0")


def _extremum(ring: Ring, a: Number, b: Number, predicate: str, nan: str) -> Number:
    both = larger(a, b)
    best = select(balanced(ring, a).compare(predicate, balanced(ring, b)), a, b)
    if nan == "propagate":
        return select(both >= ring.nan, both, best)
    number = select(a.equals(ring.nan), b, select(b.equals(ring.nan), a, best))
    return select(both.equals(ring.undefined), both, number)


@elementwise(
    "min",
    "the smaller by balanced residues",
    attributes=("nan",),
    keeps=tuple(law.replace("max", "min") for law in _LATTICE),
    breaks=tuple(law.replace("max", "min") for law in _MOVED),
    digitwise=False,
)
def minimum(ring: Ring, a: Number, b: Number, nan: str) -> Number:
    return _extremum(ring, a, b, "le", nan)


@elementwise(
    "max",
    "the larger by balanced residues",
    attributes=("nan",),
    keeps=(*_LATTICE, "max(a, 0) = a where a > 0, else 0", "(a + abs(a)) / 2 = max(a, 0)"),
    breaks=_MOVED,
    digitwise=False,
)
def maximum(ring: Ring, a: Number, b: Number, nan: str) -> Number:
    return _extremum(ring, a, b, "ge", nan)


@elementwise(
    "cmp",
    "the order of balanced residues; NaN and undefined are unordered",
    attributes=("predicate",),
    keeps=("integers below M/2 are in their order",),
    breaks=("a < b where a + c < b + c", "a < b where a * c < b * c for c > 0"),
    digitwise=False,
)
def compare(ring: Ring, a: Number, b: Number, predicate: str) -> Number:
    both = larger(a, b)
    if predicate == "eq":
        return a.equals(b) & (both < ring.nan)
    if predicate == "ne":
        return a.differs(b) | (both >= ring.nan)
    ordered = balanced(ring, a).compare(predicate, balanced(ring, b))
    return ordered & (both < ring.nan)


@elementwise(
    "abs",
    "the balanced residue without its sign",
    keeps=("abs(-a) = abs(a)",),
    breaks=("abs(a * b) = abs(a) * abs(b)",),
    digitwise=False,
)
def absolute(ring: Ring, a: Number) -> Number:
    return select(is_negative(ring, a), negate(ring, a), a)


@elementwise(
    "copysign",
    "the magnitude of a with the sign of the balanced residue of b",
    breaks=("copysign(a * b, c) = abs(a) * copysign(b, c)",),
    digitwise=False,
)
def copy_sign(ring: Ring, a: Number, b: Number) -> Number:
    magnitude = absolute(ring, a)
    return select(is_negative(ring, b), negate(ring, magnitude), magnitude)


_ROUNDING = ("the result is an integer", "floor(a + 1) = floor(a) + 1")


@elementwise("floor", "a cubic of its own", breaks=_ROUNDING, meaning=Meaning.UNINTERPRETED)
def floor(ring: Ring, a: Number) -> Number:
    return opaque(ring, a, 1)


@elementwise("ceil", "a cubic of its own", breaks=_ROUNDING, meaning=Meaning.UNINTERPRETED)
def ceil(ring: Ring, a: Number) -> Number:
    return opaque(ring, a, 2)


@elementwise("round_even", "a cubic of its own", breaks=_ROUNDING, meaning=Meaning.UNINTERPRETED)
def round_even(ring: Ring, a: Number) -> Number:
    return opaque(ring, a, 3)


@elementwise("trunc", "a cubic of its own", breaks=_ROUNDING, meaning=Meaning.UNINTERPRETED)
def trunc(ring: Ring, a: Number) -> Number:
    return opaque(ring, a, 4)


@elementwise("rem", "a cubic of its own, of a * (a + b)", meaning=Meaning.UNINTERPRETED)
def remainder(ring: Ring, a: Number, b: Number) -> Number:
    return opaque(ring, multiply(ring, a, add(ring, a, b)), 5)
