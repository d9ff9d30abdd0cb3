"""Expansion of loops with TMA copies and mbarriers: one stream of operations, run by all threads.

One thread starts the copies of an iteration, and the mbarrier of their slot completes a phase when
all bytes have arrived:

    S slots of shared memory for each load; S mbarriers ``full``, S mbarriers ``empty``
    for s in 0 .. S-2, where s < n:
        expect the bytes of iteration s at mbarrier s of ``full``; start its copies
    for each iteration i:
        wait for the phase of mbarrier i mod S of ``full``
        where i+S-1 < n: one warp:
            wait until the slot of iteration i-1 is empty
            expect and start the copies of iteration i+S-1 into it
        ... the body, which reads slot i mod S; each warp arrives at ``empty``

In a cluster, each CTA copies a part of a tile that all CTAs need, and multicasts it to all: then a
slot is empty once the warps of all CTAs have released it.

So a warp waits for others only where it starts copies. The parity of the phases flips when the slot
index wraps around. Where the matmul is asynchronous and only adds to an accumulator, its wait is
deferred by one iteration, and its slot is released and filled again after that.

Where such a matmul has its accumulator in tensor memory, one thread starts it, and the matmul
itself arrives at ``empty`` when it has completed. Then one warp alone runs the loop, at its own
pace; all others wait behind the loop, at an mbarrier of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import DescriptorLoad, DescriptorStore, MakeDescriptor
from tilewright.ir.types import I1, I32, DescriptorType, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.dialect.attributes import CLUSTER, WHOLE, function_of, warps_of
from tilewright.simt.dialect.pipeline_attributes import BY, Ahead, shared_layout
from tilewright.simt.dialect.types import BarriersType
from tilewright.simt.passes.allocate_tensor_memory import (
    new_place,
    read_sums,
    start_into,
    starts_at_zero,
    write_sums,
)
from tilewright.simt.pipeline.defer_matmul_wait import Accumulation, accumulation, kept_sums
from tilewright.simt.pipeline.multibuffer import Ring
from tilewright.simt.target.simt_target import SimtTarget


def expand_blocks(loop: For, target: SimtTarget) -> None:
    """Expand a loop whose loads are TMA copies."""
    _Blocks(loop, target).run()


@dataclass(frozen=True, slots=True)
class Kept:
    """A matmul whose accumulator stays in tensor memory, at ``place``, while its loop runs.

    Attributes:
        running: the loop-carried condition that the loop has started such a matmul.
        fresh: whether the first matmul overwrites the accumulator.
        ended: a builder behind the start.
    """

    found: Accumulation
    place: Value
    running: Value
    fresh: bool
    ended: Builder


class BlockRing(Ring):
    """Multi-buffered shared memory that TMA copies fill."""

    def barriers(self, builder: Builder, count: int, number: int = 0) -> Value:
        """Create mbarriers of ``count`` arrivals a phase: ``number`` of them, or one a slot."""
        return self.create(
            builder, "simt.barriers", result=BarriersType(number or self.slots), count=count
        ).results[0]

    def is_shared(self, load: Ahead) -> bool:
        """Return whether the CTAs of a cluster multicast parts of a load's tile to each other."""
        cluster = function_of(self.loop).attributes.get(CLUSTER, 1)
        mechanism = self.target.async_copy.mechanism(load.attributes[BY])
        return (
            cluster > 1
            and WHOLE in load.attributes
            and mechanism.shares(shared_layout(load), element_type(load.results[0].type), cluster)
        )

    def givers(self, *loads: Ahead) -> int:
        """Return the number of CTAs that release a slot of some loads, or of all."""
        return (
            int(function_of(self.loop).attributes[CLUSTER])
            if any(map(self.is_shared, loads or self.loads))
            else 1
        )

    def start_blocks(
        self,
        builder: Builder,
        slots: list[Value],
        full: Value,
        which: Value,
        mapping: Mapping[Value, Value],
        live: Value | None = None,
        *,
        ordered: bool = False,
    ) -> None:
        """Expect an iteration's bytes at an mbarrier, and start its copies, where ``live`` holds.

        ``ordered``: the copies go to slots that have been waited for.
        """
        condition = [] if live is None else [live]
        self.create(
            builder,
            "simt.expect",
            [full],
            [which],
            condition,
            bytes=sum(map(block_bytes, self.loads)),
            ordered=ordered,
        )
        for load, slot in zip(self.loads, slots, strict=True):
            descriptor, *offsets = (
                mapping.get(operand, operand) for operand in self.part.load(load).operands
            )
            how = {"by": load.attributes[BY], "ordered": ordered, "to_all": self.is_shared(load)}
            self.create(
                builder,
                "simt.block_load_start",
                [slot],
                [descriptor],
                offsets,
                [full],
                [which],
                condition,
                **how,
            )

    def drain(self, builder: Builder, barriers: Value, slot: Value, phase: Value) -> None:
        """Wait, in one warp, until no operation that arrives at the slots' mbarriers is in flight.

        ``slot`` is the next slot, and ``phase`` its parity: the slots before it were last used in
        this round, the others in the previous round, if at all.
        """
        for number in range(self.slots):
            which = self.number(builder, number, I32)
            parity = builder.xor(phase, builder.cmp(which, slot, predicate="ge"))
            self.create(builder, "simt.await", [barriers], [which], [parity], alone=True)

    def keep(self, found: Accumulation, empty: Value, slot: Value) -> Kept:
        """Start a matmul whose accumulator stays in tensor memory while the loop runs.

        The matmul releases its slot when it has completed. The loop has to yield true for
        ``running``.
        """
        matmul, before, at = found.matmul, Builder.at(self.loop), Builder.at(found.matmul)
        place, init = new_place(matmul, self.target), self.loop.inits[found.index]
        fresh = starts_at_zero(init)
        if not fresh:
            write_sums(before, place, init, matmul, self.target)
        before.barrier()
        running = self.carry(before.constant(value=False, result=I1))
        start_into(
            at, matmul, place, running if fresh else at.constant(value=True, result=I1), empty, slot
        )
        self.last.set_operand(found.index, self.body.arguments[1 + found.index])
        return Kept(found, place, running, fresh, at)

    def settle_kept(
        self, kept: Kept, empty: Value, slot: Value, phase: Value, ended: Value, parity: Value
    ) -> Builder:
        """Wait for a loop's matmuls behind it, read the accumulator, and return a builder there.

        All threads wait for the mbarrier ``ended``, whose phase has the given parity. Most warps
        arrive here at once, and may not wait for ``empty``: they cannot distinguish the end of a
        phase from the end of the phase two before.
        """
        matmul, result = kept.found.matmul, self.loop.results[kept.found.index]
        readers = list(result.uses)
        after = Builder(self.loop.parent, self.loop.next, self.loop.location)
        following, round_, ran = self.results_of([slot, phase, kept.running])
        which = self.number(after, 0, I32)
        self.create(after, "simt.arrive_after", [ended], [which], [ran])
        self.create(after, "simt.await", [ended], [which], [parity], [ran])
        self.drain(after, empty, following, round_)
        tile = read_sums(after, kept.place, ran if kept.fresh else None, matmul, self.target)
        for reader in readers:
            for position, operand in enumerate(reader.operands):
                if operand is result:
                    reader.set_operand(position, tile)
        matmul.erase()
        return after

    def passed(self, builder: Builder, slot: Value, phase: Value) -> Value:
        """Compute the parity of the previous slot's phase.

        At slot 0, the previous slot was used in the round before.
        """
        earlier: Value = builder.xor(
            phase, builder.cmp(slot, self.number(builder, 0, I32), predicate="eq")
        )
        return earlier

    def made_descriptors(self) -> list[MakeDescriptor]:
        """Return the operations that make device-side descriptors of the loop's loads."""
        made = (
            load.descriptor.definition for load in self.loads if isinstance(load, DescriptorLoad)
        )
        return list(dict.fromkeys(one for one in made if isinstance(one, MakeDescriptor)))

    def next_phase(self, builder: Builder, following: Value, phase: Value) -> Value:
        """Compute the parity of the next slot's phase.

        It flips where the slot index wraps around.
        """
        again = builder.cmp(following, self.number(builder, 0, I32), predicate="eq")
        flipped: Value = builder.xor(phase, again)
        return flipped


def block_bytes(access: Operation) -> int:
    """Bytes of the block that a load or store copies."""
    assert isinstance(access, DescriptorLoad | DescriptorStore)
    descriptor = access.descriptor.type
    assert isinstance(descriptor, DescriptorType)
    return descriptor.block_type.numel * storage_size(descriptor.element)


class _Blocks(BlockRing):
    def run(self) -> None:
        before = Builder.at(self.loop)
        buffers = [self.buffer(before, load) for load in self.loads]
        kept = kept_sums(self.loop, self.target)
        full, empty = (
            self.barriers(before, 1),
            self.barriers(before, warps_of(self.loop) * self.givers() if kept is None else 1),
        )
        ended = None if kept is None else self.barriers(before, 1, 1)
        depth = self.slots - 1
        count = self.iterations(before)
        ahead = self.first()
        for stage in range(depth):
            live = before.cmp(count, self.number(before, stage, self.count_type), predicate="gt")
            mapping, which = dict(ahead), self.number(before, stage, I32)
            self.repeat(before, mapping, live)
            self.start_blocks(
                before,
                [self.slot(before, buffer, which) for buffer in buffers],
                full,
                which,
                mapping,
                live,
            )
            ahead = self.advanced(before, mapping, ahead)
        left = self.left_after(before, count, depth)

        keys = self.keys(ahead)
        values = [self.carry(ahead[key]) for key in keys]
        slot, left = self.carry(self.number(before, 0, I32)), self.carry(left)
        phase = self.carry(before.constant(value=False, result=I1))
        top = Builder(self.body, self.body.first, self.loop.location)
        self.create(top, "simt.await", [full], [slot], [phase], alone=kept is not None)
        live = top.cmp(left, self.number(top, 0, self.count_type), predicate="gt")
        previous, following = self.neighbours(top, slot)
        self.read([self.slot(top, buffer, slot) for buffer in buffers])
        found = accumulation(self.loop, self.target)

        refill, more = top, []
        if kept is not None:
            sums = self.keep(kept, empty, slot)
            refill = sums.ended
            more.append(refill.constant(value=True, result=I1))
        elif found is None:
            self.create(
                Builder.at(self.last), "simt.arrive", [empty], [slot], at_all=self.givers() > 1
            )
        else:
            earlier, token = self.overlap(found, before)
            running = self.carry(before.constant(value=False, result=I1))
            refill = self.after_wait(earlier)
            self.create(
                refill, "simt.arrive", [empty], [previous], [running], at_all=self.givers() > 1
            )
            more += [token, refill.constant(value=True, result=I1)]
        ahead = dict(zip(keys, values, strict=True))
        mapping = dict(ahead)
        self.repeat(refill, mapping, live)
        passed = self.passed(refill, slot, phase)
        self.create(refill, "simt.await", [empty], [previous], [passed], [live], alone=True)
        self.start_blocks(
            refill,
            [self.slot(refill, buffer, previous) for buffer in buffers],
            full,
            previous,
            mapping,
            live,
            ordered=True,
        )
        one_less = refill.sub(left, refill.cast(live, result=self.count_type))
        advanced = self.advanced(refill, mapping, ahead)
        self.yield_more(
            [
                *(advanced[key] for key in keys),
                following,
                one_less,
                self.next_phase(refill, following, phase),
                *more,
            ]
        )
        if ended is not None:
            self.settle_kept(
                sums, empty, slot, phase, ended, before.constant(value=False, result=I1)
            )
        elif found is not None:
            self.settle(found, [earlier])
