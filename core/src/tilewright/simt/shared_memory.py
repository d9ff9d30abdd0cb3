"""Where in shared memory things are: scratch space of operations, and buffers of ``simt.shared_alloc``.

Scratch space lives while its operation runs, a buffer from its allocation to the last use of an address in it, over loops that do not hold the allocation
and until asynchronous copies into it have arrived. Buffers are placed first, largest first; scratch space goes where no buffer lives, and beside the
scratch space used just before where that costs little: the barrier inside the second operation then also ends the first one's use, and none is needed
between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from tilewright.errors import OutOfResources
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.types import PointerType, element_type
from tilewright.simt.assignment import Assignment
from tilewright.simt.carried import CARRIERS, all_carried
from tilewright.simt.ops import SHARED
from tilewright.simt.target import SimtTarget

#: How scratch space is aligned: to the widest access.
_ALIGNMENT: Final = 16
#: The same for what matrix instructions read, whose swizzles count from multiples of this.
_MATRIX_ALIGNMENT: Final = 1024
#: Bytes that may be spent to put scratch space beside that of the operation before.
_SPREAD: Final = 1024

#: Bytes of scratch space of an operation.
Scratch = Callable[[Operation, Assignment, SimtTarget], int]


def allocate(function: Function, assignment: Assignment, target: SimtTarget) -> None:
    """Place all shared memory of a function whose tiles have layouts; sets ``offsets`` and ``shared_bytes``.

    Raises:
        OutOfResources: the target has less shared memory.
    """
    _Allocation(function, assignment, target).run(scratch_sizes())
    if assignment.shared_bytes > target.shared_memory:
        raise OutOfResources(assignment.shared_bytes, target.shared_memory, "shared memory")


def scratch_sizes() -> Mapping[str, Scratch]:
    """The operations whose lowering uses scratch space."""
    from tilewright.simt import lowering

    found: dict[str, Scratch] = {}
    for module in vars(lowering).values():
        if isinstance(module, ModuleType):
            found.update(getattr(module, "SCRATCH", {}))
    return found


@dataclass(slots=True, eq=False)
class _Buffer:
    """A ``simt.shared_alloc``: live from position ``start`` to ``end`` in program order."""

    operation: Operation
    size: int
    alignment: int
    start: int
    end: int
    offset: int = 0


class _Allocation:
    def __init__(self, function: Function, assignment: Assignment, target: SimtTarget) -> None:
        self.function, self.assignment, self.target = function, assignment, target
        self.positions: dict[Operation, int] = {}
        #: the first and last position in each operation with regions
        self.spans: dict[Operation, tuple[int, int]] = {}
        #: positions of waits for all copies
        self.waits: list[int] = []

    def run(self, sizes: Mapping[str, Scratch]) -> None:
        self._number(self.function.body)
        buffers = self._buffers()
        placed: list[_Buffer] = []
        for buffer in sorted(buffers, key=lambda one: (-one.size, one.start)):
            taken = [(one.offset, one.offset + one.size) for one in placed if one.start <= buffer.end and buffer.start <= one.end]
            buffer.offset = self.assignment.offsets[buffer.operation] = _first_fit(taken, buffer.size, buffer.alignment)
            placed.append(buffer)
        total = max((buffer.offset + buffer.size for buffer in buffers), default=0)
        scratch = [(operation, size) for operation in self.positions if operation.name in sizes and (size := self._size(operation, sizes)) > 0]
        total = max([total, *(self._first(operation, size, buffers) + size for operation, size in scratch)])
        limit = total if total > _SPREAD else min(_SPREAD, self.target.shared_memory)
        previous: list[tuple[int, int]] = []
        for operation, size in scratch:
            taken = self._live(operation, buffers)
            alignment = _alignment(operation)
            beside = _first_fit(taken + previous, size, alignment)
            offset = beside if beside + size <= limit else _first_fit(taken, size, alignment)
            self.assignment.offsets[operation] = offset
            total = max(total, offset + size)
            previous = [(offset, offset + size)]
        self.assignment.shared_bytes = total

    def _size(self, operation: Operation, sizes: Mapping[str, Scratch]) -> int:
        return sizes[operation.name](operation, self.assignment, self.target)

    def _live(self, operation: Operation, buffers: list[_Buffer]) -> list[tuple[int, int]]:
        position = self.positions[operation]
        return [(one.offset, one.offset + one.size) for one in buffers if one.start <= position <= one.end]

    def _first(self, operation: Operation, size: int, buffers: list[_Buffer]) -> int:
        return _first_fit(self._live(operation, buffers), size, _alignment(operation))

    def _number(self, region: Region) -> None:
        for operation in region:
            start = self.positions[operation] = len(self.positions)
            if operation.name == "simt.async_wait" and operation.attribute("pending") == 0:
                self.waits.append(start)
            if operation.name in CARRIERS:
                for inner in operation.regions:
                    self._number(inner)
                self.spans[operation] = start, len(self.positions) - 1

    def _buffers(self) -> list[_Buffer]:
        allocations = [operation for operation in self.positions if operation.name == "simt.shared_alloc"]
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
            for user in self._users(operation.results[0], readers):
                end = max(end, self._end_of_use(user, operation))
            size, alignment = operation.attribute("bytes"), operation.attribute("alignment")
            found.append(_Buffer(operation, size, alignment, start, end))
        return found

    def _users(self, address: Value, carried: Mapping[Value, list[Value]]) -> list[Operation]:
        """The operations that use an address, or one computed from it."""
        found: list[Operation] = []
        seen = {address}
        work = [address]
        while work:
            value = work.pop()
            following = list(carried.get(value, ()))
            for user in value.uses:
                found.append(user)
                following += [result for result in user.results if is_shared_pointer(result) and user.name not in CARRIERS]
            for other in following:
                if other not in seen:
                    seen.add(other)
                    work.append(other)
        return found

    def _end_of_use(self, user: Operation, allocation: Operation) -> int:
        """Where a use is over: at the end of the outermost loop around it that does not hold the allocation, and when copies have arrived."""
        around = set(allocation.ancestors())
        end = self.positions[user]
        for operation in user.ancestors():
            if operation in around:
                break
            if operation.name != "if":
                end = max(end, self.spans[operation][1])
        if user.name == "simt.shared_load":  # it may be left to its reader
            end = max([end, *(self.positions.get(reader, end) for reader in user.results[0].uses)])
        if user.name == "simt.async_load":
            end = next((position for position in self.waits if position > end), len(self.positions))
        return end


def _alignment(operation: Operation) -> int:
    return _MATRIX_ALIGNMENT if operation.name == "dot" else _ALIGNMENT


def is_shared_pointer(value: Value) -> bool:
    """Whether a value is an address in shared memory."""
    element = element_type(value.type)
    return isinstance(element, PointerType) and element.space == SHARED


def _first_fit(taken: list[tuple[int, int]], size: int, alignment: int) -> int:
    """The lowest offset where ``size`` bytes fit between the ranges taken."""
    offset = 0
    for start, end in sorted(taken):
        if offset + size <= start:
            break
        offset = max(offset, -(-end // alignment) * alignment)
    return offset
