"""Rules of operations that move or repeat elements, and of casts."""

from __future__ import annotations

from tilewright.derivatives.adjoint.adjoint_builder import AdjointBuilder
from tilewright.derivatives.adjoint.rules import transposes
from tilewright.derivatives.adjoint.tile_sums import sum_along, sum_keeping
from tilewright.derivatives.analysis.constant_tiles import constant_tile, is_involution
from tilewright.derivatives.cotangent_types import cotangent_type, is_float
from tilewright.derivatives.refusals import refusal
from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.shape import (
    Broadcast,
    Cat,
    ExpandDims,
    Gather,
    Join,
    Permute,
    Reshape,
    Splat,
    Split,
    Unsplat,
)
from tilewright.ir.types import I32, TileType, element_type, shape_of
from tilewright.passes.rewriter import constant_of


@transposes(Cast, "dy, cast back; casts to and from integers have no derivative")
def cast(builder: AdjointBuilder, operation: Cast, dy: Value) -> None:
    builder.add_cotangent(operation.x, dy)


@transposes(Splat, "the sum of dy")
def splat(builder: AdjointBuilder, operation: Splat, dy: Value) -> None:
    for axis in reversed(range(len(shape_of(dy.type)))):
        dy = sum_along(builder.b, dy, axis)
    builder.add_cotangent(operation.x, dy)


@transposes(Unsplat, "dy, as a tile of one element")
def unsplat(builder: AdjointBuilder, operation: Unsplat, dy: Value) -> None:
    builder.add_cotangent(operation.x, builder.b.splat(dy, result=cotangent_type(operation.x.type)))


@transposes(Broadcast, "the sums of dy along the broadcast axes")
def broadcast(builder: AdjointBuilder, operation: Broadcast, dy: Value) -> None:
    before, after = shape_of(operation.x.type), shape_of(operation.result.type)
    for axis, (small, large) in enumerate(zip(before, after, strict=True)):
        if small != large:
            dy = sum_keeping(builder.b, dy, axis)
    builder.add_cotangent(operation.x, dy)


@transposes(ExpandDims, "dy, without the axis")
def expand_dims(builder: AdjointBuilder, operation: ExpandDims, dy: Value) -> None:
    _reshape_back(builder, operation, dy)


@transposes(Reshape, "dy, in the operand's shape; refused where reorder is set")
def reshape(builder: AdjointBuilder, operation: Reshape, dy: Value) -> None:
    if operation.reorder:
        raise refusal(
            operation,
            "can_reorder leaves the elements in no known order",
            "reshape without can_reorder",
        )
    _reshape_back(builder, operation, dy)


def _reshape_back(builder: AdjointBuilder, operation: Reshape | ExpandDims, dy: Value) -> None:
    builder.add_cotangent(
        operation.x, builder.b.reshape(dy, result=cotangent_type(operation.x.type))
    )


@transposes(Permute, "dy, permuted back")
def permute(builder: AdjointBuilder, operation: Permute, dy: Value) -> None:
    b, dot, order = builder.b, dy.definition, operation.order
    swapped = (*range(len(order) - 2), len(order) - 1, len(order) - 2)
    if isinstance(dot, Dot) and order == swapped and _is_unread(builder, dot):
        # (a b)' = b' a'
        left, right = (b.permute(value, order=swapped) for value in (dot.b, dot.a))
        made = b.dot(
            left,
            right,
            builder.zero(operation.x.type),
            precision=dot.precision,
            order=dot.order,
        )
        builder.add_cotangent(operation.x, made, fresh=True)
        dot.erase()
        return
    inverse = tuple(order.index(axis) for axis in range(len(order)))
    builder.add_cotangent(operation.x, b.permute(dy, order=inverse))


def _is_unread(builder: AdjointBuilder, dot: Dot) -> bool:
    """Return whether a dot of the adjoint was made for the one cotangent at hand."""
    held = builder.cotangents.values()
    return (
        dot.parent is builder.b.region
        and not dot.result.uses
        and constant_of(dot.c) == 0.0
        and all(value is not dot.result for value in held)
    )


@transposes(Join, "dy, split")
def join(builder: AdjointBuilder, operation: Join, dy: Value) -> None:
    a, b = builder.b.split(dy)
    builder.add_cotangent(operation.a, a)
    builder.add_cotangent(operation.b, b)


@transposes(Split, "da and db, joined")
def split(builder: AdjointBuilder, operation: Split, da: Value | None, db: Value | None) -> None:
    if not is_float(operation.x):
        return
    half = operation.results[0].type
    if isinstance(half, TileType):
        parts = [builder.zero(half) if part is None else part for part in (da, db)]
        builder.add_cotangent(operation.x, builder.b.join(*parts))
        return
    # of two elements: a scalar each
    tile = cotangent_type(operation.x.type)
    index = builder.b.arange(start=0, end=2)
    is_second = builder.b.cmp(index, builder.b.constant_like(index.type, 1), predicate="eq")
    wide = [
        builder.zero(tile) if part is None else builder.b.splat(part, result=tile)
        for part in (da, db)
    ]
    builder.add_cotangent(operation.x, builder.b.select(is_second, wide[1], wide[0]))


@transposes(Cat, "dy, cut in two; the operands must have one extent")
def cat(builder: AdjointBuilder, operation: Cat, dy: Value) -> None:
    b, shape, axis = builder.b, shape_of(dy.type), operation.axis
    if shape_of(operation.a.type) != shape_of(operation.b.type):
        raise refusal(
            operation,
            f"of extents {shape_of(operation.a.type)[axis]} and "
            f"{shape_of(operation.b.type)[axis]}, between which no operation cuts a tile",
            "concatenate tiles of one extent",
        )
    halves = (*shape[:axis], 2, shape[axis] // 2, *shape[axis + 1 :])
    cut = b.reshape(dy, result=TileType(halves, element_type(dy.type)))
    last = (*(i for i in range(len(halves)) if i != axis), axis)
    first, second = b.split(b.permute(cut, order=last))
    builder.add_cotangent(operation.a, first)
    builder.add_cotangent(operation.b, second)


@transposes(Gather, "dy, added to the positions from which the elements were taken")
def gather(builder: AdjointBuilder, operation: Gather, dy: Value) -> None:
    """Gather back by an index that is its own inverse; compare any other with all coordinates.

    The comparison takes the extent's square of lanes.
    """
    b, axis, index = builder.b, operation.axis, builder.primal[operation.index]
    extent = shape_of(operation.x.type)[axis]
    known = constant_tile(operation.index)
    if known is not None and is_involution(known, axis, extent):
        builder.add_cotangent(operation.x, b.gather(dy, index, axis=axis))
        return
    shape = shape_of(dy.type)
    large = (*shape[:axis], extent, *shape[axis:])  # coordinates, then the gathered elements
    coordinates = b.reshape(
        b.arange(start=0, end=extent),
        result=TileType(tuple(extent if i == axis else 1 for i in range(len(large))), I32),
    )
    coordinates = b.broadcast(coordinates, result=TileType(large, I32))
    wide_index = TileType(large, element_type(index.type))
    coordinates = builder.to(coordinates, wide_index)
    compared = b.broadcast(b.expand_dims(index, axis=axis), result=wide_index)
    wide = TileType(large, element_type(dy.type))
    spread = b.broadcast(b.expand_dims(dy, axis=axis), result=wide)
    here = b.cmp(coordinates, compared, predicate="eq")
    chosen = b.select(here, spread, b.constant_like(wide, 0.0))
    builder.add_cotangent(operation.x, sum_along(b, chosen, axis + 1))
