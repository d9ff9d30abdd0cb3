"""Forward mode of operations with regions: they carry, yield and combine tangents beside values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.derivatives.adjoint.combine_slopes import combination_of
from tilewright.derivatives.adjoint.tile_sums import broadcast_along, sum_along
from tilewright.derivatives.cotangent_types import cotangent_type, is_float
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.control import For, If, Map, Reduce, Scan
from tilewright.ir.types import Type, element_type

if TYPE_CHECKING:
    from tilewright.derivatives.tangent_builder import TangentBuilder


def region_rule(operation: Operation) -> Callable[[TangentBuilder, Any], None] | None:
    """Return the function that appends an operation with regions; None for other operations."""
    match operation:
        case For():
            return _loop
        case If():
            return _branch
        case Reduce() | Scan():
            return _combine
        case Map():
            return _map
    return _unchanged if operation.regions else None


def _unchanged(builder: TangentBuilder, operation: Operation) -> None:
    """Copy an operation with regions in which nothing varies."""
    regions = []
    for region in operation.regions:
        made = builder.region_like(region)
        with builder.b.at_region(made):
            builder.fill(region)
            if region.last is not None:
                builder.copy(region.last)
        regions.append(made)
    builder.copy(operation, regions)


def _both(builder: TangentBuilder, values: Sequence[Value], which: Sequence[int]) -> list[Value]:
    """Return values, then the tangents of some of them."""
    return [
        *(builder.primal[value] for value in values),
        *(builder.tangent(values[i]) for i in which),
    ]


def _set(
    builder: TangentBuilder, values: Sequence[Value], which: Sequence[int], made: Sequence[Value]
) -> None:
    """Note what :meth:`_both` became of some values, in another region."""
    count = len(values)
    builder.primal.update(zip(values, made, strict=False))
    builder.tangents.update((values[i], made[count + place]) for place, i in enumerate(which))


def _loop(builder: TangentBuilder, loop: For) -> None:
    carried, last = loop.body.arguments[1:], loop.body.last
    assert last is not None
    which = [i for i, value in enumerate(carried) if value in builder.varied]
    inits = _both(builder, loop.inits, which)
    made = Region(
        [loop.lower.type, *(value.type for value in inits)],
        [value.name for value in loop.body.arguments],
    )
    builder.primal[loop.body.arguments[0]] = made.arguments[0]
    _set(builder, carried, which, made.arguments[1:])
    with builder.b.at_region(made):
        builder.fill(loop.body)
        builder.b.yield_(_both(builder, last.operands, which))
    bounds = [builder.primal[value] for value in (loop.lower, loop.upper, loop.step)]
    found = builder.b.region_op("for", *bounds, inits, regions=[made], **loop.attributes).results
    _set(builder, loop.results, which, found)


def _branch(builder: TangentBuilder, operation: If) -> None:
    which = [i for i, value in enumerate(operation.results) if value in builder.varied]
    regions = []
    for region in operation.regions:
        assert region.last is not None
        made = Region()
        with builder.b.at_region(made):
            builder.fill(region)
            builder.b.yield_(_both(builder, region.last.operands, which))
        regions.append(made)
    types = [
        *(value.type for value in operation.results),
        *(cotangent_type(operation.results[i].type) for i in which),
    ]
    condition = builder.primal[operation.condition]
    found = builder.b.region_op("if", condition, regions=regions, results=types).results
    _set(builder, operation.results, which, found)


def _scalar_region(
    builder: TangentBuilder,
    region: Region,
    bind: Callable[[Region], None],
    types: Sequence[Type],
    which: Sequence[int],
) -> Region:
    """Build a region that computes on elements and their tangents."""
    made = Region(types)
    outer = dict(builder.primal), dict(builder.tangents)
    bind(made)
    assert region.last is not None
    with builder.b.at_region(made):
        builder.fill(region)
        builder.b.yield_(_both(builder, region.last.operands, which))
    builder.primal, builder.tangents = outer
    return made


def _map(builder: TangentBuilder, operation: Map) -> None:
    if not any(result in builder.varied for result in operation.results):
        _unchanged(builder, operation)
        return
    pack, arguments = operation.pack, operation.body.arguments
    varied = [i for i, value in enumerate(operation.inputs) if value in builder.varied]
    which = [i for i, value in enumerate(operation.results) if value in builder.varied]
    inputs = _both(builder, operation.inputs, varied)
    own = [i * pack + j for i in varied for j in range(pack)]
    yields = [i * pack + j for i in which for j in range(pack)]
    made = _scalar_region(
        builder,
        operation.body,
        lambda region: _set(builder, arguments, own, region.arguments),
        [element_type(value.type) for value in inputs for _ in range(pack)],
        yields,
    )
    types = [
        *(value.type for value in operation.results),
        *(cotangent_type(operation.results[i].type) for i in which),
    ]
    found = builder.b.region_op("map", inputs, regions=[made], results=types, pack=pack).results
    _set(builder, operation.results, which, found)


def _combine(builder: TangentBuilder, operation: Reduce | Scan) -> None:
    """Combine pairs of values and tangents, which is associative where the combination is."""
    if not any(result in builder.varied for result in operation.results):
        _unchanged(builder, operation)
        return
    inputs, region = operation.inputs, operation.combine
    if isinstance(operation, Reduce) and combination_of(operation) in ("max", "min"):
        _extremum(builder, operation)
        return
    if combination_of(operation) == "add":
        builder.copy(operation, [_plain(builder, region)])
        narrow = builder.tangent(inputs[0])
        builder.tangents[operation.results[0]] = _sum_like(builder, operation, narrow)
        return
    which = [k for k, value in enumerate(inputs) if is_float(value)]
    wide = [builder.wide(value) for value in inputs]
    pairs = [*wide, *(builder.tangent(inputs[k]) for k in which)]
    elements = [element_type(value.type) for value in pairs]
    count, width = len(inputs), len(pairs)
    arguments = region.arguments

    def bind(made: Region) -> None:
        for half in (0, 1):
            own = arguments[half * count : (half + 1) * count]
            given = made.arguments[half * width : (half + 1) * width]
            for value, new in zip(own, given, strict=False):
                builder.primal[value] = builder.to(new, value.type)
            builder.tangents.update((own[k], given[count + place]) for place, k in enumerate(which))

    made = Region(elements * 2)
    outer = dict(builder.primal), dict(builder.tangents)
    assert region.last is not None
    with builder.b.at_region(made):
        bind(made)
        builder.fill(region)
        last = region.last.operands
        builder.b.yield_(
            [*(builder.wide(value) for value in last), *(builder.tangent(last[k]) for k in which)]
        )
    builder.primal, builder.tangents = outer
    found = builder.b.region_op(
        operation.name, pairs, regions=[made], **operation.attributes
    ).results
    for k, result in enumerate(operation.results):
        builder.primal[result] = builder.to(found[k], result.type)
    for place, k in enumerate(which):
        builder.tangents[operation.results[k]] = found[count + place]


def _plain(builder: TangentBuilder, region: Region) -> Region:
    """Copy a region that computes on elements, without tangents."""
    arguments = region.arguments
    made = Region([value.type for value in arguments])
    builder.primal.update(zip(arguments, made.arguments, strict=True))
    with builder.b.at_region(made):
        for operation in region:
            builder.copy(operation)
    return made


def _sum_like(builder: TangentBuilder, operation: Reduce | Scan, x: Value) -> Value:
    element = element_type(x.type)
    region = Region([element, element])
    with builder.b.at_region(region):
        builder.b.yield_([builder.b.add(*region.arguments)])
    return builder.b.region_op(
        operation.name, [x], regions=[region], **operation.attributes
    ).results[0]


def _extremum(builder: TangentBuilder, operation: Reduce) -> None:
    """Average the tangents of all elements that are the result, as the reverse mode does."""
    b, axis, (x,) = builder.b, operation.axis, operation.inputs
    builder.copy(operation, [_plain(builder, operation.combine)])
    type_ = cotangent_type(x.type)
    result = broadcast_along(b, builder.wide(operation.results[0]), axis, type_)
    here = b.cmp(builder.wide(x), result, predicate="eq")
    zero, one = (b.constant_like(type_, number) for number in (0.0, 1.0))
    total = sum_along(b, b.select(here, builder.tangent(x), zero), axis)
    count = sum_along(b, b.select(here, one, zero), axis)
    builder.tangents[operation.results[0]] = b.div(total, count)
