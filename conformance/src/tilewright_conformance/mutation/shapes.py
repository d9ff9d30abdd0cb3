"""Bugs of operations that move elements: layouts gone wrong."""

from __future__ import annotations

from typing import Any

from tilewright.ir import Builder, Operation, Value
from tilewright.ir.types import TileType, shape_of
from tilewright_conformance.mutation.mutant import Switch, rewriting
from tilewright_conformance.mutation.rewriting import CHANGED, element, like, mask_lost


def _shaped(b: Builder, value: Value, type_: Any) -> Value:
    found: Value = b.reshape(value, result=type_) if value.type is not type_ else value
    return found


def _inverse_order(operation: Operation, b: Builder) -> Any:
    order = operation.attribute("order")
    inverse = tuple(order.index(axis) for axis in range(len(order)))
    if inverse == order:
        return None
    return _shaped(b, b.permute(operation.operands[0], order=inverse), operation.result.type)


def _not_moved(operation: Operation, b: Builder) -> Any:
    return _shaped(b, operation.operands[0], operation.result.type)


def _by_columns(operation: Operation, b: Builder) -> Any:
    (x,) = operation.operands
    rank = len(shape_of(x.type))
    if rank < 2 or operation.attribute("reorder"):
        return None
    reversed_axes = b.permute(x, order=tuple(reversed(range(rank))))
    return _shaped(b, reversed_axes, operation.result.type)


def _one_behind_the_other(operation: Operation, b: Builder) -> Any:
    return _shaped(b, b.cat(*operation.operands, axis=0), operation.result.type)


def _halves(operation: Operation, b: Builder) -> Any:
    (x,) = operation.operands
    assert isinstance(x.type, TileType)
    numel, element_ = x.type.numel // 2, x.type.element
    if numel == 1:
        return None
    parts = b.split(b.permute(b.reshape(x, result=TileType((2, numel), element_)), order=(1, 0)))
    return [
        _shaped(b, part, result.type) for part, result in zip(parts, operation.results, strict=True)
    ]


def _second_first(operation: Operation, b: Builder) -> Any:
    left, right = operation.operands
    return b.cat(right, left, axis=operation.attribute("axis"))


def _index_short(operation: Operation, b: Builder) -> Any:
    x, index = operation.operands
    last = shape_of(x.type)[operation.attribute("axis")] - 2
    if last < 0:
        return None
    operation.set_operand(1, b.min(index, like(b, index, last)))
    return CHANGED


def _overflow_counted(operation: Operation, b: Builder) -> Any:
    (x, *rest), last = operation.operands, operation.attribute("bins") - 1
    if last > element(x).maximum:  # type: ignore[attr-defined]
        return None
    operation.replace_operands([b.min(x, like(b, x, last)), *rest], operation.segments)
    return CHANGED


def _from_zero(operation: Operation, b: Builder) -> Any:
    start, end = operation.attribute("start"), operation.attribute("end")
    return b.arange(start=0, end=end - start) if start else None


def _other_axis(operation: Operation, b: Builder) -> Any:
    """Repeated along the other of two axes, where the extents allow it."""
    (x,), shape = operation.operands, shape_of(operation.result.type)
    before = shape_of(x.type)
    if len(shape) != 2 or shape[0] != shape[1] or before not in ((1, shape[1]), (shape[0], 1)):
        return None
    return b.broadcast(
        _shaped(b, x, TileType(before[::-1], element(x))), result=operation.result.type
    )


SWITCHES: tuple[Switch, ...] = (
    rewriting(
        "permute-inverted",
        "bad layout",
        "permute",
        _inverse_order,
        "axes are permuted by the inverse order",
    ),
    rewriting(
        "permute-reshapes",
        "bad layout",
        "permute",
        _not_moved,
        "a permuted tile has its elements in the old order",
    ),
    rewriting(
        "reshape-by-columns",
        "bad layout",
        "reshape",
        _by_columns,
        "reshape takes the elements in column-major order",
    ),
    rewriting(
        "join-concatenates",
        "bad layout",
        "join",
        _one_behind_the_other,
        "join puts one operand behind the other, not side by side",
    ),
    rewriting(
        "split-halves",
        "bad layout",
        "split",
        _halves,
        "split cuts in the middle, not between neighbours",
    ),
    rewriting(
        "cat-swapped", "swapped operands", "cat", _second_first, "cat puts its second operand first"
    ),
    rewriting(
        "broadcast-other-axis",
        "bad layout",
        "broadcast",
        _other_axis,
        "a row of a square tile is repeated along the wrong axis",
    ),
    rewriting("arange-from-zero", "edge value", "arange", _from_zero, "arange starts at zero"),
    rewriting(
        "gather-index-clamped",
        "gather",
        "gather",
        _index_short,
        "gather cannot reach the last element",
    ),
    rewriting(
        "histogram-mask-ignored",
        "masked lanes",
        "histogram",
        mask_lost,
        "histogram counts masked-off lanes",
    ),
    rewriting(
        "histogram-overflow-counted",
        "edge value",
        "histogram",
        _overflow_counted,
        "values beyond the last bin are counted in it",
    ),
)
