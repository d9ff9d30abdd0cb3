"""The form of loops whose copies are of whole blocks and end by mbarriers: one stream of
operations, run by all threads.

One thread starts the copies of an iteration, and the mbarrier of their slot ends a phase when all
bytes are there:

    ring of S slots for each load; S objects ``full``, S objects ``empty``
    for s in 0 .. S-2, where s < n:     announce the bytes of iteration s at object s of ``full``; start its copies
    for each iteration i:
        wait for the phase of object i mod S of ``full``
        where i+S-1 < n: one warp: wait until the slot of iteration i-1 is empty; announce and start what iteration i+S-1 reads, in that slot
        ... the body, which reads slot i mod S; each warp arrives at ``empty``

In a cluster, what all blocks need of a tensor each copies a part of, to all: then a slot is empty
where the warps of all blocks have given it back.

So a warp waits for others only where it starts copies. The parity of the phases changes when the
ring begins anew. Where the matmul is asynchronous and only adds to an accumulator, it is waited for
one iteration later, and its slot is given back and filled again after that.

Where such a matmul has its accumulator in tensor memory, one thread starts it, and it is the matmul
that arrives at ``empty`` when it has ended. Then one warp alone goes through the loop, at its own
pace; all others wait behind it, for an object of their own.
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
from tilewright.simt.passes.allocate_tensor_memory import new_place, read_sums, start_into, starts_at_zero, write_sums
from tilewright.simt.pipeline.defer_matmul_wait import Accumulation, accumulation, kept_sums
from tilewright.simt.pipeline.multibuffer import Ring
from tilewright.simt.target.simt_target import SimtTarget


def expand_blocks(loop: For, target: SimtTarget) -> None:
    """Write out a loop whose loads are copied in blocks."""
    _Blocks(loop, target).run()


@dataclass(frozen=True, slots=True)
class Kept:
    """A matmul whose sums stay in ``place`` while its loop runs.

    Attributes:
        running: whether the loop has started one, which it carries.
        fresh: whether the first one does not add to what is there.
        ended: where the start is over.
    """

    found: Accumulation
    place: Value
    running: Value
    fresh: bool
    ended: Builder


class BlockRing(Ring):
    """A ring that blocks are copied to."""

    def barriers(self, builder: Builder, count: int, number: int = 0) -> Value:
        """Mbarriers of ``count`` arrivals a phase: one a slot, or so many."""
        return self.create(builder, "simt.barriers", result=BarriersType(number or self.slots), count=count).results[0]

    def is_shared(self, load: Ahead) -> bool:
        """Return whether the blocks of a cluster copy parts of what a load brings to each other."""
        cluster = function_of(self.loop).attributes.get(CLUSTER, 1)
        mechanism = self.target.mechanism(load.attributes[BY])
        return cluster > 1 and WHOLE in load.attributes and mechanism.shares(shared_layout(load), element_type(load.results[0].type), cluster)

    def givers(self, *loads: Ahead) -> int:
        """How many blocks give back a slot of some loads, or of all, before it is filled again."""
        return int(function_of(self.loop).attributes[CLUSTER]) if any(map(self.is_shared, loads or self.loads)) else 1

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
        """Announce the bytes of an iteration at an mbarrier, and start its copies, where ``live``
        holds; ``ordered``: into slots that were waited for."""
        condition = [] if live is None else [live]
        self.create(builder, "simt.expect", [full], [which], condition, bytes=sum(map(block_bytes, self.loads)), ordered=ordered)
        for load, slot in zip(self.loads, slots, strict=True):
            descriptor, *offsets = (mapping.get(operand, operand) for operand in self.part.load(load).operands)
            how = {"by": load.attributes[BY], "ordered": ordered, "to_all": self.is_shared(load)}
            self.create(builder, "simt.block_load_start", [slot], [descriptor], offsets, [full], [which], condition, **how)

    def drain(self, builder: Builder, barriers: Value, slot: Value, phase: Value) -> None:
        """Wait, one warp, until nothing of what was started is in flight that mbarriers of slots
        tell of, given the slot that is next, and its phase: those before it were used in this round
        of the ring, the others in the one before, if they were."""
        for number in range(self.slots):
            which = self.number(builder, number, I32)
            parity = builder.xor(phase, builder.cmp(which, slot, predicate="ge"))
            self.create(builder, "simt.await", [barriers], [which], [parity], alone=True)

    def keep(self, found: Accumulation, empty: Value, slot: Value) -> Kept:
        """Start a matmul that adds to accumulators in tensor memory, which stay there while the
        loop runs, and let it give its slot back when it has ended; the loop is to yield true for
        ``running``."""
        matmul, before, at = found.matmul, Builder.at(self.loop), Builder.at(found.matmul)
        place, init = new_place(matmul, self.target), self.loop.inits[found.index]
        fresh = starts_at_zero(init)
        if not fresh:
            write_sums(before, place, init, matmul, self.target)
        before.barrier()
        running = self.carry(before.constant(value=False, result=I1))
        start_into(at, matmul, place, running if fresh else at.constant(value=True, result=I1), empty, slot)
        self.last.set_operand(found.index, self.body.arguments[1 + found.index])
        return Kept(found, place, running, fresh, at)

    def settle_kept(self, kept: Kept, empty: Value, slot: Value, phase: Value, ended: Value, parity: Value) -> Builder:
        """Wait behind a loop that ran for its matmuls, all threads by the object ``ended``, whose
        phase has this parity, and read sums; where that is over.

        Most warps come here at once, and may not wait for ``empty``: they cannot tell the end of a
        phase from that of one two phases before.
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
        """The parity of the phase with the slot before this one: where this iteration has slot 0,
        that was in the round before."""
        earlier: Value = builder.xor(phase, builder.cmp(slot, self.number(builder, 0, I32), predicate="eq"))
        return earlier

    def made_descriptors(self) -> list[MakeDescriptor]:
        """What makes descriptors of the loop's loads."""
        made = (load.descriptor.definition for load in self.loads if isinstance(load, DescriptorLoad))
        return list(dict.fromkeys(one for one in made if isinstance(one, MakeDescriptor)))

    def next_phase(self, builder: Builder, following: Value, phase: Value) -> Value:
        """The parity of the phase with the slot after this one: it changes where the ring begins
        anew."""
        again = builder.cmp(following, self.number(builder, 0, I32), predicate="eq")
        flipped: Value = builder.xor(phase, again)
        return flipped


def block_bytes(access: Operation) -> int:
    """Bytes that the copy of the block of a load, or of a store, brings."""
    assert isinstance(access, DescriptorLoad | DescriptorStore)
    descriptor = access.descriptor.type
    assert isinstance(descriptor, DescriptorType)
    return descriptor.block_type.numel * storage_size(descriptor.element)


class _Blocks(BlockRing):
    def run(self) -> None:
        before = Builder.at(self.loop)
        buffers = [self.buffer(before, load) for load in self.loads]
        kept = kept_sums(self.loop, self.target)
        full, empty = self.barriers(before, 1), self.barriers(before, warps_of(self.loop) * self.givers() if kept is None else 1)
        ended = None if kept is None else self.barriers(before, 1, 1)
        depth = self.slots - 1
        count = self.iterations(before)
        ahead = self.first()
        for stage in range(depth):
            live = before.cmp(count, self.number(before, stage, self.count_type), predicate="gt")
            mapping, which = dict(ahead), self.number(before, stage, I32)
            self.repeat(before, mapping, live)
            self.start_blocks(before, [self.slot(before, buffer, which) for buffer in buffers], full, which, mapping, live)
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
            self.create(Builder.at(self.last), "simt.arrive", [empty], [slot], at_all=self.givers() > 1)
        else:
            earlier, token = self.overlap(found, before)
            running = self.carry(before.constant(value=False, result=I1))
            refill = self.after_wait(earlier)
            self.create(refill, "simt.arrive", [empty], [previous], [running], at_all=self.givers() > 1)
            more += [token, refill.constant(value=True, result=I1)]
        ahead = dict(zip(keys, values, strict=True))
        mapping = dict(ahead)
        self.repeat(refill, mapping, live)
        passed = self.passed(refill, slot, phase)
        self.create(refill, "simt.await", [empty], [previous], [passed], [live], alone=True)
        self.start_blocks(refill, [self.slot(refill, buffer, previous) for buffer in buffers], full, previous, mapping, live, ordered=True)
        one_less = refill.sub(left, refill.cast(live, result=self.count_type))
        advanced = self.advanced(refill, mapping, ahead)
        self.yield_more([*(advanced[key] for key in keys), following, one_less, self.next_phase(refill, following, phase), *more])
        if ended is not None:
            self.settle_kept(sums, empty, slot, phase, ended, before.constant(value=False, result=I1))
        elif found is not None:
            self.settle(found, [earlier])
