"""Operations that move or repeat elements."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, OptionalOperand, SingleOperand, TypedAttribute
from tilewright.ir.ops.rules import (
    require,
    require_axis,
    require_int,
    require_mask,
    require_same,
    require_tile,
)
from tilewright.ir.table import Shape, Trait
from tilewright.ir.types import I32, TileType, Type, tile_or_scalar


def _splat(shape: Shape) -> Sequence[Type]:
    source, result = shape.type("x"), require_tile(shape.result, "result")
    require(source.is_scalar, f"operand must be a scalar, not {source}")
    require(
        result.element is source, f"the result's element must be {source}, not {result.element}"
    )
    return (result,)


def _unsplat(shape: Shape) -> Sequence[Type]:
    source = require_tile(shape.type("x"), "operand")
    require(source.numel == 1, f"operand must have one element, not {source}")
    return (source.element,)


def _broadcast(shape: Shape) -> Sequence[Type]:
    source, result = require_tile(shape.type("x"), "operand"), require_tile(shape.result, "result")
    require(
        source.element is result.element,
        f"operand and result must have one element type, not {source} and {result}",
    )
    fits = source.rank == result.rank and all(
        a in (1, b) for a, b in zip(source.shape, result.shape, strict=True)
    )
    require(fits, f"only extents of 1 grow, and the rank stays: not {source} to {result}")
    return (result,)


def _expand_dims(shape: Shape) -> Sequence[Type]:
    source, axis = require_tile(shape.type("x"), "operand"), shape.attributes["axis"]
    require_axis(axis, source.rank + 1)
    return (TileType((*source.shape[:axis], 1, *source.shape[axis:]), source.element),)


def _reshape(shape: Shape) -> Sequence[Type]:
    source, result = require_tile(shape.type("x"), "operand"), require_tile(shape.result, "result")
    require(
        source.element is result.element,
        f"operand and result must have one element type, not {source} and {result}",
    )
    require(
        source.numel == result.numel,
        f"operand and result must have as many elements, not {source} and {result}",
    )
    return (result,)


def _permute(shape: Shape) -> Sequence[Type]:
    source, order = require_tile(shape.type("x"), "operand"), shape.attributes["order"]
    require(
        sorted(order) == list(range(source.rank)),
        f"order {order} is not a permutation of the {source.rank} axes of {source}",
    )
    return (TileType(tuple(source.shape[axis] for axis in order), source.element),)


def _cat(shape: Shape) -> Sequence[Type]:
    a, b, axis = (
        require_tile(shape.type("a"), "a"),
        require_tile(shape.type("b"), "b"),
        shape.attributes["axis"],
    )
    require(
        a.element is b.element and a.rank == b.rank,
        f"operands must have one element type and rank, not {a} and {b}",
    )
    require_axis(axis, a.rank)
    agree = all(x == y for i, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)) if i != axis)
    require(agree, f"extents other than axis {axis} must agree, not {a} and {b}")
    return (
        TileType(
            tuple(
                x + y if i == axis else x
                for i, (x, y) in enumerate(zip(a.shape, b.shape, strict=True))
            ),
            a.element,
        ),
    )


def _join(shape: Shape) -> Sequence[Type]:
    a, b = shape.type("a"), shape.type("b")
    require_same((a, b), "operands")
    tile = require_tile(a, "operands")
    return (TileType((*tile.shape, 2), tile.element),)


def _split(shape: Shape) -> Sequence[Type]:
    source = require_tile(shape.type("x"), "operand")
    require(source.shape[-1] == 2, f"the last extent must be 2, not {source}")
    part = tile_or_scalar(source.shape[:-1], source.element)
    return (part, part)


def _gather(shape: Shape) -> Sequence[Type]:
    source, index = require_tile(shape.type("x"), "x"), require_tile(shape.type("index"), "index")
    axis = shape.attributes["axis"]
    require_int(index, "index")
    require(source.rank == index.rank, f"x and index must have one rank, not {source} and {index}")
    require_axis(axis, source.rank)
    agree = all(
        a == b for i, (a, b) in enumerate(zip(source.shape, index.shape, strict=True)) if i != axis
    )
    require(agree, f"extents other than axis {axis} must agree, not {source} and {index}")
    return (TileType(index.shape, source.element),)


def _histogram(shape: Shape) -> Sequence[Type]:
    source = require_tile(shape.type("x"), "x")
    require_int(source, "x")
    require(source.rank == 1, f"x must have rank 1, not {source}")
    require_mask(shape.optional("mask"), source)
    require(
        shape.attributes["bins"] >= 1, f"bins must be at least 1, not {shape.attributes['bins']}"
    )
    return (TileType((shape.attributes["bins"],), I32),)


OPS = Declarations()


class Moved(Operation):
    """An operation that moves or repeats the elements of one operand."""

    __slots__ = ()

    x = SingleOperand()


@OPS.operation(
    "splat", "a tile with x in every element", _splat, traits=Trait.SHAPE, explicit_results=True
)
class Splat(Moved):
    __slots__ = ()


@OPS.operation(
    "unsplat",
    "the only element of a tile with one element, as a scalar",
    _unsplat,
    traits=Trait.SHAPE,
)
class Unsplat(Moved):
    __slots__ = ()


@OPS.operation(
    "broadcast",
    "x broadcast to another shape: the element of an axis of extent 1 is repeated along the axis",
    _broadcast,
    traits=Trait.SHAPE,
    explicit_results=True,
)
class Broadcast(Moved):
    __slots__ = ()


@OPS.operation(
    "expand_dims",
    "x with a new axis of extent 1, at position `axis` of the result",
    _expand_dims,
    traits=Trait.SHAPE,
)
class ExpandDims(Moved):
    __slots__ = ()

    axis = TypedAttribute[int]()


@OPS.operation(
    "reshape",
    "a tile that has another shape than x, and the elements of x in the same row-major order",
    _reshape,
    traits=Trait.SHAPE,
    explicit_results=True,
)
class Reshape(Moved):
    __slots__ = ()

    reorder = TypedAttribute[bool]("whether the elements may be in any order", False)


@OPS.operation(
    "permute",
    "x with its axes reordered: axis i of the result is axis order[i] of x",
    _permute,
    traits=Trait.SHAPE,
)
class Permute(Moved):
    __slots__ = ()

    order = TypedAttribute[tuple[int, ...]]()


@OPS.operation("cat", "a and b concatenated along an axis", _cat, traits=Trait.SHAPE)
class Cat(Operation):
    __slots__ = ()

    a = SingleOperand()
    b = SingleOperand()
    axis = TypedAttribute[int]()


@OPS.operation(
    "join", "a and b joined along a new last axis of extent 2", _join, traits=Trait.SHAPE
)
class Join(Operation):
    __slots__ = ()

    a = SingleOperand()
    b = SingleOperand()


@OPS.operation(
    "split",
    "two tiles: the elements of x whose index along the last axis is 0, and the elements whose "
    "index along the last axis is 1. The extent of the last axis of x must be 2",
    _split,
    traits=Trait.SHAPE,
)
class Split(Moved):
    __slots__ = ()


@OPS.operation(
    "gather",
    "elements of x. The result has the shape of `index`. For example, if x has two axes and `axis` "
    "is 0, the element (i, j) of the result is x[index[i, j], j]. An element of the result is "
    "undefined if its value in `index` is outside the range of the axis",
    _gather,
    traits=Trait.BITWISE,
)
class Gather(Operation):
    __slots__ = ()

    x = SingleOperand()
    index = SingleOperand()
    axis = TypedAttribute[int]()


@OPS.operation(
    "histogram",
    "the number of occurrences of each value from 0 to bins-1 among the elements of x for which "
    "the mask is true. Elements of x with other values are not counted",
    _histogram,
    traits=Trait.BITWISE,
)
class Histogram(Operation):
    __slots__ = ()

    x = SingleOperand()
    mask = OptionalOperand()
    bins = TypedAttribute[int]()
