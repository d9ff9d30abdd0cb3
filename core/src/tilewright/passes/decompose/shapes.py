"""Operations that move elements, by reshaping, repeating, choosing and reducing; and counting,
which compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.shape import Cat, ExpandDims, Gather, Histogram, Join, Split, Unsplat
from tilewright.ir.types import (
    I32,
    I64,
    IntType,
    TileType,
    Type,
    element_type,
    shape_of,
    with_element,
)
from tilewright.passes.decompose.decomposition import (
    Decomposition,
    emits,
    emitted,
    is_at,
    loop,
    pick,
    positions,
    spread,
    zero,
)
from tilewright.passes.rewriter import Rewriter


def _tile(value: Value) -> TileType:
    assert isinstance(value.type, TileType)
    return value.type


def _unsplat(operation: Unsplat, b: Rewriter) -> Any:
    x = operation.x
    element = _tile(x).element
    combine = Region([element, element], ["a", "b"])  # of one element there is nothing to combine
    with b.at_region(combine):
        b.yield_([combine.arguments[0]])
    line = b.reshape(x, result=TileType((1,), element))
    return b.region_op("reduce", [line], regions=[combine], axis=0).results


def _expand_dims(operation: ExpandDims, b: Rewriter) -> Any:
    return b.reshape(operation.x, result=operation.result.type)


@emits(is_at, spread, "constant", "select")
def _stacked(b: Rewriter, first: Value, second: Value, axis: int) -> Value:
    """Two tiles of one shape, one after the other along a new axis."""
    type_ = _tile(first)
    result = TileType((*type_.shape[:axis], 2, *type_.shape[axis:]), type_.element)
    chosen = is_at(b, result, axis, b.constant(value=0, result=I32))
    found: Value = b.select(chosen, spread(b, first, result, axis), spread(b, second, result, axis))
    return found


def _join(operation: Join, b: Rewriter) -> Any:
    first, second = operation.a, operation.b
    return _stacked(b, first, second, _tile(first).rank)


def _split(operation: Split, b: Rewriter) -> Any:
    x = operation.x
    axis = _tile(x).rank - 1
    return [pick(b, x, axis, b.constant(value=half, result=I32)) for half in (0, 1)]


def _cat(operation: Cat, b: Rewriter) -> Any:
    first, second, axis, result = operation.a, operation.b, operation.axis, _tile(operation.result)
    if first.type is second.type:
        return b.reshape(_stacked(b, first, second, axis), result=result)
    extent, at = _tile(first).shape[axis], positions(b, result, axis)
    of_first = b.cmp(at, b.constant_like(at.type, extent), predicate="lt")
    none = b.constant_like(
        at.type, 0
    )  # the other tile's elements are picked where the index has no meaning for this one
    from_first = b.gather(first, b.select(of_first, at, none), axis=axis)
    from_second = b.gather(
        second, b.select(of_first, none, b.sub(at, b.constant_like(at.type, extent))), axis=axis
    )
    return b.select(of_first, from_first, from_second)


def _gather(operation: Gather, b: Rewriter) -> Any:
    x, axis, result = operation.x, operation.axis, _tile(operation.result)
    index = _as_integer(b, operation.index, I32)

    def body(position: Value, carried: Sequence[Value]) -> Sequence[Value]:
        chosen = b.cmp(index, b.splat(position, result=index.type), predicate="eq")
        return [b.select(chosen, spread(b, pick(b, x, axis, position), result, axis), carried[0])]

    return loop(b, _tile(x).shape[axis], [zero(b, result)], body)


def _histogram(operation: Histogram, b: Rewriter) -> Any:
    x, mask, result = operation.x, operation.mask, _tile(operation.result)
    element = element_type(x.type)
    assert isinstance(element, IntType)
    # compared in a type that has all values of x, so that none is treated as a bin
    wide = I32 if element.bits < 32 or element is I32 else I64
    values, one = _as_integer(b, x, wide), b.constant_like(with_element(x.type, I32), 1)
    none = b.constant_like(one.type, 0)

    def body(position: Value, carried: Sequence[Value]) -> Sequence[Value]:
        number = position if wide is I32 else b.cast(position, result=wide)
        counted = b.cmp(values, b.splat(number, result=values.type), predicate="eq")
        if mask is not None:
            counted = b.and_(counted, mask)
        combine = Region([I32, I32], ["a", "b"])
        with b.at_region(combine):
            b.yield_([b.add(*combine.arguments)])
        (count,) = b.region_op(
            "reduce", [b.select(counted, one, none)], regions=[combine], axis=0
        ).results
        return [b.select(is_at(b, result, 0, position), b.splat(count, result=result), carried[0])]

    return loop(b, shape_of(result)[0], [b.constant_like(result, 0)], body)


def _as_integer(b: Rewriter, value: Value, type_: Type) -> Value:
    if element_type(value.type) is type_:
        return value
    found: Value = b.cast(value, result=with_element(value.type, type_))
    return found


def _operand(operation: Hint, b: Rewriter) -> Any:
    return operation.x


def _nothing(operation: Operation, b: Rewriter) -> Any:
    return ()


ROWS: tuple[Decomposition, ...] = (
    Decomposition("hint", "its operand: a promise need not be used", (), _operand),
    Decomposition("assume", "nothing: a promise need not be used", (), _nothing),
    Decomposition("expand_dims", "a reshape", ("reshape",), _expand_dims),
    Decomposition(
        "unsplat", "a reduction of one element", ("reshape", "reduce", "yield"), _unsplat
    ),
    Decomposition("join", "a choice by the position along the new axis", emitted(_stacked), _join),
    Decomposition("split", "each half masked and reduced", emitted(pick), _split),
    Decomposition(
        "cat",
        "a choice by the position along the axis; of unequal extents, gathers",
        emitted(_stacked, positions, "sub", "gather"),
        _cat,
    ),
    Decomposition(
        "gather",
        "a loop over the axis: an element for all that ask for it",
        emitted(pick, spread, zero, loop, "cast"),
        _gather,
    ),
    Decomposition(
        "histogram",
        "a loop over the bins: a sum of comparisons each",
        emitted(is_at, loop, "select", "cast", "and", "add", "reduce"),
        _histogram,
    ),
)
