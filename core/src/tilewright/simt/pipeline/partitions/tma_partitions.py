"""Expansion of loops with TMA copies in warp-specialized partitions.

    S slots of shared memory for each load; S mbarriers ``full``, S mbarriers ``empty``
    partition
        part "load":
            for each iteration, in one warp:
                wait until its slot is empty; expect and start its copies at ``full``
        part "math":
            for each iteration:
                wait for ``full``; ... the body, which reads the slot
                each warp arrives at ``empty``

Slot and parity continue from one run of the loop to the next, so that the producer already
prefetches for the next tile of a persistent kernel while the consumer is in the epilogue of this
one. Where the matmul is asynchronous and only adds to an accumulator, its slot is released one
iteration later; where its accumulator is in tensor memory, by the matmul itself when it has
completed.

Loops over back-to-back matmuls (:mod:`.back_to_back_partitions`) have mbarriers for each load, and
loops of a function whose loads are alike, such as one without masks and one with them, share
multi-buffered memory: slot and parity continue from one loop to the next.

A descriptor that the producer makes anew in a loop replaces the previous one: all copies that were
started have arrived before that, and also before the end of the partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.types import I1, I32
from tilewright.passes.rewriter import constant_of
from tilewright.simt.dialect.attributes import WHOLE, function_of
from tilewright.simt.dialect.loop_carried import is_repeated, terminator
from tilewright.simt.dialect.ops.warp_specialize import Part
from tilewright.simt.dialect.pipeline_attributes import BY, selected, shared_layout
from tilewright.simt.passes.ssa_repair import thread_values
from tilewright.simt.pipeline.completion.tma_copies import SlotGroup, TmaCopies
from tilewright.simt.pipeline.modulo_expander import ModuloExpander
from tilewright.simt.pipeline.partitions.order_stores import order_stores
from tilewright.simt.pipeline.partitions.tile_operands import expand_tile_operands
from tilewright.simt.pipeline.partitions.warp_specialize import LOAD, MATH, divide
from tilewright.simt.target.simt_target import SimtTarget


class _InPartition(TmaCopies):
    """A partition's part of the copies, whose slots continue from one run of a loop to the next."""

    def continue_from(self, values: Sequence[Value]) -> Sequence[Value]:
        """Expand the loop, given the state before it; return the state behind it."""
        self.loop.slot, self.phase = (self.loop.carry(value) for value in values[:2])
        self.loop.write_steady_state(self)
        return self.state()

    def state(self) -> list[Value]:
        """Return the slot and the parity behind the loop."""
        return self.loop.results_of([self.loop.slot, self.phase])


class Producer(_InPartition):
    """The loop that issues the copies, as soon as slots are empty."""

    def write_iteration(self, top: Builder) -> None:
        loop = self.loop
        (group,), place = self.groups, Builder.at(loop.loads[-1])
        self.await_slot(place, group)
        self.start(place, group, loop.slot, {})
        self.advance(place)

    def await_slot(self, place: Builder, group: SlotGroup) -> Operation:
        """Wait until the slot has been released in the previous round."""
        passed = place.xor(self.phase, place.constant(value=True, result=I1))
        return self.await_empty(place, group, self.loop.slot, passed)

    def advance(self, builder: Builder) -> None:
        """Compute the next slot and its parity."""
        loop = self.loop
        loop.previous, loop.next = loop.neighbours(builder, loop.slot)
        self.phase_next = self.next_phase(builder)

    def follow(self, consumer: Consumer) -> None:
        """Take over what the consumer's expansion has decided about the order of copies."""

    def write_epilogue(self) -> None:
        """Leave the copies in flight: the consumer waits for them."""


class Consumer(_InPartition):
    """The loop that reads the slots and releases them.

    Attributes:
        is_last: whether no later loop reads the same slots.
    """

    is_last = True

    def continue_from(self, values: Sequence[Value]) -> Sequence[Value]:
        self.parity = values[-1]
        slot, *rest = values
        if constant_of(slot) is None:
            # from an outer loop: descriptors of slots are computed once for a warp, not by lanes
            slot = self.loop.create(self.loop.before, "simt.uniform", [slot]).results[0]
        return super().continue_from([slot, *rest])

    def write_iteration(self, top: Builder) -> None:
        (group,) = self.groups
        self.read_group(top, group)
        self.multiply(group, top)
        self.phase_next = self.next_phase(self.loop.end)

    def write_epilogue(self) -> None:
        (group,), loop = self.groups, self.loop
        behind = loop.behind
        if self.accumulator is not None:
            behind = self.accumulator.settle(self, group.empty, self.ended, self.parity)
        elif self.deferred is not None:
            behind = self.deferred.settle(loop)
            assert self.running is not None
            last, ran = loop.results_of([loop.slot, self.running])
            self.release(behind, group, loop.neighbours(behind, last)[0], ran)
        # after the last loop that runs only once, all copies have been read, and no more start
        around = next(loop.loop.ancestors(), None)
        if isinstance(around, Part) and self.is_last:
            for buffer in group.buffers:
                loop.create(behind, "simt.release", [buffer])
        self.behind = behind

    def state(self) -> list[Value]:
        found = super().state()
        if self.accumulator is None:
            return found
        # a loop that did not run has completed no phase
        (ran,) = self.loop.results_of([self.accumulator.running])
        return [*found, self.behind.xor(self.parity, ran)]


def rings_of(loop: For) -> tuple[object, ...]:
    """Return a key that is equal for loops that can share multi-buffered memory.

    It has the types, layouts and mechanisms of their loads, and whether all CTAs of a cluster need
    them.
    """
    return tuple(
        (load.results[0].type, shared_layout(load), load.attributes[BY], WHOLE in load.attributes)
        for load in selected(loop)
    )


def expand_partitions(
    loops: Sequence[For], target: SimtTarget, producer: type[Producer], consumer: type[Consumer]
) -> None:
    """Warp-specialize the function of some loops, and expand them in both partitions."""
    function = function_of(loops[0])
    kinds: dict[tuple[object, ...], list[int]] = {}
    for number, loop in enumerate(loops):
        kinds.setdefault(rings_of(loop), []).append(number)
    around = list(
        dict.fromkeys(one for loop in loops for one in loop.ancestors() if isinstance(one, For))
    )
    copies, bodies = divide(loops, target)
    before = Builder.at(next(iter(function.body)))
    first = [before.constant(value=0, result=I32), before.constant(value=False, result=I1)]
    for numbers in kinds.values():
        readers = {loops[n]: consumer(ModuloExpander(loops[n], target)) for n in numbers}
        loaders = {copies[n]: producer(ModuloExpander(copies[n], target)) for n in numbers}
        one = readers[loops[numbers[0]]]
        one.allocate(before)
        for n in numbers[:-1]:
            readers[loops[n]].is_last = False
        for other in (*readers.values(), *loaders.values()):
            other.groups = one.groups
        # an accumulator in tensor memory has an mbarrier of its own, with a parity
        inits = first if one.resident is None else [*first, first[1]]
        _thread(bodies[MATH], readers, inits)
        for loader, reader in zip(loaders.values(), readers.values(), strict=True):
            loader.follow(reader)
        _start_loads(bodies[LOAD], loaders, first)
    expand_tile_operands(bodies[LOAD], bodies[MATH], before, target)
    order_stores(bodies[MATH], around, before)


def _thread(body: Region, loops: Mapping[For, _InPartition], inits: Sequence[Value]) -> None:
    thread_values(
        body, list(loops), inits, lambda place, values: loops[place].continue_from(values)
    )


def _start_loads(body: Region, loops: Mapping[For, Producer], first: Sequence[Value]) -> None:
    """Write the producer's loops that share multi-buffered memory.

    All copies that they started have arrived before a descriptor is made anew, and at the end.
    """
    made = list(dict.fromkeys(one for loop in loops.values() for one in loop.made_descriptors()))
    one = next(iter(loops.values()))

    def drain(builder: Builder, slot: Value, phase: Value) -> None:
        for group in one.groups:
            one.drain(builder, group.full, slot, phase)

    def update(place: Operation, values: tuple[Value, ...]) -> Sequence[Value]:
        if isinstance(place, For) and place in loops:
            return loops[place].continue_from(values)
        drain(Builder.at(place), *values)
        return values

    last = thread_values(body, [*loops, *filter(is_repeated, made)], first, update)
    if made:
        drain(Builder.at(terminator(body)), *last)
