"""Where the threads of a program must wait for each other.

A program means what it says, in order; its threads run on their own. A barrier is put before an operation that may touch what another thread touched
since the last barrier, if one of the two writes.

Shared memory is told apart by ranges of bytes. An operation with scratch space writes it first, waits for all threads, and reads it last: so it begins
with a write, ends with a read, and is a barrier itself. An asynchronous copy writes when it is waited for; one that is marked as ordered needs no barrier
for what was done with its buffer before, since ranges do not tell the buffers of a ring apart.

Global memory is told apart by the kernel's pointer arguments: two of them are taken to point to different memory, or, where they do not, to be used
element by element in the same place, as in an operation in place. Addresses that were loaded, or come from elsewhere, may point anywhere. Accesses through
the same pointers are by the same threads, and so in order, unless several threads hold an element: then all of them read, but one writes. Iterations
of a loop whose pointers move on by more than a tile's length do not meet (:mod:`.strides`).

An atomic operation on a scalar that releases makes what the whole program did before visible, and so does one on a tile for what was written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.table import Effect
from tilewright.ir.types import PointerType, TileType, element_type
from tilewright.passes.effects import effects_of
from tilewright.simt.assignment import Assignment
from tilewright.simt.carried import CARRIERS, Carried, all_carried
from tilewright.simt.ops import SHARED, bytes_of
from tilewright.simt.shared_memory import is_shared_pointer, scratch_sizes
from tilewright.simt.strides import advances
from tilewright.simt.target import SimtTarget

#: Stands for memory that no argument is known to point to.
_ANYWHERE: Final = None

_ATOMICS: Final = frozenset({"atomic_rmw", "atomic_cas", "atomic_load", "atomic_store"})


def insert_barriers(function: Function, assignment: Assignment, target: SimtTarget) -> None:
    """Put barriers into a function whose shared memory is placed."""
    _Barriers(function, assignment, target).run()


@dataclass(frozen=True, slots=True)
class _Global:
    """An access of global memory.

    Attributes:
        roots: the arguments that point to what is accessed.
        pointer: the pointers; None where they are other ones by now.
        earlier: it was in an earlier iteration, by pointers that have no address in common with those of this one.
    """

    roots: frozenset[Value | None]
    pointer: Value | None
    writes: bool
    earlier: bool = False


@dataclass(slots=True)
class _Pending:
    """What threads may still be doing: since the last barrier, for all that other threads know.

    Attributes:
        reads, writes: ranges of shared memory.
        copies: ranges that asynchronous copies under way write.
    """

    reads: set[tuple[int, int]] = field(default_factory=set)
    writes: set[tuple[int, int]] = field(default_factory=set)
    copies: set[tuple[int, int]] = field(default_factory=set)
    globals: set[_Global] = field(default_factory=set)

    def copy(self) -> _Pending:
        return _Pending(set(self.reads), set(self.writes), set(self.copies), set(self.globals))

    def add(self, other: _Pending) -> bool:
        """Take over what else may be going on; whether there was something new."""
        before = self._size()
        self.reads |= other.reads
        self.writes |= other.writes
        self.copies |= other.copies
        self.globals |= other.globals
        return self._size() > before

    def replace(self, other: _Pending) -> None:
        self.reads, self.writes, self.copies, self.globals = other.reads, other.writes, other.copies, other.globals

    def _size(self) -> int:
        return len(self.reads) + len(self.writes) + len(self.copies) + len(self.globals)

    def clear(self) -> None:
        """All threads have met."""
        self.reads.clear()
        self.writes.clear()
        self.globals.clear()


class _Barriers:
    def __init__(self, function: Function, assignment: Assignment, target: SimtTarget) -> None:
        self.function, self.assignment, self.target = function, assignment, target
        self.carried = all_carried(function)
        self.sizes = scratch_sizes()
        self._roots: dict[Value, frozenset[Value | None]] = {}
        self._steps: dict[tuple[Value, Operation], bool] = {}
        self._seen: set[Operation] = set()
        self._alone = target.warp_size * assignment.num_warps == 1

    def run(self) -> None:
        if not self._alone:
            self._region(self.function.body, _Pending())

    # ---- flow

    def _region(self, region: Region, pending: _Pending) -> None:
        for operation in region:
            name = operation.name
            if name in CARRIERS:
                self._structured(operation, pending)
            elif operation.spec.effects is not Effect.NONE or name in self.sizes:
                self._visit(operation, pending)
                self._seen.add(operation)

    def _structured(self, operation: Operation, pending: _Pending) -> None:
        if operation.name == "if":
            after = _Pending()
            for region in operation.regions:
                branch = pending.copy()
                self._region(region, branch)
                after.add(branch)
            pending.replace(after)
        else:
            self._loop(operation, pending)

    def _loop(self, operation: Operation, pending: _Pending) -> None:
        """What one iteration leaves, the next one finds: again until it finds all that is left. Barriers that were put in stay."""
        entry = pending.copy()
        while True:
            state = entry.copy()
            left = pending.copy()  # a for may not run at all
            for region in operation.regions:
                self._region(region, state)
                if operation.name == "while" and region is operation.regions[0]:
                    left = state.copy()  # where it ends
            state.globals = {self._outdated(access, operation) for access in state.globals}
            if not entry.add(state):
                break
        if operation.name == "for":
            left.add(state)
        pending.replace(left)

    def _outdated(self, access: _Global, loop: Operation) -> _Global:
        """An access of an earlier iteration: a pointer made in the loop is another one now."""
        if access.pointer is None:
            return access
        owner: Operation | Region | Function | None = access.pointer.owner
        while owner is not None and not isinstance(owner, Function):
            owner = owner.parent if isinstance(owner, Operation) else owner.owner
            if owner is loop:
                if self._advances(access.pointer, loop):
                    return replace(access, earlier=True)
                return replace(access, pointer=None, earlier=False)
        return access

    def _advances(self, pointer: Value, loop: Operation) -> bool:
        key = pointer, loop
        if key not in self._steps:
            self._steps[key] = advances(pointer, loop)
        return self._steps[key]

    # ---- operations

    def _visit(self, operation: Operation, pending: _Pending) -> None:
        name = operation.name
        if name == "barrier":
            pending.clear()
            return
        if name == "simt.async_wait":
            pending.writes |= pending.copies
            if operation.attribute("pending") == 0:
                pending.copies.clear()
            return
        reads, writes, copies = self._shared(operation)
        scratch = self._scratch(operation)
        accesses = self._global(operation)
        checked = [] if name == "simt.async_load" and operation.attribute("ordered") else copies
        conflict = (
            _overlap([*reads, *writes, *checked, *scratch], pending.writes)
            or _overlap([*writes, *checked, *scratch], pending.reads)
            or (bool(pending.globals) and any(self._global_conflict(operation, access, pending) for access in accesses))
        )
        if conflict:
            self._insert(operation, pending)
        pending.reads.update(reads)
        pending.writes.update(writes)
        pending.copies.update(copies)
        pending.globals.update(accesses)
        if scratch:
            pending.clear()
            pending.reads.update(scratch)
        if name == "dot":
            for load in _loads_left_to(operation):
                pending.reads.update(self._shared(load)[0])

    def _insert(self, operation: Operation, pending: _Pending) -> None:
        """A barrier before an operation; before loads from shared memory that are left to a matrix product, too, for nothing may come in between."""
        dot = operation if operation.name == "dot" else _dot_that_reads(operation)
        loads = [load for load in _loads_left_to(dot) if load in self._seen] if dot is not None else []
        place = loads[0] if loads else operation
        assert place.parent is not None
        place.parent.insert_before(Operation(TABLE["barrier"], (), (), {}, (), location=operation.location), place)
        pending.clear()
        for load in loads:
            pending.reads.update(self._shared(load)[0])

    def _scratch(self, operation: Operation) -> list[tuple[int, int]]:
        size_of = self.sizes.get(operation.name)
        size = size_of(operation, self.assignment, self.target) if size_of is not None else 0
        if not size:
            return []
        start = self.assignment.offsets[operation]
        return [(start, start + size)]

    # ---- shared memory

    def _shared(self, operation: Operation) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
        """The ranges that an operation reads, writes, and has copied."""
        name = operation.name
        if not name.startswith("simt."):
            return [], [], []
        if name == "simt.shared_load":
            return self._ranges(operation.operands[0], operation.results[0]), [], []
        if name == "simt.fragment_load":
            return self._ranges(operation.operands[0], None), [], []
        if name == "simt.shared_store":
            return [], self._ranges(operation.operands[0], operation.operands[1]), []
        if name == "simt.async_load":
            return [], [], self._ranges(operation.operands[0], None)
        return [], [], []

    def _ranges(self, address: Value, tile: Value | None) -> list[tuple[int, int]]:
        """Where a tile at an address may be."""
        found = []
        for allocation, offset in self._allocations(address, set()):
            start = self.assignment.offsets[allocation]
            if offset is not None and tile is not None and isinstance(tile.type, TileType):
                found.append((start + offset, start + offset + bytes_of(tile.type)))
            else:
                found.append((start, start + allocation.attribute("bytes")))
        return found

    def _allocations(self, address: Value, seen: set[Value]) -> list[tuple[Operation, int | None]]:
        """The allocations that an address may be in, with its offset in bytes where that is known."""
        if address in seen:
            return []
        seen.add(address)
        carried = self.carried.get(address)
        if carried is not None:
            return [(allocation, None) for value in carried.incoming() for allocation, _ in self._allocations(value, seen)]
        operation = address.definition
        assert operation is not None
        if operation.name == "simt.shared_alloc":
            return [(operation, 0)]
        return [(allocation, None) for value in operation.operands if is_shared_pointer(value) for allocation, _ in self._allocations(value, seen)]

    # ---- global memory

    def _global(self, operation: Operation) -> list[_Global]:
        name = operation.name
        if name in ("load", "store") or name in _ATOMICS:
            return [_Global(self.roots(operation.operands[0]), operation.operands[0], name not in ("load", "atomic_load"))]
        if name == "simt.async_load":
            return [_Global(self.roots(operation.operands[1]), operation.operands[1], False)]
        if name.startswith("simt."):
            return []
        effects = effects_of(operation)
        if effects & (Effect.READ | Effect.WRITE):
            return [_Global(frozenset((_ANYWHERE,)), None, bool(effects & Effect.WRITE))]
        return []

    def _global_conflict(self, operation: Operation, access: _Global, pending: _Pending) -> bool:
        if operation.name in _ATOMICS and operation.attribute("order") in ("release", "acq_rel"):
            scalar = not isinstance(operation.operands[0].type, TileType)
            if any((scalar or other.writes) and not self._same_thread(other, access) for other in pending.globals):
                return True
        for other in pending.globals:
            if not (other.writes or access.writes) or not _may_alias(other.roots, access.roots):
                continue
            if not self._same_thread(other, access):
                return True
        return False

    def _same_thread(self, earlier: _Global, access: _Global) -> bool:
        """Whether each address is touched by one thread in both accesses, if it is."""
        a, b = earlier, access
        if a.pointer is None or a.pointer is not b.pointer:
            return False
        if a.earlier:
            return True
        if a.writes and b.writes:
            return True  # always the first of the threads that hold an element
        layout = self.assignment.layouts.get(a.pointer)
        return layout is not None and layout.redundant_threads() == (0, 0)

    def roots(self, pointer: Value) -> frozenset[Value | None]:
        """The arguments that a pointer, or a tile of them, may come from."""
        found = self._roots.get(pointer)
        if found is None:
            reached: set[Value | None] = set()
            self._search(pointer, reached, set())
            found = self._roots[pointer] = frozenset(reached)
        return found

    def _search(self, value: Value, found: set[Value | None], seen: set[Value]) -> None:
        if value in seen:
            return
        seen.add(value)
        carried: Carried | None = self.carried.get(value)
        if carried is not None:
            for source in carried.incoming():
                self._search(source, found, seen)
            return
        operation = value.definition
        if operation is None:
            found.add(value)  # an argument
            return
        sources = [operand for operand in operation.operands if _is_pointer(operand)] if _passes_on(operation) else []
        if not sources and operation.name != "constant":
            found.add(_ANYWHERE)
        for source in sources:
            self._search(source, found, seen)


def _dot_that_reads(operation: Operation) -> Operation | None:
    """The matrix product that a load from shared memory is left to."""
    from tilewright.simt.lowering.shared import read_by_dot

    if operation.name != "simt.shared_load" or not read_by_dot(operation):
        return None
    (reader,) = operation.results[0].uses
    return reader


def _loads_left_to(dot: Operation) -> list[Operation]:
    """The loads from shared memory that a matrix product does itself, in order."""
    found = [load for value in dot.operands[:2] if (load := value.definition) is not None and _dot_that_reads(load) is dot]
    return found if len(found) < 2 or _precedes(found[0], found[1]) else found[::-1]


def _precedes(a: Operation, b: Operation) -> bool:
    """Whether ``a`` comes before ``b`` in their region."""
    following = a.next
    while following is not None and following is not b:
        following = following.next
    return following is b


def _passes_on(operation: Operation) -> bool:
    """Whether pointers among the results come from pointers among the operands, and not from memory or from numbers."""
    return operation.spec.effects is Effect.NONE


def _is_pointer(value: Value) -> bool:
    element = element_type(value.type)
    return isinstance(element, PointerType) and element.space != SHARED


def _may_alias(a: frozenset[Value | None], b: frozenset[Value | None]) -> bool:
    return _ANYWHERE in a or _ANYWHERE in b or not a.isdisjoint(b)


def _overlap(ranges: Iterable[tuple[int, int]], others: set[tuple[int, int]]) -> bool:
    return bool(others) and any(start < other_end and other_start < end for start, end in ranges for other_start, other_end in others)


__all__ = ["insert_barriers"]
