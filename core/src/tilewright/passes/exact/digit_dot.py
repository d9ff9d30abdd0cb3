"""Dots of payloads by balanced digits to base 251, in the target's own dot instructions.

A digit is at most 125 in magnitude, which i8 and every float from bf16 up hold exactly; of fp8 it
is divided into two digits to base 16. Integers accumulate exactly, in i32, or in f32 as far as they
stay below 2^24. The accumulator's digits enter the dots of their weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.ir.core import Region, Value
from tilewright.ir.expressions import Number, select
from tilewright.ir.ops.linear import Dot
from tilewright.ir.types import (
    F32,
    F64,
    I8,
    I32,
    I64,
    U32,
    FloatType,
    TileType,
    Type,
    element_type,
    shape_of,
    with_element,
)
from tilewright.passes.exact.algebra import is_finite, larger, modulo
from tilewright.passes.exact.conversion import of_integer
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.ring import PRIME, Ring, ring_of
from tilewright.passes.exact.rules import touches_floats, whole
from tilewright.passes.math.float_formats import max_finite

if TYPE_CHECKING:
    from tilewright.passes.exact.context import ExactContext

#: The largest magnitude of a digit to base 251, and of its digits to base 16.
_DIGIT, _HALF_DIGIT = PRIME // 2, 8
#: Terms along K that fp8 instructions may accumulate at their reduced precision.
_IMPRECISE = 32


@dataclass(frozen=True, slots=True)
class DotOperand:
    """Operand a or b of a dot.

    Attributes:
        payloads: its tile of payloads.
        ring: their ring.
        float: the float type that holds its digits in a native dot.
    """

    payloads: Value
    ring: Ring
    float: FloatType


def digit(ring: Ring, a: Number, position: int) -> Number:
    """A balanced digit of a payload, as an i32; 0 of codes."""
    raised = select(a > ring.half, a - (ring.half + 1), a + ring.half)
    wide = raised.cast(U32) if ring.bits >= 32 else raised
    upper = wide.apply("div", PRIME**position) if position else wide
    found = (modulo(upper, PRIME) if position < ring.digits - 1 else upper).cast(I32)
    return select(is_finite(ring, a), found - _DIGIT, 0)


def _half_digit(ring: Ring, a: Number, position: int) -> Number:
    """The lower or upper digit to base 16 of an fp8 payload's digit, -8 to 8."""
    found = digit(ring, a, 0) + _HALF_DIGIT
    upper = found >> 4
    return upper if position else found - (upper << 4) - _HALF_DIGIT


def recombined(ring: Ring, scales: Sequence[int], *parts: Number) -> Number:
    """The residue of the sum of integers times scales."""
    total: Number | None = None
    for scale, part in zip(scales, parts, strict=True):
        term = part.cast(I32).cast(I64) * scale
        total = term if total is None else total + term
    assert total is not None
    return of_integer(ring, total)


def _with_codes(ring: Ring, source: Ring, found: Number, a: Number, b: Number, c: Number) -> Number:
    """The result where a row, a column (by their largest payload) or c has codes.

    NaN in a row or a column makes NaN; an infinity there has no defined result.
    """
    both = larger(a, b)
    code = select(both.equals(source.nan), found.like(ring.nan), ring.undefined)
    code = select(c.equals(ring.undefined), c, code)
    return select(both < source.modulus, select(is_finite(ring, c), found, c), code)


def digit_dot(
    rewriter: ExactContext,
    a: DotOperand,
    b: DotOperand,
    c: Value,
    ring: Ring,
    attributes: dict[str, Any],
) -> Value:
    """Append ``a @ b + c`` over payloads; ``c`` and the result are payloads of ``ring``."""
    builder, result = rewriter.builder, c.type
    assert isinstance(result, TileType)
    native = rewriter.options.dot == "native"
    narrow = native and a.ring.digits == b.ring.digits == 1
    base, magnitude = (16, _HALF_DIGIT) if narrow else (PRIME, _DIGIT)
    if not (_holds(a.float, magnitude) and _holds(b.float, magnitude)):
        native = narrow = False
        base, magnitude = PRIME, _DIGIT
    left, right = (_digits(rewriter, operand, narrow) for operand in (a, b))
    pairs = min(len(left), len(right), 2 if narrow else ring.digits)
    terms = shape_of(a.payloads.type)[-1] * pairs
    accumulator: Type = F64 if a.float is F64 else F32
    limit = 1 << (53 if accumulator is F64 else 24)
    if terms * magnitude**2 + _DIGIT >= limit:
        native = False
        if narrow:
            left, right, base = (*(_digits(rewriter, o, False) for o in (a, b)), PRIME)
    if not native:
        accumulator = I32
        if terms * _DIGIT**2 + _DIGIT >= 1 << 31:
            raise ExactModeError(
                "a dot has too many terms along K for exact accumulation in i32",
                "use a block of at most 32,768 along K",
                builder.location,
            )
    kinds = (a.float, b.float) if native else (I8, I8)
    parts = {
        PRIME**place: rewriter.formula(
            ("digit", ring.bits, place, accumulator),
            lambda x, place=place: digit(ring, x, place).cast(accumulator),
            [c],
            accumulator,
        )
        for place in range(ring.digits)
    }
    zero: Value | None = None
    for i, u in enumerate(left):
        for j, v in enumerate(right):
            scale = base ** (i + j)
            if not scale % ring.modulus:
                continue
            if scale not in parts and zero is None:
                zero = builder.constant_like(with_element(result, accumulator), 0)
            parts[scale] = builder.dot(
                _cast(builder, u, kinds[0]),
                _cast(builder, v, kinds[1]),
                parts.get(scale, zero),
                **(attributes if native else {}),
            )
    scales = tuple(parts)
    found = rewriter.formula(
        ("recombined", ring.bits, scales, accumulator),
        lambda *sums: recombined(ring, scales, *sums),
        [*parts.values()],
        ring.payload,
    )
    source = a.ring if a.ring.bits >= b.ring.bits else b.ring
    rows = _spread(builder, _maximum(builder, a.payloads, result.rank - 1), result.rank - 1, result)
    columns = _spread(
        builder, _maximum(builder, b.payloads, result.rank - 2), result.rank - 2, result
    )
    return rewriter.formula(
        ("codes of a dot", ring.bits, source.bits),
        lambda *numbers: _with_codes(ring, source, *numbers),
        [found, rows, columns, c],
        ring.payload,
    )


def _holds(element: FloatType, magnitude: int) -> bool:
    """Return whether a float type has all integers up to a magnitude; f8e4b15 ends below 2."""
    return magnitude <= min(2 << element.mantissa, max_finite(element))


def _digits(rewriter: ExactContext, operand: DotOperand, narrow: bool) -> list[Value]:
    ring, write = operand.ring, _half_digit if narrow else digit
    return [
        rewriter.formula(
            (write.__name__, ring.bits, place),
            lambda x, place=place: write(ring, x, place),
            [operand.payloads],
            I32,
        )
        for place in range(2 if narrow else ring.digits)
    ]


def _cast(builder: Any, digits: Value, element: Type) -> Value:
    found: Value = builder.cast(digits, result=with_element(digits.type, element))
    return found


def _maximum(builder: Any, payloads: Value, axis: int) -> Value:
    """Return the largest payload along an axis, which is a code if any element is one."""
    element = element_type(payloads.type)
    combine = Region([element, element], ["a", "b"])
    with builder.at_region(combine):
        builder.yield_([builder.max(*combine.arguments)])
    found: Value = builder.region_op("reduce", [payloads], regions=[combine], axis=axis).result
    return found


def _spread(builder: Any, value: Value, axis: int, like: TileType) -> Value:
    thin = builder.expand_dims(value, axis=axis)
    found: Value = builder.broadcast(thin, result=with_element(like, element_type(value.type)))
    return found


@whole(
    "dot",
    "the residue of a @ b + c, exactly; undefined where an infinity meets it",
    keeps=("any order, tiling and split of the terms along K",),
    applies=touches_floats,
)
def dot(rewriter: ExactContext, operation: Dot) -> list[Value]:
    a, b, c = rewriter.payloads(operation.operands)
    left, right = (element_type(value.type) for value in (operation.a, operation.b))
    assert isinstance(left, FloatType) and isinstance(right, FloatType)
    attributes: dict[str, Any] = {"precision": operation.precision}
    if left.is_fp8:
        attributes["max_imprecise"] = min(operation.max_imprecise or _IMPRECISE, _IMPRECISE)
    return [
        digit_dot(
            rewriter,
            DotOperand(a, ring_of(left), left),
            DotOperand(b, ring_of(right), right),
            c,
            ring_of(operation.c.type),
            attributes,
        )
    ]
