"""The form of loops whose loads go through registers: for machines that cannot copy to shared
memory by themselves.

A loop of n iterations whose loads start D iterations ahead (``simt.distance``) becomes

    ring of two slots for each load
    for s in 0 .. D-1:              start loading what iteration s reads, where s < n
    wait for what iteration 0 reads, store it in slot 0
    for each iteration i:
        start loading what iteration i+D reads, where i+D < n
        ... the body, which reads slot i mod 2
        wait for what iteration i+1 reads, store it in slot (i+1) mod 2

Two slots serve whatever the distance: what is further ahead is in registers, D tiles of each load,
D-1 of which the loop carries with their tokens.

One barrier an iteration is enough, and the one that is put in before the first read of the body
(:mod:`tilewright.simt.passes.insert_membar`), because the slot was written at the end of the
iteration before, serves twice: what is stored at the end goes to the slot that was read in the
iteration before, in front of that barrier. So these stores are marked as ordered. Each ring is read
in the body itself, and not only in regions inside it, since that is where the matmuls are that its
load was selected for: the barrier is met in every iteration.

Where halves of the warps alternate between reading and multiplying (:mod:`.ping_pong`), stores and
loads come before the matmul, in this order: what is stored was loaded in the iteration before, or
earlier.

Where registers are few (:mod:`tilewright.simt.pipeline.register_budget`) the loads of one iteration
ahead are in flight in turn: one starts at the head and is stored between matmuls, or between the
steps of one, where the next starts. That is after the barrier too, since a matmul that reads slots
comes before.

What is loaded past the end is masked off. The addresses are those of the body, computed a second
time (:func:`~tilewright.simt.analysis.iteration_slices.slice_of`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import I32
from tilewright.simt.analysis.masked_off_lanes import fills_with_zeros
from tilewright.simt.dialect.ops.buffers import View
from tilewright.simt.dialect.ops.dot import Dot
from tilewright.simt.dialect.pipeline_attributes import ALTERNATING, DISTANCE, IN_TURN, KEPT, STEPS, Ahead
from tilewright.simt.dialect.types import SlotType
from tilewright.simt.passes.stage_operands import put_in_shared
from tilewright.simt.pipeline.multibuffer import Ring
from tilewright.simt.pipeline.ping_pong import fragment_of, step_of, write_phases
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


@dataclass(frozen=True, slots=True)
class _Flight:
    """A tile that is being loaded, and the token to wait for."""

    tile: Value
    token: Value


def expand_registers(loop: For, target: SimtTarget) -> None:
    """Write out a loop whose loads go through registers."""
    _Registers(loop, target).run()


class _Registers(Ring):
    """Rewrites one loop."""

    def run(self) -> None:
        distance: int = self.loop.attributes.pop(DISTANCE)
        in_turn = self.loop.attributes.pop(IN_TURN, False)
        self._keep_operands()
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

        # what the loop carries besides: values ahead, the slot that is read, how many iterations
        # are still to be loaded, what is on its way
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
        end = Builder(self.body, self.last, self.loop.location)
        matmuls = (operation for operation in self.body if isinstance(operation, Dot))
        alternating = next((matmul for matmul in matmuls if matmul.attributes.get(STEPS) == ALTERNATING), None)

        def filled() -> list[Value]:
            return [self.slot(top, buffer, slot) for buffer in buffers]

        def store(builder: Builder, flights: list[_Flight], loads: list[Ahead]) -> None:
            self._store(builder, flights, [self.slot(builder, buffers[self.loads.index(load)], following) for load in loads], ordered=True)

        def store_and_start(builder: Builder) -> None:
            # loads then come to the registers of what was stored
            store(builder, flying.pop(0), self.loads)
            flying.append([self._start(builder, load, mapping, live) for load in self.loads])

        if in_turn:
            read = filled()
            self.read(read)
            for first, last, loads in self._turns(read, top, end):
                flights = [self._start(first, load, mapping, live) for load in loads]
                self.create(first, "simt.keep_order")
                self.create(last, "simt.keep_order", everything=True)
                store(last, flights, loads)
            advanced = self.advanced(end, mapping, ahead)
        elif alternating is None:
            flying.append([self._start(top, load, mapping, live) for load in self.loads])
            advanced = self.advanced(top, mapping, ahead)
            self.read(filled())
            store(end, flying.pop(0), self.loads)
        else:
            advanced = self.advanced(top, mapping, ahead)
            self.read(filled())
            write_phases(self, alternating, store_and_start)
        carried = [value for flights in flying for flight in flights for value in (flight.tile, flight.token)]
        self.yield_more([*(advanced[key] for key in keys), following, one_less, *carried])

    def _keep_operands(self) -> None:
        """Put the operands that are to be read from shared memory in each iteration there, before
        the loop."""
        kept: dict[Value, Value] = {}
        for matmul in [operation for operation in self.body if isinstance(operation, Dot)]:
            for position in matmul.attributes.pop(KEPT, ()):
                operand = (matmul.a, matmul.b)[position]
                if operand not in kept:
                    kept[operand] = put_in_shared(matmul, position, self.target)
                matmul.set_operand(position, kept[operand])

    def _turns(self, filled: list[Value], top: Builder, end: Builder) -> Iterator[tuple[Builder, Builder, list[Ahead]]]:
        """(where loads start, where they are stored, these loads) of each turn, in order.

        All but the last are stored between matmuls that read slots: after the barrier of the
        iteration.
        """
        pieces = self._pieces(filled)
        count = max(1, min(len(pieces), len(self.loads)))
        places = [top, *(Builder.at(pieces[len(pieces) * turn // count]) for turn in range(1, count)), end]
        for turn, (start, stop) in enumerate(itertools.pairwise(places)):
            yield start, stop, self.loads[len(self.loads) * turn // count : len(self.loads) * (turn + 1) // count]

    def _pieces(self, filled: list[Value]) -> list[Operation]:
        """What the matmuls that read slots, and where there are fewer of them than loads their
        parts along K, begin with, in order."""
        matmuls = [one for one in self.body if isinstance(one, Dot) and any(self._is_read(operand, filled) for operand in one.operands)]
        return [piece for matmul in matmuls for piece in self._cut(matmul, -(-len(self.loads) // len(matmuls)))]

    def _is_read(self, operand: Value, filled: list[Value]) -> bool:
        view = operand.definition
        return operand in filled or (isinstance(view, View) and view.x in filled)

    def _cut(self, matmul: Dot, parts: int) -> list[Operation]:
        """Write a matmul step by step along K, if it can be; what so many parts of it, or as many
        as it has steps, begin with."""
        plan = plan_of(matmul, self.target)
        depth = plan.a.shape[-1]
        if parts == 1 or not 0 < plan.k_step < depth or not all(isinstance(operand.type, SlotType) for operand in (matmul.a, matmul.b)):
            return [matmul]
        builder, total = Builder.at(matmul), matmul.c
        steps: list[Operation] = []
        for first in range(0, depth, plan.k_step):
            fragments = [fragment_of(self, builder, slot, matmul, position, first) for position, slot in enumerate((matmul.a, matmul.b))]
            begin = fragments[0].definition
            assert begin is not None
            steps.append(begin)
            total = step_of(self, builder, matmul, fragments, total)
        matmul.results[0].replace_all_uses(total)
        matmul.erase()
        return list(dict.fromkeys(steps[len(steps) * part // parts] for part in range(parts)))

    def _start(self, builder: Builder, load: Ahead, mapping: Mapping[Value, Value], live: Value) -> _Flight:
        """Start a load, where ``live`` holds."""
        assert isinstance(load, Load)
        pointer, mask, other = self.addresses(load, mapping)
        unseen = other is None and not fills_with_zeros(load)  # of an iteration that will not run nobody sees anything
        how: dict[str, Any] = {"cache": load.cache, "eviction": load.eviction, "unseen": unseen}
        masked = self.masked(builder, pointer, mask, live)
        tile, token = self.create(builder, "simt.load_start", [pointer], [masked], [] if other is None else [other], **how).results
        tile.layout = load.results[0].layout
        return _Flight(tile, token)

    def _store(self, builder: Builder, flights: list[_Flight], slots: list[Value], *, ordered: bool) -> None:
        """Wait for what is on its way, one by one, and store it."""
        for flight, slot in zip(flights, slots, strict=True):
            (tile,) = self.create(builder, "simt.wait", [flight.token], [flight.tile]).results
            tile.layout = flight.tile.layout
            self.create(builder, "simt.store", [slot], [tile], ordered=ordered)
