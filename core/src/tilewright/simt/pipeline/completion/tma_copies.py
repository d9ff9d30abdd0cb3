"""TMA copies of pipelined loops, with two mbarriers for each slot.

One thread starts the copies of an iteration, and the mbarrier ``full`` of their slot completes a
phase when all bytes have arrived; the readers of a slot arrive at its mbarrier ``empty``:

    S slots of shared memory for each load; S mbarriers ``full``, S mbarriers ``empty``
    for s in 0 .. S-2, where s < n:
        expect the bytes of iteration s at mbarrier s of ``full``; start its copies
    for each iteration i:
        wait for the phase of mbarrier i mod S of ``full``
        where i+S-1 < n: one warp:
            wait until the slot of iteration i-1 is empty
            expect and start the copies of iteration i+S-1 into it
        ... the body, which reads slot i mod S; each warp arrives at ``empty``

So a warp waits for others only where it starts copies. The parity of the phases flips when the slot
index wraps around. In a cluster, each CTA copies a part of a tile that all CTAs need, and
multicasts it to all: then a slot is empty once the warps of all CTAs have released it.

In warp-specialized partitions (:mod:`tilewright.simt.pipeline.partitions.warp_specialize`) the
producer's loop has the lines that issue copies, with prefetch distance 0: it waits for a slot, and
runs ahead of the consumer as far as slots are empty. The consumer's loop has the other lines.

Where the matmul is asynchronous and only adds to an accumulator, its wait is deferred by one
iteration, and its slot is released and filled again after that. Where its accumulator is in tensor
memory, the matmul itself arrives at ``empty``
(:mod:`tilewright.simt.pipeline.resident_accumulator`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.memory import DescriptorLoad, DescriptorStore, MakeDescriptor
from tilewright.ir.types import I1, I32, DescriptorType, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.simt.analysis.pipelined_loads import wished_layout
from tilewright.simt.dialect.attributes import CLUSTER, WHOLE, function_of, warps_of
from tilewright.simt.dialect.pipeline_attributes import BY, SHARED, Ahead, shared_layout
from tilewright.simt.dialect.types import BarriersType
from tilewright.simt.pipeline.defer_matmul_wait import Accumulation, Deferred, defer_wait
from tilewright.simt.pipeline.modulo_expander import Copies, ModuloExpander, completes
from tilewright.simt.pipeline.resident_accumulator import ResidentAccumulator, resident_matmul
from tilewright.simt.target.copy_mechanism import BARRIER, CopyMechanism
from tilewright.simt.target.simt_target import SimtTarget, required


@dataclass(frozen=True, slots=True)
class SlotGroup:
    """The slots of some loads whose copies complete on the same mbarriers.

    Attributes:
        loads: the indices of the loads.
        buffers: the multi-buffered shared memory of each.
        full, empty: the mbarriers of the slots.
        at_all: whether CTAs of the cluster fill the slots for each other, by multicast.
    """

    loads: tuple[int, ...]
    buffers: list[Value]
    full: Value
    empty: Value
    at_all: bool


@completes(BARRIER)
class TmaCopies(Copies):
    """TMA copies of a loop that is run by all warps.

    Attributes:
        groups: the slots and mbarriers of the loads, all in one group.
        phase: the loop-carried parity of the phase that the slots complete.
        ended: an mbarrier for the end of the loop, if an accumulator stays in tensor memory.
    """

    groups: Sequence[SlotGroup]
    phase: Value
    ended: Value

    def __init__(self, loop: ModuloExpander) -> None:
        super().__init__(loop)
        self.resident: Accumulation | None = None
        self.accumulator: ResidentAccumulator | None = None
        self.deferred: Deferred | None = None
        self.running: Value | None = None

    @classmethod
    def attributes_of(
        cls,
        load: Ahead,
        mechanism: CopyMechanism,
        target: SimtTarget,
        axes: Mapping[Value, AxisInfo],
    ) -> dict[str, Any] | None:
        if not isinstance(load, DescriptorLoad):
            return None
        shared = wished_layout(load, mechanism, target)
        return None if shared is None else {SHARED: shared}

    @classmethod
    def extra_bytes(cls, slots: int, target: SimtTarget) -> int:
        """Return the bytes of two mbarriers for each slot."""
        return 2 * slots * required(target.mbarriers, target, "mbarriers").bytes

    def allocate(self, before: Builder) -> None:
        self.resident = resident_matmul(self.loop.loop, self.loop.target)
        self.groups = [self.group(before, range(len(self.loop.loads)))]
        if self.resident is not None:
            self.ended = self._barriers(before, 1, 1)

    def issue(self, builder: Builder, which: Value, mapping: Mapping[Value, Value]) -> None:
        (group,) = self.groups
        self.start(builder, group, which, mapping)

    def carry(self, before: Builder) -> None:
        self.phase = self.loop.carry(before.constant(value=False, result=I1))

    def write_iteration(self, top: Builder) -> None:
        (group,), loop = self.groups, self.loop
        self.read_group(top, group)
        refill = self.multiply(group, top)
        mapping = loop.look_ahead(refill)
        self.await_empty(refill, group, loop.previous, self._passed(refill))
        self.start(refill, group, loop.previous, mapping, ordered=True)
        loop.count_down(refill)
        loop.advance(refill, mapping)
        self.phase_next = self.next_phase(refill)

    def following(self) -> list[Value]:
        if self.deferred is not None:
            return [self.phase_next, *self.deferred.following, self._true()]
        return [self.phase_next, *([] if self.accumulator is None else [self._true()])]

    def write_epilogue(self) -> None:
        (group,) = self.groups
        if self.accumulator is not None:
            parity = self.loop.before.constant(value=False, result=I1)
            self.accumulator.settle(self, group.empty, self.ended, parity)
        elif self.deferred is not None:
            self.deferred.settle(self.loop)

    # ---- the consumer's lines

    def read_group(self, top: Builder, group: SlotGroup) -> None:
        """Wait for an iteration's copies, and let the readers of the loads read the slots."""
        loop = self.loop
        self.await_full(top, group, alone=self.resident is not None)
        loop.begin(top)
        loop.read(loop.places(top, group.buffers, loop.slot))

    def multiply(self, group: SlotGroup, top: Builder) -> Builder:
        """Write the body's matmul and the release of its slot; return where copies may start."""
        loop = self.loop
        if self.resident is not None:
            self.accumulator = ResidentAccumulator.start(loop, self.resident, group.empty)
            return self.accumulator.behind
        self.deferred = defer_wait(loop)
        if self.deferred is None:
            self.release(loop.end, group, loop.slot)
            return top
        self.running = loop.carry(loop.before.constant(value=False, result=I1))
        refill = self.deferred.after_wait(loop)
        self.release(refill, group, loop.previous, self.running)
        return refill

    def await_full(self, builder: Builder, group: SlotGroup, *, alone: bool = False) -> Operation:
        """Wait until the copies into a slot have arrived."""
        return self.loop.create(
            builder, "simt.await", [group.full], [self.loop.slot], [self.phase], alone=alone
        )

    def release(
        self, builder: Builder, group: SlotGroup, which: Value, condition: Value | None = None
    ) -> Operation:
        """Arrive at the mbarrier of a slot that has been read, where ``condition`` holds."""
        where = [] if condition is None else [condition]
        return self.loop.create(
            builder, "simt.arrive", [group.empty], [which], where, at_all=group.at_all
        )

    # ---- the producer's lines

    def await_empty(
        self, builder: Builder, group: SlotGroup, which: Value, phase: Value
    ) -> Operation:
        """Wait, in one warp, until all readers have released a slot."""
        return self.loop.create(
            builder, "simt.await", [group.empty], [which], [phase], self._live, alone=True
        )

    def start(
        self,
        builder: Builder,
        group: SlotGroup,
        which: Value,
        mapping: Mapping[Value, Value],
        *,
        ordered: bool = False,
    ) -> None:
        """Expect an iteration's bytes at an mbarrier, and start its copies, where it will run.

        ``ordered``: the copies go to slots that have been waited for.
        """
        places = self.loop.places(builder, group.buffers, which)
        self.expect(builder, group, which, ordered=ordered)
        self.copy(builder, group, which, places, mapping, ordered=ordered)

    def expect(
        self,
        builder: Builder,
        group: SlotGroup,
        which: Value,
        *,
        ordered: bool,
    ) -> Operation:
        """Expect an iteration's bytes at the mbarrier of a slot."""
        size = sum(block_bytes(self.loop.loads[number]) for number in group.loads)
        return self.loop.create(
            builder, "simt.expect", [group.full], [which], self._live, bytes=size, ordered=ordered
        )

    def copy(
        self,
        builder: Builder,
        group: SlotGroup,
        which: Value,
        places: Sequence[Value],
        mapping: Mapping[Value, Value],
        *,
        ordered: bool,
    ) -> list[Operation]:
        """Start the copies of a slot's loads."""
        loop, made = self.loop, []
        for number, place in zip(group.loads, places, strict=True):
            load = loop.loads[number]
            descriptor, *offsets = (
                mapping.get(operand, operand) for operand in loop.part.load(load).operands
            )
            started = loop.create(
                builder,
                "simt.block_load_start",
                [place],
                [descriptor],
                offsets,
                [group.full],
                [which],
                self._live,
                by=load.attributes[BY],
                ordered=ordered,
                to_all=self._is_shared(load),
            )
            made.append(started)
        return made

    @property
    def _live(self) -> list[Value]:
        """The condition of copies, if there is one."""
        return [] if self.loop.live is None else [self.loop.live]

    # ---- slots and phases

    def group(self, before: Builder, numbers: Iterable[int]) -> SlotGroup:
        """Create the slots and mbarriers of some loads."""
        loop, numbers = self.loop, tuple(numbers)
        loads = [loop.loads[number] for number in numbers]
        at_all = any(map(self._is_shared, loads))
        releases = warps_of(loop.loop) * (self._cluster if at_all else 1)
        return SlotGroup(
            numbers,
            loop.buffers(before, loads),
            self._barriers(before, 1),
            self._barriers(before, releases if self.resident is None else 1),
            at_all,
        )

    def next_phase(self, builder: Builder) -> Value:
        """Compute the parity of the next slot's phase: it flips where the slot index wraps."""
        again = builder.cmp(self.loop.next, self.loop.number(builder, 0, I32), predicate="eq")
        flipped: Value = builder.xor(self.phase, again)
        return flipped

    def _passed(self, builder: Builder) -> Value:
        """Compute the parity of the previous slot's phase: slot 0 comes after the round before."""
        zero = self.loop.number(builder, 0, I32)
        earlier: Value = builder.xor(self.phase, builder.cmp(self.loop.slot, zero, predicate="eq"))
        return earlier

    def drain(self, builder: Builder, barriers: Value, slot: Value, phase: Value) -> None:
        """Wait, in one warp, until no operation that arrives at the slots' mbarriers is in flight.

        ``slot`` is the next slot, and ``phase`` its parity: the slots before it were last used in
        this round, the others in the previous round, if at all.
        """
        for number in range(self.loop.slots):
            which = self.loop.number(builder, number, I32)
            parity = builder.xor(phase, builder.cmp(which, slot, predicate="ge"))
            self.loop.create(builder, "simt.await", [barriers], [which], [parity], alone=True)

    def made_descriptors(self) -> list[MakeDescriptor]:
        """Return the operations that make device-side descriptors of the loop's loads."""
        made = (
            load.descriptor.definition
            for load in self.loop.loads
            if isinstance(load, DescriptorLoad)
        )
        return list(dict.fromkeys(one for one in made if isinstance(one, MakeDescriptor)))

    def _barriers(self, builder: Builder, count: int, number: int = 0) -> Value:
        """Create mbarriers of ``count`` arrivals a phase: ``number`` of them, or one a slot."""
        type_ = BarriersType(number or self.loop.slots)
        return self.loop.create(builder, "simt.barriers", result=type_, count=count).results[0]

    @property
    def _cluster(self) -> int:
        return int(function_of(self.loop.loop).attributes.get(CLUSTER, 1))

    def _is_shared(self, load: Ahead) -> bool:
        """Return whether the CTAs of a cluster multicast parts of a load's tile to each other."""
        mechanism = self.loop.target.async_copy.mechanism(load.attributes[BY])
        shared, element = shared_layout(load), element_type(load.results[0].type)
        return (
            self._cluster > 1
            and WHOLE in load.attributes
            and mechanism.shares(shared, element, self._cluster)
        )

    def _true(self) -> Value:
        true: Value = self.loop.end.constant(value=True, result=I1)
        return true


def block_bytes(access: Operation) -> int:
    """Bytes of the block that a load or store copies."""
    assert isinstance(access, DescriptorLoad | DescriptorStore)
    descriptor = access.descriptor.type
    assert isinstance(descriptor, DescriptorType)
    return descriptor.block_type.numel * storage_size(descriptor.element)
