"""Barrier and proxy fence insertion: order conflicting accesses of a program's threads.

A Tile IR program has sequential semantics, but its threads run independently. The pass inserts a
barrier before an operation that may access bytes which another thread accessed since the last
barrier, if at least one of the two accesses writes.

Shared memory accesses are compared by byte range. An operation with scratch space writes it first,
synchronizes all threads, and reads it last: the pass models it as a write at its beginning, a
barrier, and a read at its end. An asynchronous copy counts as a write at the wait for it. A copy or
store marked `ordered` needs no barrier against earlier accesses of its buffer, because byte ranges
do not distinguish the slots of a multi-buffered allocation; nothing later in the same region
accesses the bytes that an ordered store writes, only other iterations do.

An mbarrier wait tests the parity of a phase: a thread that still waits for a phase when the next
two have completed waits forever. `expect_tx` for the next phase must therefore come after all
threads have observed the end of the previous one: the pass treats the wait as a read of the
mbarrier, and the `expect_tx` as a write.

On some targets bulk copies and matrix instructions access shared memory through the async proxy
(:mod:`tilewright.simt.analysis.proxies`), and each thread must execute a proxy fence
(``simt.publish``) before the barrier or arrival that orders its generic-proxy accesses before
theirs. A generic-proxy write to bytes that the async proxy accesses anywhere in the function stays
unfenced until the next barrier, whatever that barrier is for, and the fence is placed there: a loop
in which no thread writes such bytes needs no fence. If the async proxy accesses the bytes earlier,
the pass inserts a barrier with a fence. A generic-proxy read of bytes that a bulk copy overwrites
later is fenced at the first barrier or arrival after the read, and only if such a copy follows: a
loop whose slots only matrix instructions read, or whose slots are not refilled, gets no fence.

Global memory accesses are compared by the kernel's pointer arguments: two arguments are assumed to
point to different memory, or to be used elementwise at the same positions, as in an in-place
operation. A loaded address, or one of unknown origin, may point anywhere. Inline assembly without
inputs has no address to access, but may order the accesses of its own thread; a barrier therefore
stands between earlier accesses and it. Two accesses through one argument need no barrier if their
addresses are disjoint (:mod:`tilewright.simt.analysis.address_overlap`), for instance two halves of
a row, or iterations of a loop whose pointers advance by more than a tile's length. Equal pointers
in one layout are accessed by the same threads, and so in order, unless several threads hold the
same element: then all of them read it, but only one writes it.

Where two halves of the warps run one barrier apart (``simt.stagger``), these rules do not apply:
the loop's barriers are already in place, and the pass refuses a program that would need another one
there.

The pass inserts no barrier into a branch or loop on which threads may diverge
(:mod:`tilewright.simt.analysis.divergence`), because the threads that do not enter it would never
arrive. A barrier that an operation in it needs against earlier accesses stands before the branch.
Inside, each thread executes its own accesses in order, and global memory accesses of different
threads are unordered. The pass refuses a program whose threads would have to synchronize inside all
the same, for instance to use scratch space.

A scalar atomic with release semantics makes all earlier accesses of the whole program visible, and
a tile atomic makes earlier writes visible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tilewright.ir.core import Function, Operation, Region
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.control import For, If, While
from tilewright.ir.ops.debug import InlineAsm
from tilewright.ir.ops.memory import ATOMICS, Barrier
from tilewright.ir.table import Effect
from tilewright.ir.types import TileType
from tilewright.passes.analysis.affine import is_inside
from tilewright.passes.effects import effects_of
from tilewright.simt.analysis.address_overlap import AddressOverlap
from tilewright.simt.analysis.async_hazards import FlightError
from tilewright.simt.analysis.divergence import Divergence, DivergentBranch
from tilewright.simt.analysis.pending_accesses import ByteRange, GlobalAccess, PendingAccesses
from tilewright.simt.analysis.proxies import proxy_accesses
from tilewright.simt.analysis.underlying_objects import ANYWHERE, UnderlyingObjects, may_alias
from tilewright.simt.assign_layouts.coalesce import ACCESSES, mask_of
from tilewright.simt.dialect.async_groups import Tokens
from tilewright.simt.dialect.attributes import WARPS, layout_of
from tilewright.simt.dialect.loop_carried import CARRIERS, all_carried, terminator
from tilewright.simt.dialect.op_interface import SharedEffects
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.mbarrier import Arrive, Await, Barriers, Publish
from tilewright.simt.dialect.ops.warp_specialize import Part, Partition, Phase
from tilewright.simt.dialect.registry import interface_of
from tilewright.simt.dialect.types import COPIES, MATMULS, STORES
from tilewright.simt.passes.allocate_shared import is_place, scratch_of
from tilewright.simt.passes.shared_ranges import SharedRanges, overlap
from tilewright.simt.target.simt_target import SimtTarget

#: Operations that synchronize all threads: one thread initializes mbarriers, and a barrier
#: follows.
_BARRIERS: Final = (Barrier, Barriers)


def insert_barriers(function: Function, target: SimtTarget) -> None:
    """Insert barriers and proxy fences into a function whose shared memory is allocated."""
    _Barriers(function, target).run()


class _Barriers:
    def __init__(self, function: Function, target: SimtTarget) -> None:
        self.function, self.target = function, target
        self._divergence = Divergence(function, target)
        self._diverged: DivergentBranch | None = None
        self.carried = all_carried(function)
        self.tokens = Tokens(function)
        self.ranges = SharedRanges(function, target, self.carried)
        self.objects = UnderlyingObjects(function, self.carried)
        self._overlap = AddressOverlap(function)
        #: ranges that the async proxy accesses, if that needs proxy fences
        self._engines: set[ByteRange] = set()
        #: ranges that bulk copies write, and the ranges that those of other partitions write
        self._async_writes: set[ByteRange] = set()
        self._beside: set[ByteRange] = set()
        self._alone = target.resources.warp_size * function.attributes[WARPS] == 1

    def run(self) -> None:
        if self.target.async_proxy is not None:
            for operation in self.function.walk():
                if operation.spec.effects is not Effect.NONE:
                    effects = _effects(operation, self.target)
                    self._engines.update(self._touched(operation, effects))
                    self._async_writes.update(self.ranges.of_slots(effects.blocks))
        if not self._alone:
            self._region(self.function.body, PendingAccesses())

    # ---- flow

    def _region(self, region: Region, pending: PendingAccesses) -> None:
        for operation in region:
            if isinstance(operation, CARRIERS):
                cause = self._divergence.cause(operation) if self._diverged is None else None
                if cause is not None:
                    self._diverge(operation, cause, pending)
                else:
                    self._structured(operation, pending)
            elif isinstance(operation, Partition):
                self._parts(operation, pending)
            elif operation.spec.effects is not Effect.NONE or scratch_of(operation, self.target):
                self._visit(operation, pending)
        pending.writes |= pending.later
        pending.later.clear()

    def _parts(self, operation: Operation, pending: PendingAccesses) -> None:
        """Visit the warp-specialized partitions, which mbarriers order among each other.

        If any access is pending, a barrier stands before the partitions; all threads synchronize
        after them.
        """
        (region,) = operation.regions
        if self._diverged is not None:
            raise self._diverged.refusal(operation)
        parts = [part for part in region if isinstance(part, Part)]
        if pending.reads or pending.writes or pending.globals or pending.hidden:
            self._insert(operation, pending)  # a partition's barriers are its own threads' alone
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

    def _diverge(self, operation: Operation, cause: InlineAsm, pending: PendingAccesses) -> None:
        """Visit a divergent branch or loop: any barrier that it needs stands before it."""
        after, found = self._look_through(operation, cause, pending)
        if found.waits:
            self._insert(operation, pending)
            after, found = self._look_through(operation, cause, pending)
            if found.shared is not None:
                raise found.refusal(found.shared)
        pending.replace(after)

    def _look_through(
        self, operation: Operation, cause: InlineAsm, pending: PendingAccesses
    ) -> tuple[PendingAccesses, DivergentBranch]:
        """Return the state after a divergent branch or loop, and the barriers that it lacks."""
        self._diverged, after = DivergentBranch(operation, cause), pending.copy()
        try:
            self._structured(operation, after)
            return after, self._diverged
        finally:
            self._diverged = None

    def _written_by_copies(self, region: Region) -> set[ByteRange]:
        """Ranges that the bulk copies of a region write."""
        slots = (slot for one in region.walk() for slot in _effects(one, self.target).blocks)
        return set(self.ranges.of_slots(slots)) if self._async_writes else set()

    def _structured(self, operation: Operation, pending: PendingAccesses) -> None:
        if isinstance(operation, If):
            after = PendingAccesses()
            for region in operation.regions:
                branch = pending.copy()
                self._region(region, branch)
                after.add(branch)
            pending.replace(after)
        else:
            self._loop(operation, pending)

    def _loop(self, operation: Operation, pending: PendingAccesses) -> None:
        """Visit a loop until the accesses pending at the end of an iteration reach a fixed point.

        Barriers inserted on the way stay. Where the async proxy accesses in the loop what threads
        wrote before it, the fence and its barrier stand before the loop, not in each iteration.
        """
        if self._diverged is None and pending.hidden and self._reads_hidden(operation, pending):
            self._insert(operation, pending)
        entry = pending.copy()
        while True:
            state = entry.copy()
            left = pending.copy()  # a for may not run at all
            for region in operation.regions:
                self._region(region, state)
                if isinstance(operation, While) and region is operation.regions[0]:
                    left = state.copy()  # the loop exits here
            state.globals = {self._outdated(access, operation) for access in state.globals}
            if not entry.add(state):
                break
        if isinstance(operation, For):
            left.add(state)
        pending.replace(left)

    def _reads_hidden(self, loop: Operation, pending: PendingAccesses) -> bool:
        """Return whether the async proxy accesses unfenced writes in a loop."""
        return any(
            overlap(self._touched(inner, _effects(inner, self.target)), pending.hidden)
            for region in loop.regions
            for inner in region.walk()
            if inner.spec.effects is not Effect.NONE
        )

    def _outdated(self, access: GlobalAccess, loop: Operation) -> GlobalAccess:
        """Turn an access into one of an earlier iteration of a loop.

        Pointers and masks that the loop's body defines have other values now; masks are not
        compared across iterations.
        """
        if access.pointer is not None and is_inside(access.pointer, loop):
            return replace(access, loop=loop)
        return (
            replace(access, mask=None)
            if access.mask is not None and is_inside(access.mask, loop)
            else access
        )

    # ---- operations

    def _visit(self, operation: Operation, pending: PendingAccesses) -> None:
        name = operation.name
        if self._diverged is not None and self._meets(operation):
            raise self._diverged.refusal(operation)
        if isinstance(operation, Barriers) and overlap(
            [self.ranges.of_object(operation, None)], pending.reads
        ):
            self._insert(
                operation, pending
            )  # made anew, while threads may still wait for the phases of the old ones
        if isinstance(operation, Publish):
            pending.hidden.clear()
            pending.unfenced = {one for one in pending.unfenced if one[1] is not None}
            return
        if isinstance(operation, (*_BARRIERS, Arrive)):
            self._publish(operation, pending)
            self._learned(operation, pending)
        if isinstance(operation, _BARRIERS):
            pending.clear()
            return
        if isinstance(operation, Wait):
            self._wait(operation, pending)
            return
        if isinstance(operation, Await) and operation.stores:
            loop = next(operation.ancestors())
            pending.globals = {one for one in pending.globals if one.loop is not loop}
        effects = _effects(operation, self.target)
        reads, writes, copies, matmuls = (
            self.ranges.of_slots(part)
            for part in (effects.reads, effects.writes, effects.copies, effects.matmuls)
        )
        stores, blocks = self.ranges.of_slots(effects.stores), self.ranges.of_slots(effects.blocks)
        reads += self.ranges.of_objects(effects.awaited)
        scratch = self.ranges.of_scratch(operation)
        accesses = self._global(operation)
        checked = (
            []
            if effects.ordered
            else [*writes, *copies, *blocks, *self.ranges.of_objects(effects.announced)]
        )
        shared = (
            overlap([*reads, *matmuls, *stores, *checked, *scratch], pending.writes)
            or overlap(self._touched(operation, effects), pending.hidden)
            or overlap([*checked, *scratch], pending.reads)
            or overlap(
                [*reads, *matmuls, *stores, *checked, *scratch],
                [one for one, other in pending.warps if other is not operation],
            )
        )
        if shared or (
            bool(pending.globals)
            and any(self._global_conflict(operation, access, pending) for access in accesses)
        ):
            if self._diverged is None:
                self._insert(operation, pending)
            else:
                self._diverged.waits = True
                if shared:
                    self._diverged.shared = self._diverged.shared or operation
        if not effects.ordered and overlap([*writes, *blocks, *scratch], pending.matmuls):
            raise FlightError(
                f"{name} at {operation.location}: writes what a matmul in flight reads: a "
                "simt.wait for that comes before"
            )
        self._fence_reads(blocks, pending)
        pending.reads.update(reads)
        (pending.later if effects.ordered else pending.writes).update(writes)
        pending.copies.update(copies)
        pending.matmuls.update(matmuls)
        pending.stores.update(stores)
        if not (isinstance(operation, InlineAsm) and not operation.inputs):
            pending.globals.update(accesses)
        self._hide([*writes, *scratch], pending)
        if scratch and _is_within_warps(operation, self.target):
            pending.warps |= {(one, operation) for one in scratch}
        elif scratch:
            self._learned(operation, pending)
            pending.clear()
            pending.reads.update(scratch)
        if self._async_writes:
            generic = self.ranges.of_slots(
                proxy_accesses(operation, effects, self.target).generic_reads
            )
            # scratch space was written as well, and the fence for the write covers the read
            pending.unfenced |= {
                (one, None) for one in generic if overlap([one], self._async_writes)
            }

    def _meets(self, operation: Operation) -> bool:
        """Return whether all threads of the program or of a warp execute an operation together."""
        effects = _effects(operation, self.target)
        together = (
            effects.blocks,
            effects.matmuls,
            effects.stores,
            effects.engines,
            effects.awaited,
            effects.announced,
        )
        return (
            isinstance(operation, _BARRIERS)
            or any(together)
            or bool(scratch_of(operation, self.target))
        )

    def _wait(self, operation: Operation, pending: PendingAccesses) -> None:
        """Turn completed copies into writes, and completed matmuls and bulk stores into reads.

        From here on a barrier orders them.
        """
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

    def _insert(self, operation: Operation, pending: PendingAccesses) -> None:
        """Insert a barrier before an operation, with a proxy fence if accesses are unfenced."""
        self._publish(operation, pending)
        assert operation.parent is not None
        if any(isinstance(other, Phase) for other in operation.parent):
            raise FlightError(
                f"{operation.name} at {operation.location}: a barrier is needed before it, where "
                "halves of the warps are a barrier apart"
            )
        barrier = Operation(TABLE["barrier"], (), (), {}, (), location=operation.location)
        operation.parent.insert_before(barrier, operation)
        self._learned(barrier, pending)
        pending.clear()

    # ---- proxy fences

    def _touched(self, operation: Operation, effects: SharedEffects) -> list[ByteRange]:
        """Ranges that an operation accesses through the async proxy."""
        if self.target.async_proxy is None:
            return []
        found = proxy_accesses(operation, effects, self.target)
        return self.ranges.of_slots((*found.async_reads, *found.async_writes))

    def _hide(self, written: Iterable[ByteRange], pending: PendingAccesses) -> None:
        """Record generic-proxy writes to bytes that the async proxy accesses in the function."""
        pending.hidden.update(one for one in written if overlap([one], self._engines))

    def _publish(self, operation: Operation, pending: PendingAccesses) -> None:
        """Insert a proxy fence for the pending generic-proxy writes before a barrier or arrival."""
        if pending.hidden:
            _insert_fence(operation)
            pending.hidden.clear()

    def _learned(self, operation: Operation, pending: PendingAccesses) -> None:
        """Record a barrier or arrival, by which other threads learn that earlier reads were issued.

        Reads fenced directly before it are complete; for all other reads this is the place for a
        fence, should a bulk copy need one. After an arrival, bulk copies of other partitions may
        write as well, so reads of bytes that they write are fenced here.
        """
        beside = self._beside if isinstance(operation, Arrive) else ()
        if not _is_fenced(operation) and overlap((one for one, _ in pending.unfenced), beside):
            _insert_fence(operation)
        if _is_fenced(operation):
            pending.unfenced = set()
        else:
            pending.unfenced = {(one, before or operation) for one, before in pending.unfenced}

    def _fence_reads(self, blocks: list[ByteRange], pending: PendingAccesses) -> None:
        """Fence the pending reads of bytes that a bulk copy overwrites.

        The fences go to the barriers or arrivals after the reads. A read of another slot of the
        multi-buffered allocation that an ordered copy fills has no barrier or arrival after it yet.
        """
        for place in {
            before
            for one, before in pending.unfenced
            if before is not None and overlap([one], blocks)
        }:
            if not _is_fenced(place):
                _insert_fence(place)
            pending.unfenced = {one for one in pending.unfenced if one[1] is not place}

    # ---- global memory

    def _global(self, operation: Operation) -> list[GlobalAccess]:
        effects = effects_of(operation)
        slots = any(is_place(operand) for operand in operation.operands)
        addresses = {
            declared.name: operation.operand(declared.name)
            for declared in operation.spec.operands
            if declared.name in ("pointer", "descriptor")
        }
        if (pointer := addresses.get("pointer")) is not None:
            mask = mask_of(operation) if isinstance(operation, ACCESSES) else None
            return [
                GlobalAccess(
                    self.objects.of_pointer(pointer),
                    pointer,
                    bool(effects & Effect.WRITE) and not slots,
                    mask,
                )
            ]
        if (descriptor := addresses.get("descriptor")) is not None:
            return [
                GlobalAccess(
                    self.objects.of_descriptor(descriptor),
                    None,
                    bool(effects & Effect.WRITE) and not _effects(operation, self.target).blocks,
                )
            ]
        if slots:
            return []
        if effects & (Effect.READ | Effect.WRITE):
            return [GlobalAccess(frozenset((ANYWHERE,)), None, bool(effects & Effect.WRITE))]
        return []

    def _global_conflict(
        self, operation: Operation, access: GlobalAccess, pending: PendingAccesses
    ) -> bool:
        if isinstance(operation, ATOMICS) and operation.order in ("release", "acq_rel"):
            scalar = not isinstance(operation.pointer.type, TileType)
            if any(
                (scalar or other.writes) and not self._same_thread(other, access)
                for other in pending.globals
            ):
                return True
        for other in pending.globals:
            if not (other.writes or access.writes) or not may_alias(other.roots, access.roots):
                continue
            if not self._same_thread(other, access):
                return True
        return False

    def _same_thread(self, earlier: GlobalAccess, access: GlobalAccess) -> bool:
        """Return whether only one thread accesses each address that two accesses have in common."""
        a, b = earlier.pointer, access.pointer
        if a is None or b is None:
            return False
        if a.layout == b.layout and self._overlap.are_elementwise(a, b, earlier.loop):
            if earlier.writes and access.writes:
                return True  # only the first of the threads that hold an element writes it
            if a.layout is not None and layout_of(a).redundant_threads() == (0, 0):
                return True
        return self._overlap.are_apart(a, earlier.mask, b, access.mask, earlier.loop)


def _effects(operation: Operation, target: SimtTarget) -> SharedEffects:
    interface = interface_of(target, operation.name)
    return (
        interface.effects(operation)
        if interface is not None and interface.effects is not None
        else SharedEffects()
    )


def _is_within_warps(operation: Operation, target: SimtTarget) -> bool:
    """Return whether each warp accesses only its own bytes in an operation's scratch space."""
    interface = interface_of(target, operation.name)
    return (
        interface is not None
        and interface.within_warps is not None
        and interface.within_warps(operation, target)
    )


def _is_fenced(operation: Operation) -> bool:
    """Return whether a proxy fence stands directly before an operation."""
    before = operation.previous
    return before is not None and isinstance(before, Publish)


def _insert_fence(operation: Operation) -> None:
    """Insert a proxy fence before an operation."""
    assert operation.parent is not None
    fence = Operation(SIMT_TABLE["simt.publish"], (), (), {}, (), location=operation.location)
    operation.parent.insert_before(fence, operation)


__all__ = ["insert_barriers"]
