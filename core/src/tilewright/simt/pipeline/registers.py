"""The form of loops whose loads go through registers: for machines that cannot copy to shared memory by themselves.

A loop of n iterations whose loads start D iterations ahead (``simt.distance``) becomes

    ring of two slots for each load
    for s in 0 .. D-1:              start loading what iteration s reads, where s < n
    wait for what iteration 0 reads, store it in slot 0
    for each iteration i:
        start loading what iteration i+D reads, where i+D < n
        ... the body, which reads slot i mod 2
        wait for what iteration i+1 reads, store it in slot (i+1) mod 2

Two slots serve whatever the distance: what is further ahead is in registers, D tiles of each load, D-1 of which the loop carries with their tokens.

One barrier an iteration is enough, and the one that is put in before the first read of the body (:mod:`tilewright.simt.barriers`), because the slot was
written at the end of the iteration before, serves twice: what is stored at the end goes to the slot that was read in the iteration before, in front of
that barrier. So these stores are marked as ordered. Each ring is read in the body itself, and not only in regions inside it, since that is where the
products are that its load was selected for: the barrier is met in every iteration.

Where halves of the warps alternate between reading and multiplying (:mod:`.phases`), stores and loads come before the product, in this order: what is stored
was loaded in the iteration before, or earlier.

What is loaded past the end is masked off. The addresses are those of the body, computed a second time (:func:`~.slices.slice_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.types import I32
from tilewright.simt.pipeline.decisions import ALTERNATING, DISTANCE, STEPS
from tilewright.simt.pipeline.phases import write_phases
from tilewright.simt.pipeline.ring import Ring
from tilewright.simt.target import SimtTarget
from tilewright.simt.unseen import fills_with_zeros


@dataclass(frozen=True, slots=True)
class _Flight:
    """A tile that is being loaded, and the token to wait for."""

    tile: Value
    token: Value


def expand_registers(loop: Operation, target: SimtTarget) -> None:
    """Write out a loop whose loads go through registers."""
    _Registers(loop, target).run()


class _Registers(Ring):
    """Rewrites one loop."""

    def run(self) -> None:
        distance: int = self.loop.attributes.pop(DISTANCE)
        before = Builder.at(self.loop)
        buffers = [self.buffer(before, load) for load in self.loads]

        # the first iterations
        count = self.iterations(before)
        ahead = self.first()
        started = []
        for stage in range(distance):
            live = before.cmp(count, self.number(before, stage, self.count_type), predicate="gt")
            mapping = dict(ahead)
            self.repeat(before, mapping, live)
            started.append([self._start(before, load, mapping, live) for load in self.loads])
            ahead = self.advanced(before, mapping, ahead)
        zero = self.number(before, 0, I32)
        self._store(before, started.pop(0), [self.slot(before, buffer, zero) for buffer in buffers], ordered=False)
        left = self.left_after(before, count, distance)

        # what the loop carries besides: values ahead, the slot that is read, how many iterations are still to be loaded, what is on its way
        keys = self.keys(ahead)
        values = [self.carry(ahead[key]) for key in keys]
        slot, left = self.carry(zero), self.carry(left)
        flying = [[_Flight(self.carry(flight.tile), self.carry(flight.token)) for flight in flights] for flights in started]

        top = Builder(self.body, self.body.first, self.loop.location)
        live = top.cmp(left, self.number(top, 0, self.count_type), predicate="gt")
        _, following = self.neighbours(top, slot)
        one_less = top.sub(left, top.cast(live, result=self.count_type))
        ahead = dict(zip(keys, values, strict=True))
        mapping = dict(ahead)
        self.repeat(top, mapping, live)
        alternating = next((operation for operation in self.body if operation.attributes.get(STEPS) == ALTERNATING), None)
        if alternating is None:
            flying.append([self._start(top, load, mapping, live) for load in self.loads])
        advanced = self.advanced(top, mapping, ahead)
        self.read([self.slot(top, buffer, slot) for buffer in buffers])

        def store(builder: Builder) -> None:
            self._store(builder, flying.pop(0), [self.slot(builder, buffer, following) for buffer in buffers], ordered=True)

        def store_and_start(builder: Builder) -> None:
            # loads then come to the registers of what was stored
            store(builder)
            flying.append([self._start(builder, load, mapping, live) for load in self.loads])

        if alternating is None:
            store(Builder(self.body, self.last, self.loop.location))
        else:
            write_phases(self, alternating, store_and_start)
        carried = [value for flights in flying for flight in flights for value in (flight.tile, flight.token)]
        self.yield_more([*(advanced[key] for key in keys), following, one_less, *carried])

    def _start(self, builder: Builder, load: Operation, mapping: Mapping[Value, Value], live: Value) -> _Flight:
        """Start a load, where ``live`` holds."""
        pointer, mask, other = (mapping.get(value, value) if value is not None else None for value in map(load.operand, ("pointer", "mask", "other")))
        assert pointer is not None
        unseen = other is None and not fills_with_zeros(load)  # of an iteration that will not run nobody sees anything
        attributes = {"cache": load.attribute("cache"), "eviction": load.attribute("eviction"), "unseen": unseen}
        masked = self.masked(builder, pointer, mask, live)
        tile, token = self.create(builder, "simt.load_start", [pointer], [masked], [] if other is None else [other], **attributes).results
        tile.layout = load.results[0].layout
        return _Flight(tile, token)

    def _store(self, builder: Builder, flights: list[_Flight], slots: list[Value], *, ordered: bool) -> None:
        """Wait for what is on its way, one by one, and store it."""
        for flight, slot in zip(flights, slots, strict=True):
            (tile,) = self.create(builder, "simt.wait", [flight.token], [flight.tile]).results
            tile.layout = flight.tile.layout
            self.create(builder, "simt.store", [slot], [tile], ordered=ordered)
