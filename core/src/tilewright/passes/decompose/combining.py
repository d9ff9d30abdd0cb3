"""Scans, maps and products by loops over one axis, an element or a slice at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.core import Value
from tilewright.ir.ops.control import Map, Scan
from tilewright.ir.ops.linear import Dot
from tilewright.ir.order import TREE, effective_order
from tilewright.ir.types import I32, FloatType, TileType, element_type, with_element
from tilewright.passes.decompose.decomposition import (
    Decomposition,
    called,
    emitted,
    is_at,
    lifted,
    loop,
    pick,
    spread,
    zero,
)
from tilewright.passes.rewriter import Rewriter


def _scan(operation: Scan, b: Rewriter) -> Any:
    if effective_order(operation) == TREE:
        return None  # the loop combines in sequence
    inputs, axis, reverse = operation.inputs, operation.axis, operation.reverse
    types = [value.type for value in inputs if isinstance(value.type, TileType)]
    count = types[0].shape[axis]
    ends = [b.constant(value=value, result=I32) for value in (0, count - 1)]
    start = ends[reverse]

    def put(totals: Sequence[Value], position: Value, results: Sequence[Value]) -> list[Value]:
        """The results, with the totals at a position of the axis."""
        return [
            b.select(is_at(b, type_, axis, position), spread(b, total, type_, axis), result)
            for total, result, type_ in zip(totals, results, types, strict=True)
        ]

    def body(step: Value, carried: Sequence[Value]) -> Sequence[Value]:
        position = b.sub(ends[1], step) if reverse else step
        earlier, results = carried[: len(inputs)], carried[len(inputs) :]
        totals = called(
            b, operation.combine, [*earlier, *(pick(b, value, axis, position) for value in inputs)]
        )
        return [*totals, *put(totals, position, results)]

    first = [pick(b, value, axis, start) for value in inputs]
    return loop(
        b, count, [*first, *put(first, start, [zero(b, type_) for type_ in types])], body, start=1
    )[len(inputs) :]


def _map(operation: Map, b: Rewriter) -> Any:
    inputs, pack, region = operation.inputs, operation.pack, operation.body
    shape = inputs[0].type
    assert isinstance(shape, TileType)
    if pack == 1:
        found = lifted(b, region, inputs, shape)
        if found is not None:
            return found
    lines = [
        b.reshape(value, result=TileType((shape.numel,), element_type(value.type)))
        for value in inputs
    ]
    types = [TileType((shape.numel,), element_type(result.type)) for result in operation.results]

    def body(group: Value, carried: Sequence[Value]) -> Sequence[Value]:
        first = b.mul(group, b.constant(value=pack, result=I32))
        places = [b.add(first, b.constant(value=number, result=I32)) for number in range(pack)]
        values = called(b, region, [pick(b, line, 0, place) for line in lines for place in places])
        results = list(carried)
        for number, value in enumerate(values):
            own, type_ = number // pack, types[number // pack]
            results[own] = b.select(
                is_at(b, type_, 0, places[number % pack]),
                b.splat(value, result=type_),
                results[own],
            )
        return results

    found = loop(b, shape.numel // pack, [zero(b, type_) for type_ in types], body)
    return [
        b.reshape(value, result=result.type)
        for value, result in zip(found, operation.results, strict=True)
    ]


def _dot(operation: Dot, b: Rewriter) -> Any:
    left, right, start = operation.a, operation.b, operation.c
    result = start.type
    assert isinstance(result, TileType) and isinstance(left.type, TileType)
    if operation.order == TREE and isinstance(result.element, FloatType):
        return None  # the loop adds in sequence
    axis = result.rank - 1

    def body(position: Value, carried: Sequence[Value]) -> Sequence[Value]:
        factors = []
        for value, own, missing in ((left, axis, axis), (right, axis - 1, axis - 1)):
            part = pick(b, value, own, position)
            if element_type(part.type) is not result.element:
                part = b.cast(part, result=with_element(part.type, result.element))
            factors.append(spread(b, part, result, missing))
        if isinstance(result.element, FloatType):
            return [b.fma(*factors, carried[0])]
        return [b.add(b.mul(*factors), carried[0])]

    return loop(b, left.type.shape[axis], [start], body)


ROWS: tuple[Decomposition, ...] = (
    Decomposition(
        "scan",
        "a loop over the axis, in sequence, with what its region has where that is elementwise, "
        "and maps of it elsewhere; a scan in order tree stays",
        emitted(pick, spread, zero, loop, called, "sub"),
        _scan,
    ),
    Decomposition(
        "map",
        "its region over whole tiles, or in a loop over the elements where it has control flow",
        emitted(lifted, pick, zero, loop, is_at, "mul", "add"),
        _map,
    ),
    Decomposition(
        "dot",
        "a loop of multiplications and additions over the inner axis, in sequence; a dot in order "
        "tree stays",
        emitted(pick, spread, loop, "cast", "mul", "add", "fma"),
        _dot,
    ),
)
