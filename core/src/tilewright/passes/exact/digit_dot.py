"""Dots of payloads by balanced digits (:mod:`.digits`), in the target's own dot instructions.

A dot for each pair of digits; the digits of the accumulator enter the dots of their weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.ir.core import Region, Value
from tilewright.ir.expressions import Number
from tilewright.ir.ops.linear import Dot
from tilewright.ir.types import FloatType, TileType, element_type, shape_of, with_element
from tilewright.passes.exact.digits import (
    DigitOperand,
    DigitPlan,
    accumulator_digit,
    codes_of_maxima,
    is_nan,
    operand_digit,
    plan_digits,
    residue_of_sums,
    with_codes,
)
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.ring import PRIME, ring_of
from tilewright.passes.exact.rules import touches_floats, whole
from tilewright.passes.rewriter import constant_of

if TYPE_CHECKING:
    from tilewright.passes.exact.context import ExactContext

#: Terms along K that fp8 instructions may accumulate at their reduced precision.
_IMPRECISE = 32


@dataclass(frozen=True, slots=True)
class DotPayloads:
    """The operands of a dot in the new module.

    Attributes:
        a, b: tiles of payloads.
        attributes: of a dot in the operands' own floats.
    """

    a: Value
    b: Value
    attributes: dict[str, Any]


def digit_dot(
    context: ExactContext, plan: DigitPlan, operands: DotPayloads, c: Value, *, from_zero: bool
) -> Value:
    """Append ``a @ b + c`` over payloads; ``c`` and the result are payloads of the plan's ring.

    Args:
        from_zero: whether ``c`` is zero.
    """
    like = c.type
    assert isinstance(like, TileType)
    if shape_of(operands.a.type)[-1] > plan.capacity:
        raise ExactModeError(
            "a dot has too many terms along K for exact accumulation in i32",
            f"use a block of at most {plan.capacity:,} along K",
            context.builder.location,
        )
    sums: dict[int, Value] = {}
    if not from_zero:
        sums = {
            PRIME**place: context.formula(
                ("accumulator digit", plan.ring.bits, place, plan.accumulator),
                lambda x, place=place: accumulator_digit(plan, x, place),
                [c],
                plan.accumulator,
            )
            for place in range(plan.ring.digits)
        }
    add_digit_dots(context, plan, operands, sums, like)
    maxima: Sequence[Value] = ()
    if not plan.is_native:
        maxima = spread_maxima(context, line_maxima(context, operands.a, operands.b), like)
    return residue(context, plan, sums, None if from_zero else c, maxima, adds_c=False)


def add_digit_dots(
    context: ExactContext,
    plan: DigitPlan,
    operands: DotPayloads,
    sums: dict[int, Value],
    like: TileType,
) -> None:
    """Append the dots of all pairs of digits, and update the sums by weight.

    Args:
        like: a type of the result's shape.
    """
    builder = context.builder
    digits = [
        [
            context.formula(
                ("operand digit", plan.a, plan.b, plan.accumulator, is_a, place),
                lambda x, is_a=is_a, place=place: operand_digit(plan, is_a, x, place),
                [payloads],
                kind,
            )
            for place in range(count)
        ]
        for is_a, payloads, kind, count in zip(
            (True, False), (operands.a, operands.b), plan.kinds, plan.counts, strict=True
        )
    ]
    attributes = operands.attributes if plan.is_native else {}
    for i, j, weight in plan.pairs:
        if weight not in sums:
            sums[weight] = builder.constant_like(with_element(like, plan.accumulator), 0)
        sums[weight] = builder.dot(digits[0][i], digits[1][j], sums[weight], **attributes)


def residue(
    context: ExactContext,
    plan: DigitPlan,
    sums: dict[int, Value],
    c: Value | None,
    maxima: Sequence[Value],
    *,
    adds_c: bool,
) -> Value:
    """Append the payload of sums by weight.

    Args:
        c: the payload of the accumulator; None where it is known to be zero.
        maxima: the largest payloads of each row and column, in the result's shape, where digits
            are in i8; empty where sums hold no codes.
        adds_c: whether the sums lack ``c``.
    """
    weights = tuple(sums)
    n = len(weights)

    def written(*numbers: Number) -> Number:
        own, rest = numbers[:n], list(numbers[n:])
        number = None if c is None else rest.pop(0)
        limit, ring = plan.limit, plan.ring
        found = residue_of_sums(ring, weights, limit, own, number if adds_c else None)
        if plan.is_native:
            second = weights.index(16 if plan.is_narrow else PRIME)
            flags = is_nan(own[second]), is_nan(own[weights.index(1)])
        elif rest:
            flags = codes_of_maxima(plan, rest[0], rest[1])
        else:
            assert number is not None
            is_coded = number >= ring.modulus
            return with_codes(ring, found, is_coded, number.equals(ring.nan), number)
        return with_codes(ring, found, *flags, number)

    key = ("residue", plan.a, plan.b, plan.ring.bits, plan.accumulator, weights)
    operands = [*sums.values(), *(() if c is None else (c,)), *maxima]
    return context.formula(
        (*key, c is not None, len(maxima), adds_c), written, operands, plan.ring.payload
    )


def line_maxima(context: ExactContext, a: Value, b: Value) -> list[Value]:
    """The largest payload of each row of ``a`` and of each column of ``b``."""
    rank = len(shape_of(a.type))
    return [
        _maximum(context.builder, payloads, axis)
        for payloads, axis in ((a, rank - 1), (b, rank - 2))
    ]


def spread_maxima(context: ExactContext, maxima: Sequence[Value], like: TileType) -> list[Value]:
    """The maxima of rows and columns in a result's shape."""
    axes = (like.rank - 1, like.rank - 2)
    return [
        _spread(context.builder, value, axis, like)
        for value, axis in zip(maxima, axes, strict=True)
    ]


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


def plan_of_dot(way: str, operation: Dot) -> DigitPlan:
    """The digits of a dot of the module on floats."""
    left, right = (element_type(value.type) for value in (operation.a, operation.b))
    assert isinstance(left, FloatType) and isinstance(right, FloatType)
    a, b = (DigitOperand(ring_of(kind), kind) for kind in (left, right))
    return plan_digits(way, a, b, ring_of(operation.c.type), shape_of(operation.a.type)[-1])


def payloads_of_dot(context: ExactContext, operation: Dot) -> DotPayloads:
    """The operands of a dot of the module on floats."""
    a, b = context.payloads((operation.a, operation.b))
    attributes: dict[str, Any] = {"precision": operation.precision}
    left = element_type(operation.a.type)
    assert isinstance(left, FloatType)
    if left.is_fp8:
        attributes["max_imprecise"] = min(operation.max_imprecise or _IMPRECISE, _IMPRECISE)
    return DotPayloads(a, b, attributes)


def is_zero(value: Value) -> bool:
    """Return whether a value of the module on floats is a constant zero."""
    return bool(constant_of(value) == 0)


@whole(
    "dot",
    "the residue of a @ b + c, exactly; undefined where an infinity meets it",
    keeps=("any order, tiling and split of the terms along K",),
    applies=touches_floats,
)
def dot(context: ExactContext, operation: Dot) -> list[Value]:
    plan = plan_of_dot(context.options.dot, operation)
    (c,) = context.payloads([operation.c])
    operands = payloads_of_dot(context, operation)
    return [digit_dot(context, plan, operands, c, from_zero=is_zero(operation.c))]
