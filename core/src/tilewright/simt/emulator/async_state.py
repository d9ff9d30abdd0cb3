"""State of asynchronous operations in the emulator: mbarriers, and a thread's queues of groups."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

#: Asynchronous operation: called when it is performed, it returns a function for the remaining
#: writes, or None.
Step = Callable[[], Callable[[], None] | None]


@dataclass(slots=True, eq=False)
class BarrierObject:
    """State of an mbarrier.

    Attributes:
        number: its name in messages: the index in the order of creation.
        arrivals: arrivals still missing in this phase.
        bytes: expected bytes that have not arrived; negative if bytes arrived before ``expect_tx``.
        phase: number of completed phases.
        copies: copies in flight to it.
    """

    number: int
    address: int
    count: int
    arrivals: int
    bytes: int = 0
    phase: int = 0
    copies: list[tuple[int, Callable[[], None]]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"mbarrier {self.number}"

    def end_phase(self) -> None:
        """Complete the phase if nothing is missing, and make that visible to threads."""
        if not self.arrivals and not self.bytes:
            self.phase += 1
            self.arrivals = self.count
            word_at(self.address).value = self.phase & 0x7FFFFFFF


@dataclass(slots=True)
class OperationQueue:
    """Queue of one thread: committed groups of asynchronous operations, and the open group.

    Each operation is called when it is performed, and may return a write to perform later.

    Attributes:
        ended: number of committed groups.
        writes: remaining writes, with the numbers of their groups.
    """

    groups: deque[list[Step]] = field(default_factory=deque)
    open: list[Step] = field(default_factory=list)
    ended: int = 0
    writes: list[tuple[int, Callable[[], None]]] = field(default_factory=list)

    def end_group(self) -> None:
        self.groups.append(self.open)
        self.open = []
        self.ended += 1

    def run_until(self, left: int) -> None:
        """Perform all but the youngest groups; within a group, the last operation first."""
        while len(self.groups) > left:
            number, group = self.ended - len(self.groups), self.groups.popleft()
            while group:
                write = group.pop()()
                if write is not None:
                    self.writes.append((number, write))

    def write_until(self, left: int, order: Callable[[list[Callable[[], None]]], None]) -> None:
        """Perform the remaining writes of all but the youngest groups, ordered by ``order``."""
        due = [write for number, write in self.writes if number < self.ended - left]
        self.writes = [one for one in self.writes if one[0] >= self.ended - left]
        order(due)
        for write in due:
            write()


def word_at(address: int) -> ctypes.c_int32:
    """Return the i32 at an address."""
    return ctypes.c_int32.from_address(address)
