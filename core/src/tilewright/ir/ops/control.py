"""Operations with regions, their terminators, and calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tilewright.ir.core import Operation
from tilewright.ir.declare import (
    Declarations,
    NamedRegion,
    SingleOperand,
    TypedAttribute,
    VariadicOperand,
)
from tilewright.ir.ops.rules import nothing, require, require_axis, require_tile
from tilewright.ir.order import ANY, Order
from tilewright.ir.table import Effect, Shape, Trait
from tilewright.ir.types import I1, IntType, TileType, Type, tile_or_scalar

if TYPE_CHECKING:
    from tilewright.ir.core import Operation, Region, Value


def _texts(types: Sequence[Type]) -> str:
    return f"({', '.join(map(str, types))})"


def _types(values: Sequence[Value]) -> list[Type]:
    return [value.type for value in values]


def require_types(found: Sequence[Type], expected: Sequence[Type], what: str) -> None:
    """Type lists must agree."""
    require(
        list(found) == list(expected),
        f"{what} must have types {_texts(expected)}, not {_texts(found)}",
    )


def _require_yield(
    region: Region, expected: Sequence[Type], what: str, terminator: str = "yield"
) -> None:
    last = region.terminator
    require(last is not None and last.name == terminator, f"{what} must end with {terminator}")
    assert last is not None
    values = last.group("values")
    require_types(_types(values), expected, f"{terminator} of {what}")


def _if_rule(shape: Shape) -> Sequence[Type]:
    require(shape.type("condition") is I1, f"condition must be i1, not {shape.type('condition')}")
    return shape.results


def _if_check(operation: Operation) -> None:
    for region, name in zip(operation.regions, ("then", "else"), strict=True):
        require(not region.arguments, f"region {name} has no arguments")
        _require_yield(region, _types(operation.results), f"region {name}")


def _for_rule(shape: Shape) -> Sequence[Type]:
    bounds = [shape.type(name) for name in ("lower", "upper", "step")]
    require(
        len(set(bounds)) == 1 and isinstance(bounds[0], IntType) and bounds[0] is not I1,
        f"lower, upper and step must have one integer type, not {_texts(bounds)}",
    )
    return tuple(shape.groups["inits"])


def _for_check(operation: Operation) -> None:
    carried = _types(operation.group("inits"))
    (body,) = operation.regions
    require_types(
        _types(body.arguments), [operation.operands[0].type, *carried], "arguments of region body"
    )
    _require_yield(body, carried, "region body")


def _while_rule(shape: Shape) -> Sequence[Type]:
    return shape.results


def _while_check(operation: Operation) -> None:
    carried, forwarded = _types(operation.group("inits")), _types(operation.results)
    before, after = operation.regions
    require_types(_types(before.arguments), carried, "arguments of region before")
    _require_yield(before, forwarded, "region before", "condition")
    require_types(_types(after.arguments), forwarded, "arguments of region after")
    _require_yield(after, carried, "region after")


def _condition(shape: Shape) -> Sequence[Type]:
    require(shape.type("condition") is I1, f"condition must be i1, not {shape.type('condition')}")
    return ()


def _same_shape_tiles(shape: Shape) -> list[TileType]:
    tiles = [require_tile(type_, "operands") for type_ in shape.groups["inputs"]]
    require(len(tiles) >= 1, "takes at least one input")
    require(
        len({tile.shape for tile in tiles}) <= 1, f"inputs must have one shape, not {_texts(tiles)}"
    )
    return tiles


def _reduce(shape: Shape) -> Sequence[Type]:
    tiles, axis = _same_shape_tiles(shape), shape.attributes["axis"]
    require_axis(axis, tiles[0].rank)
    return [
        tile_or_scalar(tile.shape[:axis] + tile.shape[axis + 1 :], tile.element) for tile in tiles
    ]


def _scan(shape: Shape) -> Sequence[Type]:
    tiles = _same_shape_tiles(shape)
    require_axis(shape.attributes["axis"], tiles[0].rank)
    return tiles


def _combine_check(operation: Operation) -> None:
    elements = [
        value.type.element for value in operation.operands if isinstance(value.type, TileType)
    ]
    (combine,) = operation.regions
    require_types(_types(combine.arguments), elements * 2, "arguments of region combine")
    _require_yield(combine, elements, "region combine")


def _map(shape: Shape) -> Sequence[Type]:
    tiles = _same_shape_tiles(shape)
    results = [require_tile(type_, "results") for type_ in shape.results]
    require(
        all(result.shape == tiles[0].shape for result in results),
        f"results must have the inputs' shape, not {_texts(results)}",
    )
    pack = shape.attributes["pack"]
    require(
        pack >= 1 and tiles[0].numel % pack == 0,
        f"pack {pack} must divide the {tiles[0].numel} elements",
    )
    return results


def _map_check(operation: Operation) -> None:
    pack = operation.attribute("pack")

    def elements(values: Sequence[Value]) -> list[Type]:
        return [
            value.type.element
            for value in values
            if isinstance(value.type, TileType)
            for _ in range(pack)
        ]

    (body,) = operation.regions
    require_types(_types(body.arguments), elements(operation.operands), "arguments of region body")
    _require_yield(body, elements(operation.results), "region body")


def _explicit(shape: Shape) -> Sequence[Type]:
    return shape.results


OPS = Declarations()

_VALUES = VariadicOperand()
_INITS = VariadicOperand("the carried values before the first iteration")
_INPUTS = VariadicOperand("tiles of one shape")


@OPS.operation(
    "if",
    "run the region `then` if `condition` is true, and the region `else` otherwise. The results "
    "of the operation are the values that this region yields",
    _if_rule,
    effects=Effect.REGION,
    explicit_results=True,
    check=_if_check,
    traits=Trait.BITWISE,
)
class If(Operation):
    __slots__ = ()

    condition = SingleOperand()
    then = NamedRegion()
    else_ = NamedRegion()


@OPS.operation(
    "for",
    "run the region `body(i, *carried)` for i = lower, lower + step, ..., as long as i is below "
    "upper. The step must be positive. Each iteration yields the values `carried` of the next "
    "iteration. The results of the operation are the values that the last iteration yields",
    _for_rule,
    effects=Effect.REGION,
    check=_for_check,
    traits=Trait.BITWISE,
)
class For(Operation):
    __slots__ = ()

    lower = SingleOperand()
    upper = SingleOperand()
    step = SingleOperand()
    inits = _INITS
    num_stages = TypedAttribute[int](
        "the depth of the software pipeline; 0: the kernel's default", 0
    )
    unroll = TypedAttribute[int]("the unroll factor; 0: the compiler's choice", 0)
    flatten = TypedAttribute[bool](
        "whether to merge this loop with the loops inside it into one", False
    )
    warp_specialize = TypedAttribute[bool](
        "whether to use separate warps for loads and for arithmetic", False
    )
    single_accumulator = TypedAttribute[bool](
        "whether to keep only one buffer for the accumulator", False
    )
    no_licm = TypedAttribute[bool](
        "whether the compiler must not hoist code out of this loop", False
    )
    body = NamedRegion()


@OPS.operation(
    "while",
    "run the region `before(*carried)`, which returns a condition and a list of values "
    "(`forwarded`). If the condition is true, the region `after(*forwarded)` runs and yields new "
    "values `carried`, and `before` runs again. If the condition is false, the loop ends, and the "
    "values `forwarded` are the results of the operation",
    _while_rule,
    effects=Effect.REGION,
    explicit_results=True,
    check=_while_check,
    traits=Trait.BITWISE,
)
class While(Operation):
    __slots__ = ()

    inits = _INITS
    no_licm = TypedAttribute[bool](
        "whether the compiler must not hoist code out of this loop", False
    )
    before = NamedRegion()
    after = NamedRegion()


#: Loops.
LOOPS: Final = (For, While)


@OPS.operation(
    "reduce",
    "combine the elements along `axis` into one element. The region `combine(*lefts, *rights)` "
    "combines two elements of each input, and yields one value for each input. By default, the "
    "compiler chooses the order in which the elements are combined. The attribute `order` can "
    "state another order",
    _reduce,
    effects=Effect.REGION,
    traits=Trait.SCALAR_REGION | Trait.BITWISE,
    check=_combine_check,
)
class Reduce(Operation):
    __slots__ = ()

    inputs = _INPUTS
    axis = TypedAttribute[int]()
    order = TypedAttribute[Order](
        "any: any order and grouping; tree: combine pairs of elements whose indices differ in one "
        "bit (bit 0 first, then bit 1, then from the highest bit down to bit 2), with the lower "
        "index on the left; an element without a partner stays as it is; sequential: combine the "
        "elements one by one from the first to the last, with the result so far on the left",
        ANY,
    )
    combine = NamedRegion()


@OPS.operation(
    "scan",
    "compute an inclusive scan along `axis`. The region `combine(*earlier, *later)` combines two "
    "elements of each input, and yields one value for each input. By default, the compiler "
    "chooses how the elements are grouped. The attribute `order` can state another grouping",
    _scan,
    effects=Effect.REGION,
    traits=Trait.SCALAR_REGION | Trait.BITWISE,
    check=_combine_check,
)
class Scan(Operation):
    __slots__ = ()

    inputs = _INPUTS
    axis = TypedAttribute[int]()
    reverse = TypedAttribute[bool](
        "whether the scan runs from the last element to the first", False
    )
    order = TypedAttribute[Order](
        "any: any grouping; tree: blocks whose length doubles: in step k, from 0 on, each element "
        "whose index has bit k set is combined with the last element of the block of 2**k "
        "elements before its own block, which is on the left; sequential: each element is "
        "combined with the result before it. Indices count in the scan's direction",
        ANY,
    )
    combine = NamedRegion()


@OPS.operation(
    "map",
    "run the region `body` once for every group of `pack` elements that are neighbours in "
    "row-major order. The arguments of the region are the elements of the group in each input. "
    "The region yields the elements of the group in each result",
    _map,
    effects=Effect.REGION,
    traits=Trait.SCALAR_REGION | Trait.BITWISE,
    explicit_results=True,
    check=_map_check,
)
class Map(Operation):
    __slots__ = ()

    inputs = _INPUTS
    pack = TypedAttribute[int](
        "the number of consecutive elements that one run of body processes", 1
    )
    body = NamedRegion()


@OPS.operation(
    "call",
    "run the function `callee` of the module",
    _explicit,
    effects=Effect.READ | Effect.WRITE | Effect.ORDER,
    explicit_results=True,
    traits=Trait.BITWISE,
)
class Call(Operation):
    __slots__ = ()

    arguments = VariadicOperand()
    callee = TypedAttribute[str]()
    pure = TypedAttribute[bool](
        "whether the operation may be merged with an equal one, or dropped", False
    )


@OPS.operation(
    "yield",
    "end a region and yield its values",
    nothing,
    terminator=True,
    traits=Trait.BITWISE,
)
class Yield(Operation):
    __slots__ = ()

    values = _VALUES


@OPS.operation(
    "condition",
    "end the region `before` of a `while` operation. The loop continues if `condition` is true",
    _condition,
    terminator=True,
    traits=Trait.BITWISE,
)
class Condition(Operation):
    __slots__ = ()

    condition = SingleOperand()
    values = _VALUES


@OPS.operation(
    "return",
    "end a function and return its results",
    nothing,
    terminator=True,
    traits=Trait.BITWISE,
)
class Return(Operation):
    __slots__ = ()

    values = _VALUES
