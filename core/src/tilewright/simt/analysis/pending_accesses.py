"""Accesses since the last barrier: the state that barrier insertion carries through a function."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.ir.core import Operation, Value

#: Half-open range of bytes of shared memory: (first, one past the last).
ByteRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """Access of global memory.

    Attributes:
        roots: the pointer arguments that may point to the accessed memory (underlying objects).
        pointer, mask: the pointers and the mask, or None. An access by a descriptor has neither.
        loop: the outermost loop whose body defines the pointers, if the access was in an earlier
            iteration of that loop.
    """

    roots: frozenset[Value | None]
    pointer: Value | None
    writes: bool
    mask: Value | None = None
    loop: Operation | None = None


#: A range that threads read, and the first barrier or arrival after the read.
Read = tuple[ByteRange, Operation | None]


@dataclass(slots=True)
class PendingAccesses:
    """Accesses since the last barrier, which other threads may still be executing.

    Attributes:
        reads, writes: ranges of shared memory.
        later: written ranges that nothing accesses before the end of the region that writes them.
        copies: ranges that asynchronous copies in flight write.
        matmuls: ranges that asynchronous matmuls in flight read. A barrier alone does not make it
            safe to write there.
        stores: ranges that bulk stores in flight read.
        hidden: ranges that threads wrote through the generic proxy and have not fenced yet.
        unfenced: ranges that threads read and that some bulk copy writes, each with the first
            barrier or arrival after the read, if there was one.
        warps: scratch space of which each warp accessed bytes of its own, with the operations: the
            same operation, executed again, needs no barrier.
    """

    reads: set[ByteRange] = field(default_factory=set)
    writes: set[ByteRange] = field(default_factory=set)
    later: set[ByteRange] = field(default_factory=set)
    copies: set[ByteRange] = field(default_factory=set)
    matmuls: set[ByteRange] = field(default_factory=set)
    stores: set[ByteRange] = field(default_factory=set)
    hidden: set[ByteRange] = field(default_factory=set)
    unfenced: set[Read] = field(default_factory=set)
    globals: set[GlobalAccess] = field(default_factory=set)
    warps: set[tuple[ByteRange, Operation]] = field(default_factory=set)

    def copy(self) -> PendingAccesses:
        made = PendingAccesses()
        made.add(self)
        return made

    def add(self, other: PendingAccesses) -> bool:
        """Merge another state into this one; return whether that added anything."""
        before = self._size()
        for mine, theirs in zip(self._ranges(), other._ranges(), strict=True):
            mine |= theirs
        self.globals |= other.globals
        self.unfenced |= other.unfenced
        self.warps |= other.warps
        return self._size() > before

    def replace(self, other: PendingAccesses) -> None:
        self.reads, self.writes, self.later, self.copies, self.matmuls, self.stores, self.hidden = (
            other._ranges()
        )
        self.globals, self.unfenced, self.warps = other.globals, other.unfenced, other.warps

    def _ranges(self) -> tuple[set[ByteRange], ...]:
        return (
            self.reads,
            self.writes,
            self.later,
            self.copies,
            self.matmuls,
            self.stores,
            self.hidden,
        )

    def _size(self) -> int:
        others = len(self.globals) + len(self.unfenced) + len(self.warps)
        return others + sum(map(len, self._ranges()))

    def clear(self) -> None:
        """Drop the accesses that a barrier orders; unfenced accesses remain."""
        self.reads.clear()
        self.writes.clear()
        self.later.clear()
        self.globals.clear()
        self.warps.clear()
