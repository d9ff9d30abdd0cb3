"""Bits of floats as integers: the sign and the magnitude of the balanced number.

Bits have the order that those of floats have: of positive numbers their own, and reversed of
negative ones, which the highest bit tells. So sorting by bits, and signs that are read, cleared or
flipped, agree with comparisons, minima and maxima of payloads. Exponents mean nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.core import Operation, Value
from tilewright.ir.expressions import Number, select
from tilewright.ir.ops.arithmetic import Bitcast
from tilewright.ir.ops.memory import AtomicRmw
from tilewright.ir.table import Trait
from tilewright.ir.types import FloatType, IntType, element_type, with_element
from tilewright.passes.exact.address_groups import element_at
from tilewright.passes.exact.algebra import is_finite
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.ring import Ring, is_float, ring_of
from tilewright.passes.exact.rules import Meaning, whole

if TYPE_CHECKING:
    from tilewright.passes.exact.context import ExactContext


def _infinity(ring: Ring, element: FloatType) -> int:
    """The bits of infinity: the float's own where they are above all magnitudes."""
    own = ((1 << (element.bits - 1 - element.mantissa)) - 1) << element.mantissa
    return own if element.has_infinity and own > ring.half else (1 << (ring.bits - 1)) - 2


def bits_of_payload(ring: Ring, element: FloatType, a: Number) -> Number:
    """The bits of a float that a payload stands for, in the payload's type."""
    sign, infinity = 1 << (ring.bits - 1), _infinity(ring, element)
    finite = select(a > ring.half, a.like(ring.modulus + sign) - a, a)
    infinite = select(a.equals(ring.infinity), a.like(infinity), sign + infinity)
    code = select(a.equals(ring.nan), a.like(sign - 1), ring.undefined)
    code = select(a >= ring.nan, code, infinite)
    return select(is_finite(ring, a), finite, code)


def payload_of_bits(ring: Ring, element: FloatType, x: Number) -> Number:
    """The payload whose bits are ``x``, in the payload's type; NaN of those that no payload has."""
    sign = 1 << (ring.bits - 1)
    magnitude, is_negative = x & (sign - 1), x >= sign
    residue = select(
        is_negative & magnitude.differs(0), x.like(ring.modulus) - magnitude, magnitude
    )
    infinite = select(is_negative, x.like(ring.negative_infinity), ring.infinity)
    nan = select(x.equals(ring.undefined), x, ring.nan)
    code = select(magnitude.equals(_infinity(ring, element)), infinite, nan)
    return select(magnitude <= ring.half, residue, code)


def to_bits(context: ExactContext, element: FloatType, payloads: Value, result: IntType) -> Value:
    """Append the bits of payloads as integers of a type."""
    ring = ring_of(element)
    bits = context.formula(
        ("bits of a payload", element),
        lambda a: bits_of_payload(ring, element, a),
        [payloads],
        ring.payload,
    )
    return _as(context, bits, result)


def from_bits(context: ExactContext, element: FloatType, bits: Value) -> Value:
    """Append the payloads of integers that are bits."""
    ring = ring_of(element)
    return context.formula(
        ("payload of bits", element),
        lambda x: payload_of_bits(ring, element, x),
        [_as(context, bits, ring.payload)],
        ring.payload,
    )


def _as(context: ExactContext, bits: Value, element: IntType) -> Value:
    wanted = with_element(bits.type, element)
    if bits.type is wanted:
        return bits
    found: Value = context.builder.bitcast(bits, result=wanted)
    return found


def _reads_bits(operation: Bitcast) -> bool:
    """Return whether a bitcast converts between floats and integers."""
    return is_float(operation.x.type) != is_float(operation.result.type)


@whole(
    "bitcast",
    "the sign and the magnitude of the balanced residue",
    keeps=("the order of bits is that of numbers, negative ones reversed",),
    meaning=Meaning.UNINTERPRETED,
    breaks=("the bits are those of a float",),
    digitwise=False,
    is_uninterpreted=_reads_bits,
)
def bitcast(context: ExactContext, operation: Bitcast) -> list[Value]:
    source, target = element_type(operation.x.type), element_type(operation.result.type)
    (value,) = context.payloads([operation.x])
    if isinstance(source, FloatType) and isinstance(target, IntType):
        return [to_bits(context, source, value, target)]
    if isinstance(source, IntType) and isinstance(target, FloatType):
        return [from_bits(context, target, value)]
    return [value]  # the payloads of one float are those of another one of its width


def reinterpreted(context: ExactContext, operation: Operation) -> FloatType | None:
    """Return the float in memory that an operation accesses as integers; None for others."""
    if Trait.ACCESS not in operation.spec.traits:
        return None
    address, *_ = operation.operands
    element, own = element_at(address.type), context.groups.origin(address)
    if isinstance(element, IntType) and isinstance(own, FloatType) and own.bits == element.bits:
        return own
    return None


def access_bits(context: ExactContext, operation: Operation, element: FloatType) -> list[Value]:
    """Append an access to the bits of floats in memory.

    Raises:
        ExactModeError: it computes with the bits in memory.
    """
    if isinstance(operation, AtomicRmw) and operation.kind != "xchg":
        raise ExactModeError(
            f"an atomic {operation.kind} on the bits of floats in memory",
            "use the atomic operation of floats",
            operation.location,
        )
    address, *rest = operation.operands
    kind = element_at(address.type)
    assert isinstance(kind, IntType)
    data = [getattr(operation, name, None) for name in ("value", "other", "compare")]
    values = [context.values[address]]
    for value in rest:
        new = context.values[value]
        is_data = any(value is one for one in data)
        values.append(_as(context, from_bits(context, element, new), kind) if is_data else new)
    made = Operation(
        operation.spec,
        values,
        operation.segments,
        operation.attributes,
        [value.type for value in operation.results],
        (),
        operation.location,
    )
    context.builder.insert(made)
    payload = ring_of(element).payload
    return [
        to_bits(context, element, _as(context, value, payload), kind)
        if element_type(value.type) is kind
        else value
        for value in made.results
    ]
