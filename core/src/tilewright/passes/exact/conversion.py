"""Conversions between rings and integers, constants, and scaling by powers of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.core import Value
from tilewright.ir.expressions import Number, select
from tilewright.ir.ops.arithmetic import Cast, Constant
from tilewright.ir.types import I1, I64, U64, IntType, element_type
from tilewright.passes.exact.algebra import is_finite, modulo, multiply, multiply_residues
from tilewright.passes.exact.constants import payload_of_constant
from tilewright.passes.exact.order import balanced
from tilewright.passes.exact.ring import Ring, is_float, ring_of
from tilewright.passes.exact.rules import elementwise, whole

if TYPE_CHECKING:
    from tilewright.passes.exact.context import ExactContext

#: Exponents are clamped to this magnitude, beyond that of every f64, and biased to be positive.
_EXPONENT, _BIAS = 1500, 2048


def between_rings(source: Ring, target: Ring, a: Number) -> Number:
    """A payload in another ring: reduced where it has fewer digits, else the balanced number."""
    if source is target:
        return a
    if source.digits > target.digits:
        finite = modulo(a, target.modulus).cast(target.payload)
    elif source.digits == target.digits:
        finite = a.cast(target.payload)
    else:
        wide = a.cast(target.payload)
        finite = select(a > source.half, wide + (target.modulus - source.modulus), wide)
    position = a.cast(U64) & 3  # the codes are the top four of each width
    code = position.cast(target.payload) + target.negative_infinity
    # f64's payloads have a gap between its residues and its codes
    code = select(a >= source.negative_infinity, code, target.undefined)
    return select(is_finite(source, a), finite, code)


def of_integer(ring: Ring, x: Number) -> Number:
    """The residue of an integer."""
    if x.element is I1:
        return x.cast(ring.payload)
    element = x.element
    assert isinstance(element, IntType)
    wide = max(element.bits, ring.bits, 32)
    residue = x.cast(IntType(wide, element.signed))
    if element.maximum >= ring.modulus:
        residue = modulo(residue, ring.modulus)
    if not element.signed:
        return residue.cast(ring.payload)
    found = residue.cast(IntType(wide, signed=False))
    return select(residue < 0, found + ring.modulus, found).cast(ring.payload)


def to_integer(ring: Ring, a: Number, element: IntType) -> Number:
    """The balanced number as an integer; 0 for codes. To i1, whether it is no zero."""
    if element is I1:
        return a.differs(0)
    signed = balanced(ring, a)
    return select(is_finite(ring, a), signed.cast(I64), 0).cast(element)


def _truncates(operation: Cast) -> bool:
    """Return whether a cast makes an integer of a float, which may have a fraction."""
    return (
        is_float(operation.x.type)
        and element_type(operation.result.type) is not I1
        and not is_float(operation.result.type)
    )


@whole(
    "cast",
    "to a narrower float reduction, to a wider one the balanced number; integers by their value",
    keeps=("f32(f16(a)) is f16(a)", "f16(a + b) = f16(a) + f16(b)"),
    breaks=("bf16(a) + bf16(a - bf16(a)) = a", "int(a) truncates a fraction"),
    is_uninterpreted=_truncates,
)
def cast(rewriter: ExactContext, operation: Cast) -> list[Value]:
    source, target = element_type(operation.x.type), element_type(operation.result.type)

    def written(x: Number) -> Number:
        if not is_float(source):
            return of_integer(ring_of(target), x)
        if isinstance(target, IntType):
            return to_integer(ring_of(source), x, target)
        return between_rings(ring_of(source), ring_of(target), x)

    key = (operation.name, source, target)
    return rewriter.applied(key, written, operation.operands, operation.result.type)


@whole("constant", "the residue of the number that it stands for", digitwise=True)
def constant(rewriter: ExactContext, operation: Constant) -> list[Value]:
    ring = ring_of(operation.result.type)
    payload = payload_of_constant(float(operation.value), ring)
    return [rewriter.builder.constant(value=payload, result=ring.payload)]


@elementwise(
    "ldexp",
    "a times a power of two, clamped to exponents of 1500",
    keeps=("ldexp(a, 3) = a * 8", "ldexp(ldexp(a, i), j) = ldexp(a, i + j)"),
)
def scale_by_power(ring: Ring, a: Number, exponent: Number) -> Number:
    clamped = exponent.apply("min", _EXPONENT).apply("max", -_EXPONENT)
    biased = (clamped + _BIAS).cast(ring.wide)
    factor = biased.like(pow(2, -_BIAS, ring.modulus))
    for bit in range((_BIAS + _EXPONENT).bit_length()):
        is_set = ((biased >> bit) & 1).differs(0)
        step = select(is_set, biased.like(pow(2, 1 << bit, ring.modulus)), 1)
        factor = multiply_residues(ring, factor, step)
    return multiply(ring, a, factor.cast(ring.payload))
