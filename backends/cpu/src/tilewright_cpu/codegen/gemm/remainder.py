"""Remainders of matmuls: the extents to compute where masks cut the operands.

A masked load is zero beyond the bounds of its mask, so terms beyond the bound along K of both
operands are zero and are omitted. Rows beyond a bound of A would only add zero times an element of
B to the accumulator, columns beyond one of B likewise. That changes nothing but NaN and infinity
into NaN; they are omitted where nobody can see it: where the result is only stored under the same
bound.
"""

from __future__ import annotations

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.control import For, If, Yield
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.linear import Dot, DotScaled
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.ops.shape import Permute
from tilewright.ir.types import TileType
from tilewright.passes.rewriter import constant_of
from tilewright_cpu.codegen.analysis.mask_bounds import (
    Axes,
    PrefixBound,
    bound_of,
    emit_limit,
    operand_axes,
    placed_conjuncts,
)
from tilewright_cpu.codegen.analysis.strides import stride_along
from tilewright_cpu.codegen.analysis.tiles import is_tile
from tilewright_cpu.codegen.context import ZERO, Context
from tilewright_cpu.codegen.gemm.extent_limit import ALL, Limits

_LOOKED_THROUGH = Permute | Cast | Hint


def limits_of(context: Context, operation: Dot) -> Limits:
    """The limits of a dot of rank 2, as code at the current point."""
    a, b, result = operation.a, operation.b, operation.result
    assert isinstance(result.type, TileType) and isinstance(a.type, TileType)
    if result.type.rank != 2:
        return ALL
    (rows, k_of_a), (k_of_b, columns) = (_bounds(context, operand) for operand in (a, b))
    rows, columns = (
        [bound for bound in bounds if is_masked_beyond(context, result, axis, bound.leaf)]
        for axis, bounds in ((0, rows), (1, columns))
    )
    m, n = result.type.shape
    k = a.type.shape[1]
    with context.nest():
        limit_a, limit_b = _minimum(context, k_of_a, k), _minimum(context, k_of_b, k)
        limit_k = None
        if limit_a is not None and limit_b is not None:
            # Beyond the lesser of the two one operand may be infinite, and zero times that is not
            # zero.
            limit_k = (
                limit_a
                if limit_a == limit_b
                else context.writer.intrinsic(
                    "llvm.smax", "i64", [("i64", limit_a), ("i64", limit_b)]
                )
            )
        return Limits(_minimum(context, rows, m), _minimum(context, columns, n), limit_k)


def accumulator_ends(context: Context, loop: For, accumulator: Value) -> dict[int, str]:
    """Extents of a loop-carried accumulator that are read (i64s), by axis, in front of the loop.

    A dot adds to the accumulator, whose operands are masked by comparisons of values from outside
    the loop, and the result is stored under the same comparisons.
    """
    dots = [user for user in accumulator.uses if isinstance(user, Dot) and user.c is accumulator]
    if not dots:
        return {}
    dot, ends = dots[0], dict[int, str]()
    type_ = dot.result.type
    assert isinstance(type_, TileType)
    if type_.rank != 2:
        return {}
    with context.nest():
        for axis, operand in enumerate((dot.a, dot.b)):
            bounds = [
                bound
                for bound in _bounds(context, operand, before=loop)[axis]
                if is_masked_beyond(context, dot.result, axis, bound.leaf)
            ]
            end = _minimum(context, bounds, type_.shape[axis])
            if end is not None:
                ends[axis] = end
    return ends


def _minimum(context: Context, bounds: list[PrefixBound], extent: int) -> str | None:
    found: str | None = None
    for bound in bounds:
        limit = emit_limit(context, bound, (ZERO, ZERO), extent)
        found = (
            limit
            if found is None
            else context.writer.intrinsic("llvm.smin", "i64", [("i64", found), ("i64", limit)])
        )
    return found


def _bounds(
    context: Context, value: Value, before: Operation | None = None
) -> tuple[list[PrefixBound], list[PrefixBound]]:
    """Bounds along each axis of an operand beyond which it is zero.

    With ``before`` they are those alone that are known in front of that operation.
    """
    axes: Axes = (0, 1)
    value = context.resolve(value)
    operation = value.definition
    while value not in context.buffers and isinstance(operation, _LOOKED_THROUGH):
        axes = operand_axes(value, axes, 0)
        value = context.resolve(operation.x)
        operation = value.definition
    none: tuple[list[PrefixBound], list[PrefixBound]] = ([], [])
    if not isinstance(operation, Load) or value in context.buffers:
        return none
    mask, other = operation.mask, operation.other
    if mask is None or (other is not None and constant_of(other) != 0):
        return none
    for leaf, leaf_axes in placed_conjuncts(context, mask, axes):
        if leaf in context.buffers or (before is not None and not _is_known(context, leaf, before)):
            continue
        moving = [
            axis
            for position, axis in enumerate(leaf_axes)
            if axis is not None and stride_along(context, leaf, position) != 0
        ]
        if len(moving) == 1:
            bound = bound_of(context, leaf, leaf_axes, moving[0])
            if bound is not None:
                none[moving[0]].append(bound)
    return none


def _is_known(context: Context, value: Value, before: Operation) -> bool:
    """Return whether an operation in front of ``before`` makes a value."""
    definition, start = value.definition, context.analysis.start
    return definition is not None and start.get(definition, start[before]) < start[before]


def is_masked_beyond(context: Context, result: Value, axis: int, leaf: Value) -> bool:
    """Return whether a tile's elements are only stored where ``leaf`` holds along ``axis``.

    Elements are followed through operations that keep them in place.
    """
    stack, seen = [result], set()
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        for user in value.uses:
            following = _followed(context, value, user, axis, leaf)
            if following is None:
                return False
            stack.extend(following)
    return True


def _followed(
    context: Context, value: Value, user: Operation, axis: int, leaf: Value
) -> list[Value] | None:
    """Return the values computed elementwise from ``value``; None if its elements are read."""
    places = [position for position, operand in enumerate(user.operands) if operand is value]
    if isinstance(user, Store):
        return [] if places == [1] and _stored_under(context, user, axis, leaf) else None
    if isinstance(user, Dot | DotScaled):
        return list(user.results) if places == [len(user.operands) - 1] else None
    if user.spec.elementwise:
        return list(user.results)
    owner = user.parent.owner if isinstance(user, Yield) and user.parent is not None else user
    if isinstance(owner, If):
        return [owner.results[position] for position in places] if owner is not user else None
    if not isinstance(owner, For):
        return None
    first = 3 if owner is user else 0
    body = owner.body
    return [
        carried
        for position in places
        for carried in (body.arguments[position - first + 1], owner.results[position - first])
    ]


def _stored_under(context: Context, store: Store, axis: int, leaf: Value) -> bool:
    mask = store.mask
    if mask is None or not is_tile(mask):
        return False
    return any(
        found is leaf and axis in axes for found, axes in placed_conjuncts(context, mask, (0, 1))
    )
