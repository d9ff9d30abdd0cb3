"""Masks as bounds: the lanes of a row that a comparison admits."""

from __future__ import annotations

import functools

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Cmp
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Moved, Permute, Reshape, Splat
from tilewright.ir.types import I1, I64, IntType, TileType, element_type
from tilewright.llvm.emission.casts import emit_cast
from tilewright.passes.analysis.mask_conjuncts import conjuncts
from tilewright.passes.analysis.transfer_functions import moved_axes
from tilewright_cpu.codegen.analysis.strides import stride_along
from tilewright_cpu.codegen.context import ZERO, Context, Index, scope_of, with_coordinate

#: For each axis of a value, the axis of the loop nest it runs along; None for a coordinate that is
#: always 0.
Axes = tuple[int | None, ...]


def operand_axes(value: Value, axes: Axes, number: int) -> Axes:
    """Axes of operand ``number`` of the lazy operation behind ``value``, for axes of ``value``."""
    operation = value.definition
    assert operation is not None
    operand = operation.operands[number]
    if not isinstance(operand.type, TileType):
        return ()
    if not isinstance(operation, ExpandDims | Broadcast | Permute | Reshape):
        return axes
    moved = moved_axes(operation, in_order=True)
    assert moved is not None
    extents = enumerate(operand.type.shape)
    return tuple([axes[moved(axis)] if extent > 1 else None for axis, extent in extents])


def placed_conjuncts(context: Context, mask: Value, axes: Axes) -> list[tuple[Value, Axes]]:
    """Tiles of conditions whose conjunction ``mask`` is, each with its axes."""
    found: list[tuple[Value, Axes]] = []
    leaves = conjuncts(mask, functools.partial(_is_leaf, context), context.resolve)
    for conjunct in reversed(leaves):
        if isinstance(conjunct.condition.type, TileType):
            place = axes
            for move in conjunct.moves:
                place = operand_axes(move.result, place, 0)
            found.append((conjunct.condition, place))
    return found


def _is_leaf(context: Context, value: Value) -> bool:
    """Return whether a condition is evaluated as it is: in memory, or moved in no regular way."""
    operation = value.definition
    if value in context.buffers or isinstance(operation, Splat):
        return True
    return isinstance(operation, Moved) and moved_axes(operation, in_order=True) is None


_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class PrefixBound:
    """A comparison that holds for the first lanes of a row and for no later one.

    It is ``x0 + step * lane < u`` or the like.

    Attributes:
        leaf: the comparison.
        axis: its axis that is the lane axis.
        axes: its axes in the loop nest.
    """

    __slots__ = ("axes", "axis", "leaf", "moving", "step", "still", "strict")

    def __init__(
        self,
        leaf: Value,
        axes: Axes,
        axis: int,
        moving: Value,
        still: Value,
        step: int,
        strict: bool,
    ) -> None:
        self.leaf, self.axes, self.axis, self.moving, self.still, self.step, self.strict = (
            leaf,
            axes,
            axis,
            moving,
            still,
            step,
            strict,
        )


def bound_of(context: Context, leaf: Value, axes: Axes, lane: int) -> PrefixBound | None:
    """The comparison ``leaf`` as a bound along the axis ``lane`` of a loop nest, or None."""
    operation = leaf.definition
    if not isinstance(operation, Cmp) or lane not in axes or leaf in context.buffers:
        return None
    axis = axes.index(lane)
    predicate: str = operation.predicate
    if predicate not in _FLIPPED:
        return None
    a, b = operation.a, operation.b
    element = element_type(a.type)
    if (
        not isinstance(element, IntType)
        or element is I1
        or (element.bits == 64 and not element.signed)
    ):
        return None
    step, other = stride_along(context, a, axis), stride_along(context, b, axis)
    if step == 0 and other != 0:
        a, b, step, other, predicate = b, a, other, step, _FLIPPED[predicate]
    if other != 0 or not isinstance(step, int) or step == 0:
        return None
    if (step > 0) != (predicate in ("lt", "le")):
        return None
    if not element.signed:
        return None
    return PrefixBound(leaf, axes, axis, a, b, step, predicate in ("lt", "gt"))


def emit_limit(context: Context, bound: PrefixBound, index: Index, extent: int) -> str:
    """Number of lanes of the row ``index`` that a bound admits: an i64 from 0 to ``extent``."""

    own: Index = tuple(ZERO if axis is None else index[axis] for axis in bound.axes)
    row = with_coordinate(own, bound.axis, ZERO)
    key = (bound.leaf, (*row, ZERO._replace(width=-1)))

    scope = scope_of(context, row)
    found = scope.memo.get(key)
    if found is not None:
        return found
    element = element_type(bound.moving.type)
    first, end = context.evaluate(bound.moving, row), context.evaluate(bound.still, row)
    writer = context.writer
    saved = writer.current
    if scope is not context.scopes[-1]:
        writer.current = scope.block
    first, end = (emit_cast(context, text, element, I64, 0) for text in (first, end))
    size = abs(bound.step)
    high, low = (end, first) if bound.step > 0 else (first, end)
    distance = high if low == "0" else writer.emit(f"sub i64 {high}, {low}")
    slack = size - 1 if bound.strict else size
    if slack:
        distance = writer.emit(f"add i64 {distance}, {slack}")
    distance = writer.intrinsic("llvm.smax", "i64", [("i64", distance), ("i64", "0")])
    if size > 1:
        distance = writer.emit(f"udiv i64 {distance}, {size}")
    found = writer.intrinsic("llvm.smin", "i64", [("i64", distance), ("i64", str(extent))])
    writer.current = saved
    scope.memo[key] = found
    return found
