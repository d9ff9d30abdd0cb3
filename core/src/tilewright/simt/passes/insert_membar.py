"""Where the threads of a program must wait for each other.

A program means what it says, in order; its threads run on their own. A barrier is put before an
operation that may touch what another thread touched since the last barrier, if one of the two
writes.

Shared memory is told apart by ranges of bytes. An operation with scratch space writes it first,
waits for all threads, and reads it last: so it begins with a write, ends with a read, and is a
barrier itself. An asynchronous copy writes when it is waited for; a copy or store that is marked as
ordered needs no barrier for what was done with its buffer before, since ranges do not tell the
buffers of a ring apart; and what an ordered store writes, nothing that follows in its region
touches: other iterations do.

An mbarrier tells whether a phase of a parity has ended: a thread that waits for one while the next
two end waits for ever. So bytes that may end the next phase are announced after all threads have
seen the end of the one before: the wait counts as a read of the object, the announcement as a
write.

On some machines bulk copies and matrix instructions access shared memory through a proxy of their
own (:mod:`tilewright.simt.analysis.proxies`), and each thread must execute a proxy fence
(``simt.publish``) before the barrier or arrival that orders what it did before what they do. What
threads wrote where such a thing reads or writes is hidden until then: it is published at the next
barrier, whatever that one is for, so that loops in which no thread writes there need nothing. A
program that touches it too early for that gets a barrier more. What threads read where a bulk copy
writes later is fenced at the first barrier or arrival behind the read, and only if such a copy
comes: loops whose slots are read by matrix instructions alone, or are not filled again, get no
fence.

Global memory is told apart by the kernel's pointer arguments: two of them are taken to point to
different memory, or, where they do not, to be used element by element in the same place, as in an
operation in place. Addresses that were loaded, or come from elsewhere, may point anywhere. Assembly
that is given nothing has no address to access: it may order what threads did before, for which they
meet, and each orders by it what it does itself. Of accesses through one argument, those that have
no address in common need no barrier (:mod:`tilewright.simt.analysis.address_overlap`): halves of a
row, or iterations of a loop whose pointers move on by more than a tile's length. Accesses through
equal pointers in one layout are by the same threads, and so in order, unless several threads hold
an element: then all of them read, but one writes.

Where halves of the warps are a barrier apart (``simt.stagger``), what is said here does not hold,
and what a loop does is put between barriers of its own; a program that would need another one there
is refused.

No barrier stands in a branch, or a loop, that threads may take differently
(:mod:`tilewright.simt.analysis.divergence`): those that do not come would be waited for in vain.
What is done there waits for what came before it in front of the branch. Inside, each thread does
its own in order, and global memory is not ordered between threads. Where they would have to meet in
it all the same, such as for scratch space, the program is refused.

An atomic operation on a scalar that releases makes what the whole program did before visible, and
so does one on a tile for what was written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.debug import InlineAsm
from tilewright.ir.ops.memory import AtomicCas, AtomicLoad, AtomicRmw, AtomicStore
from tilewright.ir.table import Effect
from tilewright.ir.types import PointerType, TileType, element_type
from tilewright.passes.analysis.affine import is_inside
from tilewright.passes.effects import effects_of
from tilewright.simt.analysis.address_overlap import AddressOverlap
from tilewright.simt.analysis.alias import MAKING
from tilewright.simt.analysis.async_hazards import FlightError
from tilewright.simt.analysis.divergence import Divergence, DivergentBranch
from tilewright.simt.analysis.proxies import proxy_accesses
from tilewright.simt.assign_layouts.coalesce import ACCESSES, mask_of
from tilewright.simt.dialect.async_groups import Tokens
from tilewright.simt.dialect.attributes import WARPS, layout_of
from tilewright.simt.dialect.loop_carried import CARRIERS, Carried, all_carried, terminator
from tilewright.simt.dialect.op_interface import SharedEffects
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.registry import interface_of
from tilewright.simt.dialect.types import COPIES, MATMULS, STORES
from tilewright.simt.passes.allocate_shared import is_place, scratch_of
from tilewright.simt.passes.shared_ranges import ByteRange, SharedRanges, overlap
from tilewright.simt.target.simt_target import SimtTarget

#: Stands for memory that no argument is known to point to.
_ANYWHERE: Final = None

#: Operations before whose end all threads have met: mbarriers are made by one thread, and then
#: there for all.
_MEETINGS: Final = frozenset({"barrier", "simt.barriers"})

_ATOMICS: Final = (AtomicRmw, AtomicCas, AtomicLoad, AtomicStore)


def insert_barriers(function: Function, target: SimtTarget) -> None:
    """Put barriers into a function whose shared memory is placed."""
    _Barriers(function, target).run()


@dataclass(frozen=True, slots=True)
class _Global:
    """An access of global memory.

    Attributes:
        roots: the arguments that point to what is accessed.
        pointer, mask: the pointers and the mask; None where there is none. An access by a
            descriptor has neither.
        loop: the outermost loop in whose body the pointers are made, and in an earlier iteration of
            which the access was.
    """

    roots: frozenset[Value | None]
    pointer: Value | None
    writes: bool
    mask: Value | None = None
    loop: Operation | None = None


#: A range that threads read, and the first barrier or arrival after that.
_Read = tuple[ByteRange, Operation | None]


@dataclass(slots=True)
class _Pending:
    """What threads may still be doing: since the last barrier, for all that other threads know.

    Attributes:
        reads, writes: ranges of shared memory.
        later: ranges that were written, and that nothing touches before the end of the region that
            does it.
        copies: ranges that asynchronous copies in flight write.
        matmuls: ranges that asynchronous matmuls in flight read. No barrier makes it safe to write
            there.
        stores: ranges that copies to tensors in flight read.
        hidden: ranges that threads wrote, and that TMA copies and matmuls do not see yet.
        unfenced: ranges that threads read and bulk copies write somewhere, each with the first
            operation by which other threads learned that the read was issued, if one came.
    """

    reads: set[ByteRange] = field(default_factory=set)
    writes: set[ByteRange] = field(default_factory=set)
    later: set[ByteRange] = field(default_factory=set)
    copies: set[ByteRange] = field(default_factory=set)
    matmuls: set[ByteRange] = field(default_factory=set)
    stores: set[ByteRange] = field(default_factory=set)
    hidden: set[ByteRange] = field(default_factory=set)
    unfenced: set[_Read] = field(default_factory=set)
    globals: set[_Global] = field(default_factory=set)

    def copy(self) -> _Pending:
        made = _Pending()
        made.add(self)
        return made

    def add(self, other: _Pending) -> bool:
        """Take over what else may be going on; whether there was something new."""
        before = self._size()
        for mine, theirs in zip(self._ranges(), other._ranges(), strict=True):
            mine |= theirs
        self.globals |= other.globals
        self.unfenced |= other.unfenced
        return self._size() > before

    def replace(self, other: _Pending) -> None:
        self.reads, self.writes, self.later, self.copies, self.matmuls, self.stores, self.hidden = other._ranges()
        self.globals, self.unfenced = other.globals, other.unfenced

    def _ranges(self) -> tuple[set[ByteRange], ...]:
        return self.reads, self.writes, self.later, self.copies, self.matmuls, self.stores, self.hidden

    def _size(self) -> int:
        return len(self.globals) + len(self.unfenced) + sum(map(len, self._ranges()))

    def clear(self) -> None:
        """All threads have met; what is hidden stays so."""
        self.reads.clear()
        self.writes.clear()
        self.later.clear()
        self.globals.clear()


class _Barriers:
    def __init__(self, function: Function, target: SimtTarget) -> None:
        self.function, self.target = function, target
        self._divergence = Divergence(function, target)
        self._diverged: DivergentBranch | None = None
        self.carried = all_carried(function)
        self.tokens = Tokens(function)
        self.ranges = SharedRanges(function, target, self.carried)
        self._roots: dict[Value, frozenset[Value | None]] = {}
        self._overlap = AddressOverlap(function)
        #: ranges that TMA copies and matmuls touch, where those do not see what threads write
        self._engines: set[ByteRange] = set()
        #: ranges that bulk copies write, and those that the copies of other parts than this do
        self._async_writes: set[ByteRange] = set()
        self._beside: set[ByteRange] = set()
        self._alone = target.warp_size * function.attributes[WARPS] == 1

    def run(self) -> None:
        if self.target.published:
            for operation in self.function.walk():
                if operation.spec.effects is not Effect.NONE:
                    effects = _effects(operation, self.target)
                    self._engines.update(self._touched(operation, effects))
                    self._async_writes.update(self.ranges.of_slots(effects.blocks))
        if not self._alone:
            self._region(self.function.body, _Pending())

    # ---- flow

    def _region(self, region: Region, pending: _Pending) -> None:
        for operation in region:
            name = operation.name
            if name in CARRIERS:
                cause = self._divergence.cause(operation) if self._diverged is None else None
                if cause is not None:
                    self._diverge(operation, cause, pending)
                else:
                    self._structured(operation, pending)
            elif name == "simt.partition":
                self._parts(operation, pending)
            elif operation.spec.effects is not Effect.NONE or scratch_of(operation, self.target):
                self._visit(operation, pending)
        pending.writes |= pending.later
        pending.later.clear()

    def _parts(self, operation: Operation, pending: _Pending) -> None:
        """What parts do to each other is ordered by mbarriers; all threads meet before they begin,
        if they did anything, and when they are over."""
        (region,) = operation.regions
        if self._diverged is not None:
            raise self._diverged.refusal(operation)
        parts = [part for part in region if part.name == "simt.part"]
        if pending.reads or pending.writes or pending.globals or pending.hidden:
            self._insert(operation, pending)  # a barrier in a part is for its own threads only
        ends = []
        written = {part: self._written_by_copies(part.regions[0]) for part in parts}
        for part in parts:
            ends.append(pending.copy())
            self._beside = {one for other in parts if other is not part for one in written[other]}
            self._region(part.regions[0], ends[-1])
            self._learned(terminator(part.regions[0]), ends[-1])
        self._beside = set()
        for end in ends:
            pending.hidden |= end.hidden
            pending.unfenced |= end.unfenced
        pending.clear()

    def _diverge(self, operation: Operation, cause: InlineAsm, pending: _Pending) -> None:
        """A branch or loop without barriers: what in it waits for what came before does so in front
        of it."""
        after, found = self._look_through(operation, cause, pending)
        if found.waits:
            self._insert(operation, pending)
            after, found = self._look_through(operation, cause, pending)
            if found.shared is not None:
                raise found.refusal(found.shared)
        pending.replace(after)

    def _look_through(self, operation: Operation, cause: InlineAsm, pending: _Pending) -> tuple[_Pending, DivergentBranch]:
        """(what threads may still be doing after a branch or loop, what in it is without barrier)."""
        self._diverged, after = DivergentBranch(operation, cause), pending.copy()
        try:
            self._structured(operation, after)
            return after, self._diverged
        finally:
            self._diverged = None

    def _written_by_copies(self, region: Region) -> set[ByteRange]:
        """The ranges that the bulk copies of a region write."""
        slots = (slot for one in region.walk() for slot in _effects(one, self.target).blocks)
        return set(self.ranges.of_slots(slots)) if self._async_writes else set()

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
        """What one iteration leaves, the next one finds: again until it finds all that is left.

        Barriers that were put in stay.
        """
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
        """An access of an earlier iteration: pointers and masks made in the loop are other ones
        now. (Across iterations masks are not looked at.)"""
        if access.pointer is not None and is_inside(access.pointer, loop):
            return replace(access, loop=loop)
        return replace(access, mask=None) if access.mask is not None and is_inside(access.mask, loop) else access

    # ---- operations

    def _visit(self, operation: Operation, pending: _Pending) -> None:
        name = operation.name
        if self._diverged is not None and self._meets(operation):
            raise self._diverged.refusal(operation)
        if name == "simt.barriers" and overlap([self.ranges.of_object(operation, None)], pending.reads):
            self._insert(operation, pending)  # made anew, while threads may still wait for the phases of the old ones
        if name == "simt.publish":
            pending.hidden.clear()
            pending.unfenced = {one for one in pending.unfenced if one[1] is not None}
            return
        if name in _MEETINGS or name == "simt.arrive":
            self._publish(operation, pending)
            self._learned(operation, pending)
        if name in _MEETINGS:
            pending.clear()
            return
        if name == "simt.wait":
            self._wait(operation, pending)
            return
        effects = _effects(operation, self.target)
        reads, writes, copies, matmuls = (self.ranges.of_slots(part) for part in (effects.reads, effects.writes, effects.copies, effects.matmuls))
        stores, blocks = self.ranges.of_slots(effects.stores), self.ranges.of_slots(effects.blocks)
        reads += self.ranges.of_objects(effects.awaited)
        scratch = self.ranges.of_scratch(operation)
        accesses = self._global(operation)
        checked = [] if effects.ordered else [*writes, *copies, *blocks, *self.ranges.of_objects(effects.announced)]
        shared = (
            overlap([*reads, *matmuls, *stores, *checked, *scratch], pending.writes)
            or overlap(self._touched(operation, effects), pending.hidden)
            or overlap([*checked, *scratch], pending.reads)
        )
        if shared or (bool(pending.globals) and any(self._global_conflict(operation, access, pending) for access in accesses)):
            if self._diverged is None:
                self._insert(operation, pending)
            else:
                self._diverged.waits = True
                if shared:
                    self._diverged.shared = self._diverged.shared or operation
        if not effects.ordered and overlap([*writes, *blocks, *scratch], pending.matmuls):
            raise FlightError(f"{name} at {operation.location}: writes what a matmul in flight reads: a simt.wait for that comes before")
        self._fence_reads(blocks, pending)
        pending.reads.update(reads)
        (pending.later if effects.ordered else pending.writes).update(writes)
        pending.copies.update(copies)
        pending.matmuls.update(matmuls)
        pending.stores.update(stores)
        if not (isinstance(operation, InlineAsm) and not operation.inputs):
            pending.globals.update(accesses)
        self._hide([*writes, *scratch], pending)
        if scratch:
            self._learned(operation, pending)
            pending.clear()
            pending.reads.update(scratch)
        if self._async_writes:
            generic = self.ranges.of_slots(proxy_accesses(operation, effects, self.target).generic_reads)
            # scratch space was written too, and is fenced for that
            pending.unfenced |= {(one, None) for one in generic if overlap([one], self._async_writes)}

    def _meets(self, operation: Operation) -> bool:
        """Return whether all threads of the program, or of a warp, do an operation together."""
        effects = _effects(operation, self.target)
        together = (effects.blocks, effects.matmuls, effects.stores, effects.engines, effects.awaited, effects.announced)
        return operation.name in _MEETINGS or any(together) or bool(scratch_of(operation, self.target))

    def _wait(self, operation: Operation, pending: _Pending) -> None:
        """What copies wrote, and matmuls read, may be followed by a barrier now."""
        for queue, left in self.tokens.pending(operation):
            if queue == COPIES.queue:
                pending.writes |= pending.copies
                self._hide(pending.copies, pending)
                if not left:
                    pending.copies.clear()
            elif queue == MATMULS.queue:
                pending.reads |= pending.matmuls
                if not left:
                    pending.matmuls.clear()
            elif queue == STORES.queue:
                pending.reads |= pending.stores
                if not left:
                    pending.stores.clear()

    def _insert(self, operation: Operation, pending: _Pending) -> None:
        """A barrier before an operation."""
        self._publish(operation, pending)
        assert operation.parent is not None
        if any(other.name == "simt.phase" for other in operation.parent):
            raise FlightError(f"{operation.name} at {operation.location}: a barrier is needed before it, where halves of the warps are a barrier apart")
        barrier = Operation(TABLE["barrier"], (), (), {}, (), location=operation.location)
        operation.parent.insert_before(barrier, operation)
        self._learned(barrier, pending)
        pending.clear()

    # ---- what TMA copies and matmuls see

    def _touched(self, operation: Operation, effects: SharedEffects) -> list[ByteRange]:
        """What TMA copies and matmuls read or write."""
        if not self.target.published:
            return []
        found = proxy_accesses(operation, effects, self.target)
        return self.ranges.of_slots((*found.async_reads, *found.async_writes))

    def _hide(self, written: Iterable[ByteRange], pending: _Pending) -> None:
        """What threads wrote is not seen by copies and matmuls, if any go there."""
        pending.hidden.update(one for one in written if overlap([one], self._engines))

    def _publish(self, operation: Operation, pending: _Pending) -> None:
        """Before an operation, by which others learn that this thread came so far, what is hidden
        is published."""
        if pending.hidden:
            _insert_fence(operation)
            pending.hidden.clear()

    def _learned(self, operation: Operation, pending: _Pending) -> None:
        """By an operation other threads learn how far this one came. Reads that were fenced just
        before it are done with; for the others this is the place for a fence, if one is needed.
        By an arrival copies of other parts learn it too, which may write from then on."""
        beside = self._beside if operation.name == "simt.arrive" else ()
        if not _is_fenced(operation) and overlap((one for one, _ in pending.unfenced), beside):
            _insert_fence(operation)
        if _is_fenced(operation):
            pending.unfenced = set()
        else:
            pending.unfenced = {(one, before or operation) for one, before in pending.unfenced}

    def _fence_reads(self, blocks: list[ByteRange], pending: _Pending) -> None:
        """Before a bulk copy writes some ranges, put fences between the reads of them and the
        barriers or arrivals that came behind. There are none behind a read of another slot of the
        ring that an ordered copy fills."""
        for place in {before for one, before in pending.unfenced if before is not None and overlap([one], blocks)}:
            if not _is_fenced(place):
                _insert_fence(place)
            pending.unfenced = {one for one in pending.unfenced if one[1] is not place}

    # ---- global memory

    def _global(self, operation: Operation) -> list[_Global]:
        effects = effects_of(operation)
        slots = any(is_place(operand) for operand in operation.operands)
        addresses = {declared.name: operation.operand(declared.name) for declared in operation.spec.operands if declared.name in ("pointer", "descriptor")}
        if (pointer := addresses.get("pointer")) is not None:
            mask = mask_of(operation) if isinstance(operation, ACCESSES) else None
            return [_Global(self.roots(pointer), pointer, bool(effects & Effect.WRITE) and not slots, mask)]
        if (descriptor := addresses.get("descriptor")) is not None:
            return [_Global(self._described(descriptor), None, bool(effects & Effect.WRITE) and not _effects(operation, self.target).blocks)]
        if slots:
            return []
        if effects & (Effect.READ | Effect.WRITE):
            return [_Global(frozenset((_ANYWHERE,)), None, bool(effects & Effect.WRITE))]
        return []

    def _described(self, descriptor: Value) -> frozenset[Value | None]:
        """A descriptor, and the argument that points to the same tensor: the first of its parts,
        which stand behind it, or what it was made of."""
        arguments = self.function.arguments
        made = descriptor.definition
        if made is not None:
            assert isinstance(made, MAKING)
            return self.roots(made.base)
        return frozenset((descriptor, *(arguments[descriptor.index + 1 : descriptor.index + 2] if descriptor.owner is self.function.body else ())))

    def _global_conflict(self, operation: Operation, access: _Global, pending: _Pending) -> bool:
        if isinstance(operation, _ATOMICS) and operation.order in ("release", "acq_rel"):
            scalar = not isinstance(operation.pointer.type, TileType)
            if any((scalar or other.writes) and not self._same_thread(other, access) for other in pending.globals):
                return True
        for other in pending.globals:
            if not (other.writes or access.writes) or not _may_alias(other.roots, access.roots):
                continue
            if not self._same_thread(other, access):
                return True
        return False

    def _same_thread(self, earlier: _Global, access: _Global) -> bool:
        """Return whether each address that both accesses touch is touched by one thread."""
        a, b = earlier.pointer, access.pointer
        if a is None or b is None:
            return False
        if a.layout == b.layout and self._overlap.are_elementwise(a, b, earlier.loop):
            if earlier.writes and access.writes:
                return True  # always the first of the threads that hold an element
            if a.layout is not None and layout_of(a).redundant_threads() == (0, 0):
                return True
        return self._overlap.are_apart(a, earlier.mask, b, access.mask, earlier.loop)

    def roots(self, pointer: Value) -> frozenset[Value | None]:
        """The arguments that a pointer, or a tile of them, may come from."""
        found = self._roots.get(pointer)
        if found is None:
            found = self._roots[pointer] = frozenset(self._reached(pointer))
        return found

    def _reached(self, pointer: Value) -> set[Value | None]:
        found: set[Value | None] = set()
        pending, seen = [pointer], {pointer}
        while pending:
            value = pending.pop()
            known = self._roots.get(value)
            if known is not None:
                found |= known
                continue
            sources = self._sources(value, found)
            pending += [source for source in sources if source not in seen]
            seen.update(sources)
        return found

    def _sources(self, value: Value, found: set[Value | None]) -> list[Value]:
        """The pointers that a pointer comes from; a root is put into ``found`` instead."""
        carried: Carried | None = self.carried.get(value)
        if carried is not None:
            return list(carried.incoming())
        operation = value.definition
        if operation is None:
            found.add(value)  # an argument
            return []
        sources = [operand for operand in operation.operands if _is_pointer(operand)] if _passes_on(operation) else []
        if not sources and operation.name != "constant":
            found.add(_ANYWHERE)
        return sources


def _effects(operation: Operation, target: SimtTarget) -> SharedEffects:
    interface = interface_of(target, operation.name)
    return interface.effects(operation) if interface is not None and interface.effects is not None else SharedEffects()


def _is_fenced(operation: Operation) -> bool:
    """Return whether a proxy fence stands directly before an operation."""
    before = operation.previous
    return before is not None and before.name == "simt.publish"


def _insert_fence(operation: Operation) -> None:
    """Put a proxy fence before an operation."""
    assert operation.parent is not None
    fence = Operation(SIMT_TABLE["simt.publish"], (), (), {}, (), location=operation.location)
    operation.parent.insert_before(fence, operation)


def _passes_on(operation: Operation) -> bool:
    """Return whether pointers among the results come from pointers among the operands, and not from
    memory or from numbers."""
    return operation.spec.effects is Effect.NONE


def _is_pointer(value: Value) -> bool:
    return isinstance(element_type(value.type), PointerType)


def _may_alias(a: frozenset[Value | None], b: frozenset[Value | None]) -> bool:
    return _ANYWHERE in a or _ANYWHERE in b or not a.isdisjoint(b)


__all__ = ["insert_barriers"]
