"""XOR exchanges: gathers in which each element takes the one whose coordinate along an axis differs in constant bits, as in bitonic networks.

A linear layout maps thread bits to coordinates by exclusive or, so an exchange over a constant distance is a move of whole registers and lanes: registers
are renamed, or every lane shuffles with the lane whose number differs in constant bits. Only a distance that lies across warps needs shared memory.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.arithmetic import Arange
from tilewright.ir.ops.control import For
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Gather, Reshape
from tilewright.ir.types import IntType, TileType, Type
from tilewright.passes.clone import clone_operation
from tilewright.passes.rewriter import constant_of
from tilewright.simt.linear_layout import Basis, LinearLayout, axis_shifts
from tilewright.simt.ops.buffers import Convert

#: Operations that repeat or re-lay an index tile and leave the coordinates along its axis.
_MOVED: Final = (Reshape, ExpandDims, Broadcast, Convert)
#: Iterations of a loop of exchanges that is unrolled at most: a network over 2**n elements has n stages of at most n steps.
_TRIPS: Final = 16
#: Elements of a tile that is exchanged in unrolled loops at most: four times as many take ten times as long to compile.
_ELEMENTS: Final = 1024


class Exchange(NamedTuple):
    """Which register and lane an element's partner is in: both differ from the element's own by these bits."""

    register: int
    lane: int


def xor_distance(operation: Gather) -> int | None:
    """By which bits the row-major numbers of an element and of its source differ, if that is the same constant everywhere."""
    source, result = operation.x.type, operation.results[0].type
    if not isinstance(source, TileType) or not isinstance(result, TileType) or source.shape != result.shape:
        return None
    index = _unmoved(operation.index, source.shape, operation.axis).definition
    if index is None or index.name != "xor":
        return None
    extent = source.shape[operation.axis]
    for position, distance in (index.operands, reversed(index.operands)):
        bits = constant_of(distance)
        if isinstance(bits, int) and 0 <= bits < extent and _is_position(position, source.shape, operation.axis):
            return bits << axis_shifts(source.shape)[operation.axis]
    return None


def _unmoved(value: Value, shape: tuple[int, ...], axis: int) -> Value:
    """What a tile repeats or re-lays, as long as the coordinates along an axis of ``shape`` stay where they are."""
    while isinstance(value.definition, _MOVED) and _lies_along(value.definition.x.type, shape, axis):
        value = value.definition.x
    return value


def _lies_along(type_: Type, shape: tuple[int, ...], axis: int) -> bool:
    """Whether a tile has the shape, or its extent along the axis and no other: then its elements keep their coordinate where it is re-laid so."""
    alone = tuple(extent if i == axis else 1 for i, extent in enumerate(shape))
    return isinstance(type_, TileType) and type_.shape in (shape, alone, (shape[axis],))


def _is_position(value: Value, shape: tuple[int, ...], axis: int) -> bool:
    """Whether a tile that broadcasts to ``shape`` holds the coordinates along ``axis``."""
    if not _lies_along(value.type, shape, axis):
        return False
    value = _unmoved(value, shape, axis)
    operation = value.definition
    return isinstance(operation, Arange) and operation.start == 0 and isinstance(value.type, TileType) and value.type.numel == shape[axis]


def exchange_within_warp(layout: LinearLayout, distance: int) -> Exchange | None:
    """The exchange over a distance of a tile in a layout; None where an element has to change warps."""
    found = Basis((*layout.registers, *layout.lanes)).solve(distance)
    if found is None:
        return None
    count = len(layout.registers)
    return Exchange(found & (1 << count) - 1, found >> count)


def unroll_exchanges(function: Function) -> bool:
    """Unroll loops of constant bounds over which the distances of exchanges vary, so that each is a constant; whether there were any.

    A loop whose bounds depend on the loop around it becomes one of constant bounds when that is unrolled and its bounds are folded: callers repeat.
    """
    loop = next((operation for operation in function.walk() if isinstance(operation, For) and _varies_distances(operation)), None)
    if loop is None:
        return False
    _unroll(loop)
    return True


def _bounds(loop: For) -> range | None:
    bounds = [constant_of(value) for value in (loop.lower, loop.upper, loop.step)]
    lower, upper, step = bounds
    if not isinstance(lower, int) or not isinstance(upper, int) or not isinstance(step, int) or step <= 0:
        return None
    return range(lower, upper, step)


def _varies_distances(loop: For) -> bool:
    trips = _bounds(loop)
    if trips is None or len(trips) > _TRIPS or loop.unroll or loop.num_stages:
        return False
    return any(isinstance(operation, Gather) and _may_exchange(operation) for operation in _inside(loop))


def _inside(operation: Operation) -> list[Operation]:
    found = []
    for region in operation.regions:
        for inner in region:
            found += [inner, *_inside(inner)]
    return found


def _may_exchange(operation: Gather) -> bool:
    """Whether a gather takes an element at the own coordinate with bits changed that are no constant yet, in a tile small enough to unroll for."""
    source, result = operation.x.type, operation.results[0].type
    if not isinstance(source, TileType) or not isinstance(result, TileType) or source.shape != result.shape or source.numel > _ELEMENTS:
        return False
    index = _unmoved(operation.index, source.shape, operation.axis).definition
    if index is None or index.name != "xor":
        return False
    for position, distance in (index.operands, reversed(index.operands)):
        scalar = distance.definition
        if scalar is not None and scalar.name == "splat" and _is_position(position, source.shape, operation.axis):
            return True
    return False


def _unroll(loop: For) -> None:
    trips = _bounds(loop)
    parent = loop.parent
    assert trips is not None and parent is not None
    induction, *carried = loop.body.arguments
    values: list[Value] = list(loop.inits)
    for number in trips:
        assert isinstance(induction.type, IntType)
        mapping: dict[Any, Value] = {induction: Builder(parent, loop, loop.location).constant(value=number, result=induction.type)}
        mapping.update(zip(carried, values, strict=True))
        for operation in loop.body:
            if operation.spec.terminator:
                values = [mapping.get(value, value) for value in operation.operands]
            else:
                parent.insert_before(clone_operation(operation, mapping), loop)
    for result, value in zip(loop.results, values, strict=True):
        result.replace_all_uses(value)
    loop.erase()
