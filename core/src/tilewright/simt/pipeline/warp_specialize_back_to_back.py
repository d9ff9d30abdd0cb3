"""Warp specialization of loops over back-to-back matmuls with TMA copies.

The halves of the loops are software-pipelined:

    for each load of the loop: S slots of shared memory; S mbarriers ``full``, S mbarriers ``empty``
    partition
        part "load": the whole program without its effects, down to the addresses of its loads
            for each iteration and load, in one thread:
                wait until its slot is empty; expect and start its copy at its own ``full``
        part "math": the program, with the loop as :mod:`.back_to_back` writes it
            for each load, in its half:
                wait for its ``full``; the readers of the slot
                each warp arrives at its ``empty``

Since each load has its own mbarriers, the early half's slots are released while the late half's
slots are still read or in flight. Loops of a function whose loads are alike, such as one without
masks and one with them, share multi-buffered memory: slot and parity continue from one loop to the
next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.types import I1, I32
from tilewright.simt.dialect.attributes import SUMS, WHOLE, function_of
from tilewright.simt.dialect.loop_carried import is_repeated, terminator
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.buffers import SharedView
from tilewright.simt.dialect.ops.dot import DotStart
from tilewright.simt.dialect.pipeline_attributes import BY, selected, shared_layout
from tilewright.simt.passes.allocate_tensor_memory import accumulator_of
from tilewright.simt.passes.ssa_repair import thread_values
from tilewright.simt.pipeline.back_to_back import Halves, asynchronous_matmuls, late_half
from tilewright.simt.pipeline.defer_matmul_wait import start_and_wait
from tilewright.simt.pipeline.expand_tma import BlockRing, block_bytes
from tilewright.simt.pipeline.warp_specialize import LOAD, MATH, divide
from tilewright.simt.target.simt_target import SimtTarget


def rings_of(loop: For) -> tuple[object, ...]:
    """Return a key that is equal for loops that can share multi-buffered memory.

    It has the types, layouts and mechanisms of their loads, and whether all CTAs of a cluster need
    them.
    """
    return tuple(
        (load.results[0].type, shared_layout(load), load.attributes[BY], WHOLE in load.attributes)
        for load in selected(loop)
    )


@dataclass(frozen=True, slots=True)
class _LoadRing:
    """The slots of one load, with their ``full`` and ``empty`` mbarriers.

    ``shared`` says whether the CTAs of a cluster fill the slots for each other by multicast.
    """

    buffer: Value
    full: Value
    empty: Value
    shared: bool


def expand_chained_parts(loops: Sequence[For], target: SimtTarget) -> None:
    """Warp-specialize the function of some loops into a producer and a consumer."""
    function = function_of(loops[0])
    kinds: dict[tuple[object, ...], list[int]] = {}
    for number, loop in enumerate(loops):
        kinds.setdefault(rings_of(loop), []).append(number)
    copies, bodies, warps = divide(loops, target)
    before = Builder.at(next(iter(function.body)))
    first = [before.constant(value=0, result=I32), before.constant(value=False, result=I1)]
    for numbers in kinds.values():
        loads = {copies[number]: _ProducerLoop(copies[number], target) for number in numbers}
        math = {loops[number]: _ConsumerLoop(loops[number], target) for number in numbers}
        one = math[loops[numbers[0]]]
        rings = [
            _LoadRing(
                one.buffer(before, load),
                one.barriers(before, 1),
                one.barriers(before, warps[MATH] * one.givers(load)),
                one.is_shared(load),
            )
            for load in one.loads
        ]
        thread_values(
            bodies[MATH],
            list(math),
            first,
            lambda place, values, math=math, rings=rings: math[place].run(values, rings),  # type: ignore[misc]
        )
        for reader, loader in zip(math.values(), loads.values(), strict=True):
            loader.late = reader.late
        _start_loads(bodies[LOAD], loads, first, rings)


def _start_loads(
    body: Region,
    loads: Mapping[For, _ProducerLoop],
    first: Sequence[Value],
    rings: Sequence[_LoadRing],
) -> None:
    """Write the producer's loops that share multi-buffered memory.

    All copies that they started have arrived before a descriptor is made anew, and at the end.
    """
    made = list(dict.fromkeys(one for loop in loads.values() for one in loop.made_descriptors()))

    def drain(builder: Builder, slot: Value, phase: Value) -> None:
        for ring in rings:
            next(iter(loads.values())).drain(builder, ring.full, slot, phase)

    def update(place: Operation, values: tuple[Value, ...]) -> Sequence[Value]:
        if isinstance(place, For) and place in loads:
            return loads[place].run(values, rings)
        drain(Builder.at(place), *values)
        return values

    last = thread_values(body, [*loads, *filter(is_repeated, made)], first, update)
    if made:
        drain(Builder.at(terminator(body)), *last)


class _ProducerLoop(BlockRing):
    """A loop of the producer: copies start in the order in which slots are read and released.

    Attributes:
        late: numbers of the loads that the late half reads.
    """

    late: frozenset[int]

    def run(self, values: tuple[Value, ...], rings: Sequence[_LoadRing]) -> list[Value]:
        slot, phase = (self.carry(value) for value in values)
        late: set[Operation] = set()
        for number, (load, ring) in enumerate(zip(self.loads, rings, strict=True)):
            place = Builder.at(load)
            passed = place.xor(phase, place.constant(value=True, result=I1))
            waiting = self.create(place, "simt.await", [ring.empty], [slot], [passed], alone=True)
            announced = self.create(
                place, "simt.expect", [ring.full], [slot], bytes=block_bytes(load), ordered=True
            )
            descriptor, *offsets = load.operands
            where = self.slot(place, ring.buffer, slot)
            how = {"by": load.attributes[BY], "ordered": True, "to_all": ring.shared}
            started = self.create(
                place,
                "simt.block_load_start",
                [where],
                [descriptor],
                offsets,
                [ring.full],
                [slot],
                **how,
            )
            if number in self.late:
                late |= {waiting, announced, started}
        end = Builder.at(self.last)
        _, following = self.neighbours(end, slot)
        self.yield_more([following, self.next_phase(end, following, phase)])
        return Halves(self.loop, late).interleave()[-2:]


class _ConsumerLoop(BlockRing):
    """A loop of the consumer.

    Attributes:
        late: numbers of the loads that only the late half reads.
    """

    late: frozenset[int]

    def run(self, values: tuple[Value, ...], rings: Sequence[_LoadRing]) -> list[Value]:
        slot, phase = (self.carry(value) for value in values)
        slots, waits = [], []
        for load, ring in zip(self.loads, rings, strict=True):
            before = Builder.at(load)
            waits.append(self.create(before, "simt.await", [ring.full], [slot], [phase]))
            slots.append(self.slot(before, ring.buffer, slot))
        end = Builder.at(self.last)
        _, following = self.neighbours(end, slot)
        count = len(self.loop.results)
        self.yield_more([following, self.next_phase(end, following, phase)])
        self.read(slots)

        matmuls = asynchronous_matmuls(self.body, self.target)
        late = late_half(self.body, matmuls)
        assert late is not None
        after: dict[Operation, list[Operation]] = {}
        for number, matmul in enumerate(matmuls):
            kept = accumulator_of(matmul, self.target) is not None
            started, waiting = start_and_wait(matmul, self.target)
            if kept:
                started.attributes[SUMS] = number
            if matmul in late:
                late -= {matmul}
                late |= {started, waiting}
        for place, ring, full in zip(slots, rings, waits, strict=True):
            made = place.definition
            assert made is not None
            self._give_back(place, slot, ring, made, full, late, after)
        self.late = frozenset(number for number, waiting in enumerate(waits) if waiting in late)
        results = Halves(self.loop, late, after).interleave()
        return results[count - 2 :]

    def _give_back(
        self,
        place: Value,
        slot: Value,
        ring: _LoadRing,
        made: Operation,
        waiting: Operation,
        late: set[Operation],
        after: dict[Operation, list[Operation]],
    ) -> None:
        """Arrive at a slot's ``empty`` mbarrier after its last readers.

        Its readers come after the wait for it, which is late if all readers are.
        """
        ends = self._ends(place)
        where = max(ends, key=self._position)
        builder = Builder(self.body, where.next, where.location)
        arrival = self.create(builder, "simt.arrive", [ring.empty], [slot], at_all=ring.shared)
        after[made], after[arrival] = [waiting], ends
        if any(end in late for end in ends):
            late.add(arrival)
        if all(end in late for end in ends):
            late |= {made, waiting}

    def _ends(self, place: Value) -> list[Operation]:
        """Return the operations after which a slot is not read any more."""
        found: list[Operation] = []
        work = [place]
        while work:
            for user in work.pop().uses:
                if isinstance(user, SharedView):
                    work.append(user.results[0])
                elif isinstance(user, DotStart):
                    token = user.results[1]
                    found += [waiting for waiting in token.uses if isinstance(waiting, Wait)]
                else:
                    found.append(user)
        return found

    def _position(self, operation: Operation) -> int:
        return next(number for number, one in enumerate(self.body) if one is operation)
