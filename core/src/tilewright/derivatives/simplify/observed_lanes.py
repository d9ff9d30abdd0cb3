"""Lanes of tiles that stores observe: which masks of stores a value's lanes lead to."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.control import For, Reduce
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import AtomicRmw, Store
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Permute
from tilewright.ir.types import TileType, shape_of


class AxisMask(NamedTuple):
    """A mask that depends on one coordinate of a tile.

    Attributes:
        mask: the mask, of the rank with which it was computed along the axis.
        axis: the axis of the coordinate.
    """

    mask: Value
    axis: int


def axis_masks(mask: Value) -> list[AxisMask]:
    """Return the masks along one axis each of which a mask is the conjunction with others."""
    found, pending = [], [mask]
    while pending:
        part = pending.pop()
        operation = part.definition
        if operation is not None and operation.name == "and":
            pending += operation.operands
            continue
        narrow = operation.x if isinstance(operation, Broadcast) else part
        axes = [axis for axis, extent in enumerate(shape_of(narrow.type)) if extent != 1]
        if len(axes) == 1:
            found.append(AxisMask(_squeezed(narrow), axes[0]))
    return found


def is_observed_in(value: Value, mask: AxisMask) -> bool:
    """Return whether what is stored depends on a value's lanes only where a mask along one axis
    holds.

    The other lanes may have any value: each operation that reads them keeps them in lanes of the
    same coordinate, up to stores with that mask.
    """
    return _Observation(mask.mask).holds(value, mask.axis)


class _Observation:
    def __init__(self, mask: Value) -> None:
        self._mask = mask
        self._seen: set[tuple[Value, int]] = set()

    def holds(self, value: Value, axis: int) -> bool:
        pending = [(value, axis)]
        while pending:
            place = pending.pop()
            if place in self._seen:
                continue
            self._seen.add(place)
            for reader in place[0].uses:
                found = self._next(reader, *place)
                if found is None:
                    return False
                pending += found
        return True

    def _next(self, reader: Operation, value: Value, axis: int) -> list[tuple[Value, int]] | None:
        """Return where an operation that reads a value keeps its lanes; None if it mixes them."""
        match reader:
            case Store() | AtomicRmw():
                return self._stored(reader, value, axis)
            case Dot():
                return _of_dot(reader, value, axis)
            case ExpandDims():
                return [(reader.result, axis + (reader.axis <= axis))]
            case Permute():
                return [(reader.result, reader.order.index(axis))]
            case Broadcast():
                kept = shape_of(value.type)[axis] == shape_of(reader.result.type)[axis]
                return [(reader.result, axis)] if kept else None
            case Reduce():
                if axis == reader.axis or not isinstance(reader.results[0].type, TileType):
                    return None
                return [(result, axis - (reader.axis < axis)) for result in reader.results]
            case For():
                return self._carried(reader, reader.body, value, axis, reader.operands)
        around = reader.parent.owner if reader.parent is not None else None
        if reader.spec.terminator:
            if not isinstance(around, For):
                return None
            return self._carried(around, around.body, value, axis, reader.operands)
        if not reader.spec.elementwise or reader.regions or len(reader.results) != 1:
            return None
        return [(reader.result, axis)]

    def _stored(
        self, write: Store | AtomicRmw, value: Value, axis: int
    ) -> list[tuple[Value, int]] | None:
        others = [operand for operand in write.operands if operand is not write.value]
        if value in others or write.mask is None or any(result.uses for result in write.results):
            return None
        known = axis_masks(write.mask)
        return [] if AxisMask(self._mask, axis) in known else None

    def _carried(
        self, loop: For, body: Region, value: Value, axis: int, operands: list[Value]
    ) -> list[tuple[Value, int]] | None:
        """Follow what a loop begins with, or what an iteration yields."""
        made = self._mask.definition
        if made is not None and loop in made.ancestors():
            return None  # the mask of the next iteration is another one
        first = len(operands) - len(loop.results)
        found = []
        for position, operand in enumerate(operands):
            if operand is value:
                if position < first:
                    return None
                place = position - first
                found += [(loop.results[place], axis), (body.arguments[1 + place], axis)]
        return found


def _of_dot(dot: Dot, value: Value, axis: int) -> list[tuple[Value, int]] | None:
    rank = len(shape_of(dot.result.type))
    if (value is dot.a and axis == rank - 1) or (value is dot.b and axis == rank - 2):
        return None
    return [(dot.result, axis)]


def _squeezed(mask: Value) -> Value:
    """Return a mask without the axes of extent 1 that were added to it."""
    while isinstance(mask.definition, ExpandDims):
        mask = mask.definition.x
    return mask


__all__ = ["AxisMask", "axis_masks", "is_observed_in"]
