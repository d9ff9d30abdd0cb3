"""Rules of dots."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.derivatives.adjoint.adjoint_builder import AdjointBuilder
from tilewright.derivatives.adjoint.rules import transposes
from tilewright.derivatives.cotangent_types import cotangent_type
from tilewright.derivatives.scaled_operands import operands_of, transposed
from tilewright.ir.core import Value
from tilewright.ir.ops.linear import Dot, DotScaled
from tilewright.ir.types import F32, FloatType, element_type, shape_of, with_element


@transposes(Dot, "dy b' for a, a' dy for b, in the type of the operands; dy for c")
def dot(builder: AdjointBuilder, operation: Dot, dy: Value) -> None:
    """Multiply the cotangent by the other operand, transposed.

    It is cast to the operands' type, as in backward kernels that are written by hand; but not to
    fp8, whose operands are cast to f32 instead.
    """
    b = builder.b
    left, right = (_operand(builder, value) for value in (operation.a, operation.b))
    rank = len(shape_of(left.type))
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    narrow = builder.to(dy, with_element(dy.type, element_type(left.type)))
    named: dict[str, Any] = {"precision": operation.precision, "order": operation.order}
    if operation.a in builder.varied:
        zero = b.constant_like(cotangent_type(operation.a.type), 0.0)
        made = b.dot(narrow, b.permute(right, order=swapped), zero, **named)
        builder.add_cotangent(operation.a, made, fresh=True)
    if operation.b in builder.varied:
        zero = b.constant_like(cotangent_type(operation.b.type), 0.0)
        made = b.dot(b.permute(left, order=swapped), narrow, zero, **named)
        builder.add_cotangent(operation.b, made, fresh=True)
    builder.add_cotangent(operation.c, dy)


def _operand(builder: AdjointBuilder, value: Value) -> Value:
    """Return an operand for the dots of the adjoint.

    Its rows that masked-off lanes made infinite or NaN meet cotangents of zero, and the dot sums
    over the rows: they become zero.
    """
    found = builder.primal[value]
    element = element_type(found.type)
    if isinstance(element, FloatType) and element.is_fp8:
        found = builder.to(found, with_element(found.type, F32))
    return _cleaned(builder, value, found)


def _cleaned(builder: AdjointBuilder, value: Value, found: Value) -> Value:
    """Return a tile made of an operand, with zeros where masked-off lanes are not finite."""
    b = builder.b
    if value not in builder.analysis.finiteness.unsafe:
        return found
    zero = b.constant_like(found.type, 0.0)
    is_finite = b.cmp(b.abs(found), b.constant_like(found.type, math.inf), predicate="lt")
    cleaned: Value = b.select(is_finite, found, zero)
    return cleaned


@transposes(DotScaled, "dy b' for a, a' dy for b, of f32 and times the scales; dy for c")
def dot_scaled(builder: AdjointBuilder, operation: DotScaled, dy: Value) -> None:
    b, varied = builder.b, builder.varied
    left, right = operands_of(operation)
    if left.value in varied:
        other = transposed(b, _cleaned(builder, right.value, right.elements(b, _primal(builder))))
        zero = b.constant_like(cotangent_type(left.value.type), 0.0)
        made = b.dot(dy, other, zero)
        builder.add_cotangent(left.value, left.scaled(b, made, _primal(builder)))
    if right.value in varied:
        other = transposed(b, _cleaned(builder, left.value, left.elements(b, _primal(builder))))
        zero = b.constant_like(cotangent_type(right.value.type), 0.0)
        made = b.dot(other, dy, zero)
        builder.add_cotangent(right.value, right.scaled(b, made, _primal(builder)))
    builder.add_cotangent(operation.c, dy)


def _primal(builder: AdjointBuilder) -> Callable[[Value], Value]:
    return builder.primal.__getitem__
