"""Byte ranges of slots, mbarriers and scratch space, once shared memory is allocated.

A slot with a non-constant index may be any slot of its buffer: its range is the whole buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.ir.core import Function, Operation, Value
from tilewright.passes.rewriter import constant_of
from tilewright.simt.analysis.pending_accesses import ByteRange
from tilewright.simt.dialect.attributes import offset_of
from tilewright.simt.dialect.loop_carried import Carried, all_carried
from tilewright.simt.dialect.ops.buffers import Buffer, Slot
from tilewright.simt.dialect.ops.mbarrier import Barriers
from tilewright.simt.dialect.types import BarriersType, BufferType
from tilewright.simt.passes.allocate_shared import is_place, scratch_of
from tilewright.simt.target.simt_target import SimtTarget, required


class SharedRanges:
    """Byte ranges in the allocated shared memory of one function."""

    def __init__(
        self, function: Function, target: SimtTarget, carried: Mapping[Value, Carried] | None = None
    ) -> None:
        self.target = target
        self.carried = all_carried(function) if carried is None else carried

    def of_slots(self, slots: Iterable[Value]) -> list[ByteRange]:
        """Ranges that slots may occupy."""
        found = []
        for slot in slots:
            for allocation, index in self._allocations(slot, set()):
                start = offset_of(allocation)
                type_ = allocation.results[0].type
                assert isinstance(type_, BufferType)
                if index is not None:
                    first = start + index * type_.tile_bytes
                    found.append((first, first + type_.tile_bytes))
                else:
                    found.append((start, start + type_.bytes))
        return found

    def of_objects(self, objects: Iterable[tuple[Value, Value]]) -> list[ByteRange]:
        """Ranges of mbarriers, each named by its allocation and index."""
        found = []
        for barriers, number in objects:
            index = constant_of(number)
            for allocation, _ in self._allocations(barriers, set()):
                found.append(self.of_object(allocation, index if isinstance(index, int) else None))
        return found

    def of_object(self, allocation: Operation, index: int | None) -> ByteRange:
        """Range of one mbarrier of an allocation, or of all if ``index`` is None."""
        start, type_ = offset_of(allocation), allocation.results[0].type
        size = required(self.target.mbarriers, self.target, "mbarriers").bytes
        assert isinstance(type_, BarriersType)
        if index is None:
            return (start, start + type_.count * size)
        return (start + index * size, start + (index + 1) * size)

    def of_scratch(self, operation: Operation) -> list[ByteRange]:
        """Range of an operation's scratch space, if it has any."""
        size = scratch_of(operation, self.target)
        return [(offset_of(operation), offset_of(operation) + size)] if size else []

    def _allocations(self, place: Value, seen: set[Value]) -> list[tuple[Operation, int | None]]:
        """Allocations that an address may be in, with the index of the slot if it is constant."""
        if place in seen:
            return []
        seen.add(place)
        carried = self.carried.get(place)
        if carried is not None:
            sources = carried.incoming()
            return [found for value in sources for found in self._allocations(value, seen)]
        operation = place.definition
        assert operation is not None
        if isinstance(operation, Slot):
            index = constant_of(operation.index)
            number = index if isinstance(index, int) else None
            return [(one, number) for one, _ in self._allocations(operation.buffer, seen)]
        if isinstance(operation, Buffer | Barriers):
            return [(operation, None)]
        sources = [value for value in operation.operands if is_place(value)]
        return [found for value in sources for found in self._allocations(value, seen)]


def overlap(ranges: Iterable[ByteRange], others: Iterable[ByteRange]) -> bool:
    """Return whether any of ``ranges`` overlaps any of ``others``."""
    others = tuple(others)
    return bool(others) and any(
        start < other_end and other_start < end
        for start, end in ranges
        for other_start, other_end in others
    )
