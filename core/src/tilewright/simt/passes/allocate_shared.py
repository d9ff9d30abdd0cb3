"""Shared memory allocation: offsets for buffers, mbarriers and scratch space.

Scratch space is live while its operation runs. A buffer is live from its allocation to the last use
of an address in it, extended to the end of loops that do not contain the allocation and to the end
of asynchronous copies, matmuls and stores on it. A buffer of words that each thread has for itself
is live everywhere. A buffer that warp-specialized partitions share is live as long as they run,
except in a partition after its ``simt.release``, which states that the other partitions are done
with the buffer. Buffers are placed first, largest first. Scratch space goes where no buffer is live
and, where that costs little, beside the scratch space used just before: the barrier inside the
second operation then also ends the use of the first one's scratch space, and no barrier is needed
between the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.errors import OutOfResources
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.control import LOOPS, If
from tilewright.passes.rewriter import constant_of
from tilewright.simt.dialect.async_groups import Tokens
from tilewright.simt.dialect.attributes import OFFSET, SHARED_BYTES, function_of, part_of
from tilewright.simt.dialect.loop_carried import (
    CARRIERS,
    PARTITIONED,
    all_carried,
    operations_of_program,
)
from tilewright.simt.dialect.ops.async_copy import OwnCopyStart
from tilewright.simt.dialect.ops.buffers import Buffer, Release
from tilewright.simt.dialect.ops.mbarrier import ArriveAfter, Await, Barriers, OnBarrier
from tilewright.simt.dialect.ops.tensor_memory import DotInto
from tilewright.simt.dialect.registry import interface_of
from tilewright.simt.dialect.types import (
    COPIES,
    MATMULS,
    STORES,
    BarriersType,
    BufferType,
    MemoryType,
)
from tilewright.simt.target.simt_target import SimtTarget, required

#: Name of the resource in out-of-resources errors.
SHARED_MEMORY: Final = "shared memory"
#: Alignment of scratch space: the width of the widest access.
_ALIGNMENT: Final = 16
#: Extra bytes allowed to keep scratch space apart from that of the previous operation.
_SPREAD: Final = 1024

#: Operations that allocate shared memory for other operations.
_ALLOCATIONS: Final = (Buffer, Barriers)


def allocate(function: Function, target: SimtTarget) -> None:
    """Allocate a function's shared memory, after layout assignment.

    Set the offset of each operation, and the total size as an attribute of the function.

    Raises:
        OutOfResources: the target has less shared memory.
    """
    _Allocation(function, target).run()
    if function.attributes[SHARED_BYTES] > target.resources.shared_memory:
        raise OutOfResources(
            function.attributes[SHARED_BYTES], target.resources.shared_memory, SHARED_MEMORY
        )


def scratch_of(operation: Operation, target: SimtTarget) -> int:
    """Return the bytes of scratch space that an operation needs."""
    interface = interface_of(target, operation.name)
    return (
        interface.scratch(operation, target)
        if interface is not None and interface.scratch is not None
        else 0
    )


def peak_bytes(region: Region, target: SimtTarget) -> int:
    """Return the maximum of the bytes in use while a region runs."""
    return max(bytes_in_use(region, target).values(), default=0)


def bytes_in_use(region: Region, target: SimtTarget) -> dict[Operation, int]:
    """Return the bytes of shared memory live at each operation of a region, in program order."""
    return _Allocation(function_of(region), target).bytes_in_use(region)


@dataclass(slots=True, eq=False)
class _Buffer:
    """Allocation with a live range from ``start`` to ``end`` in program order.

    It is also live while other partitions than its own run, but in a partition not after the
    position of the ``simt.release`` there.
    """

    operation: Operation
    size: int
    alignment: int
    start: int
    end: int
    part: Operation | None
    released: tuple[Operation, int] | None = None
    offset: int = 0

    def meets(self, start: int, end: int, part: Operation | None) -> bool:
        """Return whether the buffer is live at the same time as a live range of a partition."""
        if self.released is not None and part is self.released[0] and start > self.released[1]:
            return False
        return (self.start <= end and start <= self.end) or _beside(self.part, part)

    def meets_buffer(self, other: _Buffer) -> bool:
        return self.meets(other.start, other.end, other.part) and other.meets(
            self.start, self.end, self.part
        )


class _Allocation:
    def __init__(self, function: Function, target: SimtTarget) -> None:
        self.function, self.target = function, target
        self.tokens = Tokens(function)
        self.positions: dict[Operation, int] = {}
        #: first and last position inside each operation with regions
        self.spans: dict[Operation, tuple[int, int]] = {}
        #: per queue, the waits for all its groups: position and region, in program order
        self.waits: dict[str, list[tuple[int, Region | None]]] = {}

    def run(self) -> None:
        self._number(self.function.body)
        buffers = self._buffers()
        placed: list[_Buffer] = []
        for buffer in sorted(buffers, key=lambda one: (-one.size, one.start)):
            taken = [
                (one.offset, one.offset + one.size) for one in placed if one.meets_buffer(buffer)
            ]
            buffer.offset = buffer.operation.attributes[OFFSET] = _first_fit(
                taken, buffer.size, buffer.alignment
            )
            placed.append(buffer)
        total = max((buffer.offset + buffer.size for buffer in buffers), default=0)
        scratch = [
            (operation, size)
            for operation in self.positions
            if (size := scratch_of(operation, self.target)) > 0
        ]
        total = max(
            [total, *(self._first(operation, size, buffers) + size for operation, size in scratch)]
        )
        limit = self._spread_limit(total)
        previous: list[tuple[int, int]] = []
        parts: list[tuple[Operation, tuple[int, int]]] = []
        for operation, size in scratch:
            part = part_of(operation)
            taken = [
                *self._live(operation, buffers),
                *(range_ for other, range_ in parts if _beside(part, other)),
            ]
            apart = [*taken, *previous, *self._staged_beside(operation, buffers)]
            offset = next(
                offset
                for ranges in (apart, [*taken, *previous], taken)
                if (offset := _first_fit(ranges, size, _ALIGNMENT)) + size <= limit
                or ranges is taken
            )
            operation.attributes[OFFSET] = offset
            total = max(total, offset + size)
            previous = [(offset, offset + size)]
            if part is not None:
                parts.append((part, (offset, offset + size)))
        self.function.attributes[SHARED_BYTES] = total

    def _spread_limit(self, total: int) -> int:
        """Return the bytes that a program may take without a loss of occupancy.

        A small program may take :data:`_SPREAD`, and one that has an SM for itself as much more.
        """
        available = self.target.resources.shared_memory
        if total <= _SPREAD:
            return min(_SPREAD, available)
        return min(total + _SPREAD, available) if 2 * (total + _SPREAD) > available else total

    def _staged_beside(self, operation: Operation, buffers: list[_Buffer]) -> list[tuple[int, int]]:
        """Return the ranges of the buffers that the operation's loop allocates in each iteration.

        Scratch space apart from them needs no barrier against their previous use.
        """
        loop = next((one for one in operation.ancestors() if isinstance(one, LOOPS)), None)
        if loop is None:
            return []
        return [
            (one.offset, one.offset + one.size)
            for one in buffers
            if loop in one.operation.ancestors()
        ]

    def bytes_in_use(self, region: Region) -> dict[Operation, int]:
        """Return the bytes of shared memory live at each operation of a region."""
        self._number(self.function.body)
        buffers, found = self._buffers(), {}
        for operation in operations_of_program(region):
            position, part = self.positions[operation], part_of(operation)
            live = sum(
                -(-one.size // one.alignment) * one.alignment
                for one in buffers
                if one.meets(position, position, part)
            )
            found[operation] = live + scratch_of(operation, self.target)
        return found

    def _live(self, operation: Operation, buffers: list[_Buffer]) -> list[tuple[int, int]]:
        position = self.positions[operation]
        return [
            (one.offset, one.offset + one.size)
            for one in buffers
            if one.meets(position, position, part_of(operation))
        ]

    def _first(self, operation: Operation, size: int, buffers: list[_Buffer]) -> int:
        return _first_fit(self._live(operation, buffers), size, _ALIGNMENT)

    def _number(self, region: Region) -> None:
        for operation in region:
            start = self.positions[operation] = len(self.positions)
            for queue, left in self.tokens.pending(operation):
                if not left:
                    self.waits.setdefault(queue, []).append((start, operation.parent))
            if isinstance(operation, (CARRIERS, PARTITIONED)):
                for inner in operation.regions:
                    self._number(inner)
                self.spans[operation] = start, len(self.positions) - 1

    def _buffers(self) -> list[_Buffer]:
        allocations = [
            operation for operation in self.positions if isinstance(operation, _ALLOCATIONS)
        ]
        if not allocations:
            return []
        carried = all_carried(self.function)
        readers: dict[Value, list[Value]] = {}
        for one in dict.fromkeys(carried.values()):
            for value in one.incoming():
                readers.setdefault(value, []).extend(one.values)
        found = []
        for operation in allocations:
            start = end = self.positions[operation]
            released = None
            for user in self._users(operation.results[0], readers):
                if isinstance(user, OwnCopyStart):
                    # no barrier separates a warp's own words from other warps' later accesses
                    start, end = 0, len(self.positions)
                part = part_of(user)
                if (
                    isinstance(user, Release)
                    and part is not None
                    and user.parent is part.regions[0]
                ):
                    released = part, self.positions[user]
                end = max(end, self._end_of_use(user, operation))
            type_ = operation.results[0].type
            if isinstance(type_, BufferType):
                assert isinstance(operation, Buffer)
                size, alignment = type_.bytes, operation.alignment
            else:
                assert isinstance(type_, BarriersType)
                alignment = required(self.target.mbarriers, self.target, "mbarriers").bytes
                size, start, end = type_.count * alignment, 0, len(self.positions)
            found.append(
                _Buffer(operation, size, alignment, start, end, part_of(operation), released)
            )
        return found

    def _users(self, address: Value, carried: Mapping[Value, list[Value]]) -> list[Operation]:
        """Operations that use an address, or an address computed from it."""
        found: list[Operation] = []
        seen = {address}
        work = [address]
        while work:
            value = work.pop()
            following = list(carried.get(value, ()))
            for user in value.uses:
                found.append(user)
                following += [
                    result
                    for result in user.results
                    if is_place(result) and not isinstance(user, CARRIERS)
                ]
            for other in following:
                if other not in seen:
                    seen.add(other)
                    work.append(other)
        return found

    def _end_of_use(self, user: Operation, allocation: Operation) -> int:
        """Position where a use ends.

        That is the end of the outermost loop around the use that does not contain the allocation,
        or the completion of the asynchronous operation, whichever is later.
        """
        around = set(allocation.ancestors())
        end = self.positions[user]
        for operation in user.ancestors():
            if operation in around:
                break
            if isinstance(operation, PARTITIONED):
                return len(self.positions)  # other partitions run concurrently
            if not isinstance(operation, If):
                end = max(end, self.spans[operation][1])
        if isinstance(user, DotInto):
            end = max(end, self._end_of_matmul(user))
        interface = interface_of(self.target, user.name)
        effects = (
            interface.effects(user)
            if interface is not None and interface.effects is not None
            else None
        )
        if effects is not None:
            for queue, slots in (
                (COPIES, effects.copies),
                (MATMULS, effects.matmuls),
                (STORES, effects.stores),
            ):
                if slots:
                    end = max(end, self._end_of_queue(user, queue.queue))
        return end

    def _end_of_matmul(self, start: Operation) -> int:
        """Position where a matmul that one thread issues has completed.

        That is the next wait in its region for the mbarrier that its completion arrives on. Without
        such a wait, the pass that wrote the loop keeps the operands live.
        """
        arrival = start.next
        assert arrival is not None
        following = arrival.next if isinstance(arrival, ArriveAfter) else None
        while following is not None:
            if (
                isinstance(arrival, ArriveAfter)
                and isinstance(following, Await)
                and not following.alone
                and _same_object(following, arrival)
            ):
                return self.positions[following]
            following = following.next
        return self.positions[start]

    def _end_of_queue(self, user: Operation, queue: str) -> int:
        """Position of the first wait for all of a queue that every path from a use passes."""
        regions = {user.parent, *(operation.parent for operation in user.ancestors())}
        waits = self.waits.get(queue, ())
        return next(
            (
                position
                for position, region in waits
                if position > self.positions[user] and region in regions
            ),
            len(self.positions),
        )


def _same_object(operation: OnBarrier, other: OnBarrier) -> bool:
    """Return whether two operations are known to use the same mbarrier."""
    number = constant_of(operation.index)
    return (
        operation.barriers is other.barriers
        and number is not None
        and number == constant_of(other.index)
    )


def _beside(part: Operation | None, other: Operation | None) -> bool:
    """Return whether two different warp-specialized partitions run concurrently."""
    return part is not None and other is not None and part is not other


def is_place(value: Value) -> bool:
    """Return whether a value is an address in shared memory."""
    return isinstance(value.type, MemoryType | BarriersType)


def _first_fit(taken: list[tuple[int, int]], size: int, alignment: int) -> int:
    """Return the lowest offset where ``size`` bytes fit between the taken ranges."""
    offset = 0
    for start, end in sorted(taken):
        if offset + size <= start:
            break
        offset = max(offset, -(-end // alignment) * alignment)
    return offset
