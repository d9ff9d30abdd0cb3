"""XOR exchanges: gathers in which each element takes the one whose coordinate along an axis differs in constant bits, as in bitonic networks.

A linear layout maps thread bits to coordinates by exclusive or, so an exchange over a constant distance is a move of whole registers and lanes: registers
are renamed, or every lane shuffles with the lane whose number differs in constant bits. Only a distance that lies across warps needs shared memory.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from tilewright.ir.core import Function, Region, Value
from tilewright.ir.ops.arithmetic import Arange
from tilewright.ir.ops.control import For
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Gather, Reshape
from tilewright.ir.table import Effect
from tilewright.ir.types import TileType, Type
from tilewright.passes.effects import effects_of
from tilewright.passes.rewriter import constant_of
from tilewright.simt.linear_layout import Basis, LinearLayout, axis_shifts
from tilewright.simt.ops.buffers import Convert
from tilewright.simt.unroll import bounds_of, unroll

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
    distance = _distance(operation)
    bits = None if distance is None else constant_of(distance)
    shape = _shape(operation.x)
    if not isinstance(bits, int) or not 0 <= bits < shape[operation.axis]:
        return None
    return bits << axis_shifts(shape)[operation.axis]


def _distance(operation: Gather) -> Value | None:
    """The tile that the coordinates along the axis are combined with by exclusive or to give the index; None where the index is another."""
    shape = _shape(operation.x)
    if shape != _shape(operation.results[0]):
        return None
    index = _unmoved(operation.index, shape, operation.axis).definition
    if index is None or index.name != "xor":
        return None
    for position, distance in (index.operands, reversed(index.operands)):
        if _is_position(position, shape, operation.axis):
            while isinstance(distance.definition, _MOVED):
                distance = distance.definition.x
            return distance
    return None


def _shape(tile: Value) -> tuple[int, ...]:
    assert isinstance(tile.type, TileType)
    return tile.type.shape


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
    """Unroll a loop of constant bounds whose counter decides on the distance of an exchange; whether there was one.

    A loop whose bounds depend on the loop around it becomes one of constant bounds when that is unrolled and its bounds are folded: callers repeat. Loops that
    repeat a whole network stay.
    """
    for operation in function.walk():
        if isinstance(operation, Gather) and (loop := _loop_to_unroll(operation)) is not None:
            unroll(loop)
            return True
    return False


def _loop_to_unroll(operation: Gather) -> For | None:
    """The outermost loop that the distance of an exchange depends on, if that is computed from loop counters and constants alone and the tile is small."""
    distance = _distance(operation)
    if distance is None or constant_of(distance) is not None or math.prod(_shape(operation.x)) > _ELEMENTS:
        return None
    loops = _counters(distance) or set()
    loop = next((one for one in loops if loops.isdisjoint(one.ancestors())), None)
    if loop is None or loop.unroll or loop.num_stages:
        return None
    trips = bounds_of(loop)
    return loop if trips is not None and len(trips) <= _TRIPS else None


def _counters(value: Value) -> set[For] | None:
    """The loops whose counters and bounds a value is computed from; None where it depends on anything else."""
    found, seen, pending = set[For](), set[Value](), [value]
    while pending:
        one = pending.pop()
        if one in seen:
            continue
        seen.add(one)
        maker = one.definition
        if maker is not None:
            if maker.regions or effects_of(maker) is not Effect.NONE or (not maker.operands and constant_of(one) is None):
                return None
            pending += maker.operands
            continue
        loop = one.owner.owner if isinstance(one.owner, Region) else None
        if not isinstance(loop, For) or one.index:
            return None
        found.add(loop)
        pending += [loop.lower, loop.upper, loop.step]
    return found
