"""Warp-specialized loops over back-to-back matmuls, whose halves are software-pipelined.

Each load is a group of slots of its own (:mod:`.tma_partitions`), so that the early half's slots
are released while the late half's slots are still read or in flight. The consumer waits for a load
and releases its slot in the half that reads it (:mod:`.back_to_back`), and the producer starts the
copies in the order in which slots are read and released.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.simt.dialect.attributes import ACCUMULATOR_INDEX
from tilewright.simt.passes.allocate_tensor_memory import accumulator_of
from tilewright.simt.pipeline.back_to_back import Halves, asynchronous_matmuls, late_half
from tilewright.simt.pipeline.completion.tma_copies import SlotGroup
from tilewright.simt.pipeline.partitions.tma_partitions import Consumer, Producer
from tilewright.simt.pipeline.slot_reads import ends_of_reads
from tilewright.simt.pipeline.start_matmuls import start_and_wait


class BackToBackProducer(Producer):
    """The loop that issues the copies of both halves.

    Attributes:
        late: indices of the loads that only the late half reads.
    """

    late: frozenset[int]

    def follow(self, consumer: Consumer) -> None:
        assert isinstance(consumer, BackToBackConsumer)
        self.late = consumer.late

    def write_iteration(self, top: Builder) -> None:
        loop, late = self.loop, set[Operation]()
        for number, (load, group) in enumerate(zip(loop.loads, self.groups, strict=True)):
            at = Builder.at(load)
            made = [self.await_slot(at, group), self.expect(at, group, loop.slot, ordered=True)]
            places = loop.places(at, group.buffers, loop.slot)
            made += self.copy(at, group, loop.slot, places, {}, ordered=True)
            if number in self.late:
                late.update(made)
        self.advance(loop.end)
        self.halves = Halves(loop.loop, late)

    def state(self) -> list[Value]:
        return self.halves.interleave()[-2:]


class BackToBackConsumer(Consumer):
    """The loop that reads the slots, in two halves.

    Attributes:
        late: indices of the loads that only the late half reads.
    """

    late: frozenset[int]

    def allocate(self, before: Builder) -> None:
        self.groups = [self.group(before, [number]) for number in range(len(self.loop.loads))]

    def write_iteration(self, top: Builder) -> None:
        loop = self.loop
        self.places, self.waits = [], []
        for load, group in zip(loop.loads, self.groups, strict=True):
            at = Builder.at(load)
            self.waits.append(self.await_full(at, group))
            self.places += loop.places(at, group.buffers, loop.slot)
        loop.begin(loop.end)
        self.phase_next = self.next_phase(loop.end)
        loop.read(self.places)

    def write_epilogue(self) -> None:
        """Start the matmuls, and release the slots after their last readers."""
        loop = self.loop
        matmuls = asynchronous_matmuls(loop.body, loop.target)
        late = late_half(loop.body, matmuls)
        assert late is not None
        for number, matmul in enumerate(matmuls):
            kept = accumulator_of(matmul, loop.target) is not None
            started, waiting = start_and_wait(matmul, loop.target)
            if kept:
                started.attributes[ACCUMULATOR_INDEX] = number
            if matmul in late:
                late -= {matmul}
                late |= {started, waiting}
        after: dict[Operation, list[Operation]] = {}
        for place, group, full in zip(self.places, self.groups, self.waits, strict=True):
            self._release_after_readers(place, group, full, late, after)
        self.late = frozenset(number for number, one in enumerate(self.waits) if one in late)
        self.halves = Halves(loop.loop, late, after)

    def state(self) -> list[Value]:
        return self.halves.interleave()[-2:]

    def _release_after_readers(
        self,
        place: Value,
        group: SlotGroup,
        waiting: Operation,
        late: set[Operation],
        after: dict[Operation, list[Operation]],
    ) -> None:
        """Arrive at a slot's ``empty`` mbarrier after its last readers.

        Its readers come after the wait for it, which is late if all readers are.
        """
        made, ends = place.definition, ends_of_reads(place)
        assert made is not None
        order = {one: number for number, one in enumerate(self.loop.body)}
        last = max(ends, key=order.__getitem__)
        builder = Builder(self.loop.body, last.next, last.location)
        arrival = self.release(builder, group, self.loop.slot)
        after[made], after[arrival] = [waiting], ends
        if any(end in late for end in ends):
            late.add(arrival)
        if all(end in late for end in ends):
            late |= {made, waiting}
