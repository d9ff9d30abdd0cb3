"""The form of loops whose copies are of whole blocks and end by barrier objects: one stream of operations, run by all threads.

One thread starts the copies of an iteration, and the barrier object of their slot ends a phase when all bytes are there:

    ring of S slots for each load, S barrier objects
    for s in 0 .. S-2, where s < n:     announce the bytes of iteration s at object s; start its copies
    for each iteration i:
        wait for the phase of object i mod S
        where i+S-1 < n: announce and start what iteration i+S-1 reads, in the slot of iteration i-1
        ... the body, which reads slot i mod S

Threads meet before bytes are announced, and so after all of them have read the slot. The parity of the phase changes when the ring begins anew. Where the
product is asynchronous and only adds to an accumulator, it is waited for one iteration later, and the copies into its slot start after that.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.types import I1, I32, DescriptorType
from tilewright.llvm.registers import storage_size
from tilewright.simt.pipeline.decisions import BY
from tilewright.simt.pipeline.overlap import accumulation
from tilewright.simt.pipeline.ring import Ring
from tilewright.simt.target import SimtTarget
from tilewright.simt.types import BarriersType


def expand_blocks(loop: Operation, target: SimtTarget) -> None:
    """Write out a loop whose loads are copied in blocks."""
    _Blocks(loop, target).run()


class BlockRing(Ring):
    """A ring that blocks are copied to."""

    def barriers(self, builder: Builder, count: int) -> Value:
        """Barrier objects, one a slot, of ``count`` arrivals a phase."""
        return self.create(builder, "simt.barriers", result=BarriersType(self.slots), count=count).results[0]

    def start_blocks(self, builder: Builder, slots: list[Value], full: Value, which: Value, mapping: Mapping[Value, Value], live: Value | None = None) -> None:
        """Announce the bytes of an iteration at a barrier object, and start its copies, where ``live`` holds."""
        condition = [] if live is None else [live]
        self.create(builder, "simt.expect", [full], [which], condition, bytes=sum(map(block_bytes, self.loads)))
        for load, slot in zip(self.loads, slots, strict=True):
            descriptor, *offsets = (mapping.get(operand, operand) for operand in load.operands)
            self.create(builder, "simt.block_load_start", [slot], [descriptor], offsets, [full], [which], condition, by=load.attributes[BY])

    def next_phase(self, builder: Builder, following: Value, phase: Value) -> Value:
        """The parity of the phase with the slot after this one: it changes where the ring begins anew."""
        again = builder.cmp(following, self.number(builder, 0, I32), predicate="eq")
        flipped: Value = builder.xor(phase, again)
        return flipped


def block_bytes(load: Operation) -> int:
    """Bytes that the copy of a load's block brings."""
    descriptor = load.operands[0].type
    assert isinstance(descriptor, DescriptorType)
    return descriptor.block_type.numel * storage_size(descriptor.element)


class _Blocks(BlockRing):
    def run(self) -> None:
        before = Builder.at(self.loop)
        found = accumulation(self.loop, self.target)
        buffers = [self.buffer(before, load) for load in self.loads]
        full = self.barriers(before, 1)
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
        self.create(top, "simt.await", [full], [slot], [phase])
        live = top.cmp(left, self.number(top, 0, self.count_type), predicate="gt")
        previous, following = self.neighbours(top, slot)
        self.read([self.slot(top, buffer, slot) for buffer in buffers])

        # once all threads are past what read the slot of the iteration before
        refill, more = top, []
        if found is not None:
            earlier, token = self.overlap(found, before)
            more.append(token)
            refill = self.after_wait(earlier)
        ahead = dict(zip(keys, values, strict=True))
        mapping = dict(ahead)
        self.repeat(refill, mapping, live)
        self.start_blocks(refill, [self.slot(refill, buffer, previous) for buffer in buffers], full, previous, mapping, live)
        one_less = refill.sub(left, refill.cast(live, result=self.count_type))
        advanced = self.advanced(refill, mapping, ahead)
        self.yield_more([*(advanced[key] for key in keys), following, one_less, self.next_phase(refill, following, phase), *more])
        if found is not None:
            self.settle(found, earlier)
