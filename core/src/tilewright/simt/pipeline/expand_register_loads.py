"""Expansion of loops whose loads go through registers, for targets without asynchronous copies.

A loop of n iterations with prefetch distance D (``simt.distance``) becomes

    two slots of shared memory for each load
    for s in 0 .. D-1:              start the loads of iteration s, where s < n
    wait for the loads of iteration 0, store them in slot 0
    for each iteration i:
        start the loads of iteration i+D, where i+D < n
        ... the body, which reads slot i mod 2
        wait for the loads of iteration i+1, store them in slot (i+1) mod 2

Two slots suffice at any distance: tiles further ahead are in registers, D tiles of each load, D-1
of which are loop-carried with their tokens.

One barrier an iteration suffices. It is inserted before the first read of the body
(:mod:`tilewright.simt.passes.insert_membar`), because the slot was written at the end of the
previous iteration, and it serves twice: the stores at the end of an iteration go to the slot that
was read in the previous iteration, before that barrier. So these stores are marked as ordered. Each
buffer is read in the body itself, and not only in regions inside it, because the matmuls that its
load was selected for are there: the barrier is executed in every iteration.

With ping-pong (:mod:`.ping_pong`), stores and loads come before the matmul, in this order: the
stored tiles were loaded in the previous iteration, or earlier.

On targets with few registers (:mod:`tilewright.simt.pipeline.register_budget`) the loads of the
next iteration are serialized: one starts at the top and is stored between matmuls, or between the
steps of one, where the next load starts. That is after the barrier too, because a matmul that reads
slots comes before.

Loads past the end are masked off. The addresses are those of the body, recomputed
(:func:`~tilewright.simt.analysis.iteration_slices.slice_of`).
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
from tilewright.simt.dialect.ops.buffers import SharedView
from tilewright.simt.dialect.ops.dot import PlannedDot
from tilewright.simt.dialect.pipeline_attributes import (
    ALTERNATING,
    DISTANCE,
    IN_TURN,
    KEPT,
    STEPS,
    Ahead,
)
from tilewright.simt.dialect.types import SlotType
from tilewright.simt.passes.stage_operands import put_in_shared
from tilewright.simt.pipeline.multibuffer import Ring
from tilewright.simt.pipeline.ping_pong import fragment_of, step_of, write_phases
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


@dataclass(frozen=True, slots=True)
class _Flight:
    """A tile in flight, and the token to wait for."""

    tile: Value
    token: Value


def expand_registers(loop: For, target: SimtTarget) -> None:
    """Expand a loop whose loads go through registers."""
    _Registers(loop, target).run()


class _Registers(Ring):
    """The expansion of one loop."""

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
        self._store(
            before,
            started.pop(0),
            [self.slot(before, buffer, zero) for buffer in buffers],
            ordered=False,
        )
        left = self.left_after(before, count, distance)

        # further loop-carried values: prefetched values, the slot to read, the number of iterations
        # left to load, tiles in flight
        keys = self.keys(ahead)
        values = [self.carry(ahead[key]) for key in keys]
        slot, left = self.carry(zero), self.carry(left)
        flying = [
            [_Flight(self.carry(flight.tile), self.carry(flight.token)) for flight in flights]
            for flights in started
        ]

        top = Builder(self.body, self.body.first, self.loop.location)
        live = top.cmp(left, self.number(top, 0, self.count_type), predicate="gt")
        _, following = self.neighbours(top, slot)
        one_less = top.sub(left, top.cast(live, result=self.count_type))
        ahead = dict(zip(keys, values, strict=True))
        mapping = dict(ahead)
        self.repeat(top, mapping, live)
        end = Builder(self.body, self.last, self.loop.location)
        matmuls = (operation for operation in self.body if isinstance(operation, PlannedDot))
        alternating = next(
            (matmul for matmul in matmuls if matmul.attributes.get(STEPS) == ALTERNATING), None
        )

        def filled() -> list[Value]:
            return [self.slot(top, buffer, slot) for buffer in buffers]

        def store(builder: Builder, flights: list[_Flight], loads: list[Ahead]) -> None:
            self._store(
                builder,
                flights,
                [self.slot(builder, buffers[self.loads.index(load)], following) for load in loads],
                ordered=True,
            )

        def store_and_start(builder: Builder) -> None:
            # loads then reuse the registers of the stored tiles
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
        carried = [
            value
            for flights in flying
            for flight in flights
            for value in (flight.tile, flight.token)
        ]
        self.yield_more([*(advanced[key] for key in keys), following, one_less, *carried])

    def _keep_operands(self) -> None:
        """Store loop-invariant operands that are read from shared memory, before the loop."""
        kept: dict[Value, Value] = {}
        for matmul in [operation for operation in self.body if isinstance(operation, PlannedDot)]:
            for position in matmul.attributes.pop(KEPT, ()):
                operand = (matmul.a, matmul.b)[position]
                if operand not in kept:
                    kept[operand] = put_in_shared(matmul, position, self.target)
                matmul.set_operand(position, kept[operand])

    def _turns(
        self, filled: list[Value], top: Builder, end: Builder
    ) -> Iterator[tuple[Builder, Builder, list[Ahead]]]:
        """Yield (start of loads, place of their stores, the loads) of each serialized group.

        All but the last group are stored between matmuls that read slots, after the barrier of the
        iteration.
        """
        pieces = self._pieces(filled)
        count = max(1, min(len(pieces), len(self.loads)))
        places = [
            top,
            *(Builder.at(pieces[len(pieces) * turn // count]) for turn in range(1, count)),
            end,
        ]
        for turn, (start, stop) in enumerate(itertools.pairwise(places)):
            yield (
                start,
                stop,
                self.loads[len(self.loads) * turn // count : len(self.loads) * (turn + 1) // count],
            )

    def _pieces(self, filled: list[Value]) -> list[Operation]:
        """Return the first operations of the matmuls that read slots, in order.

        If there are fewer matmuls than loads, each is split along K.
        """
        matmuls = [
            one
            for one in self.body
            if isinstance(one, PlannedDot)
            and any(self._is_read(operand, filled) for operand in one.operands)
        ]
        return [
            piece
            for matmul in matmuls
            for piece in self._cut(matmul, -(-len(self.loads) // len(matmuls)))
        ]

    def _is_read(self, operand: Value, filled: list[Value]) -> bool:
        view = operand.definition
        return operand in filled or (isinstance(view, SharedView) and view.x in filled)

    def _cut(self, matmul: PlannedDot, parts: int) -> list[Operation]:
        """Write a matmul step by step along K, if possible, and group the steps into ``parts``.

        Returns the first operation of each part; there are at most as many parts as steps.
        """
        plan = plan_of(matmul, self.target)
        depth = plan.a.shape[-1]
        if (
            parts == 1
            or not 0 < plan.k_step < depth
            or not all(isinstance(operand.type, SlotType) for operand in (matmul.a, matmul.b))
        ):
            return [matmul]
        builder, total = Builder.at(matmul), matmul.c
        steps: list[Operation] = []
        for first in range(0, depth, plan.k_step):
            fragments = [
                fragment_of(self, builder, slot, matmul, position, first)
                for position, slot in enumerate((matmul.a, matmul.b))
            ]
            begin = fragments[0].definition
            assert begin is not None
            steps.append(begin)
            total = step_of(self, builder, matmul, fragments, total)
        matmul.results[0].replace_all_uses(total)
        matmul.erase()
        return list(dict.fromkeys(steps[len(steps) * part // parts] for part in range(parts)))

    def _start(
        self, builder: Builder, load: Ahead, mapping: Mapping[Value, Value], live: Value
    ) -> _Flight:
        """Start a load, where ``live`` holds."""
        assert isinstance(load, Load)
        pointer, mask, other = self.addresses(load, mapping)
        unseen = other is None and not fills_with_zeros(
            load
        )  # of an iteration that will not run nobody sees anything
        how: dict[str, Any] = {"cache": load.cache, "eviction": load.eviction, "unseen": unseen}
        masked = self.masked(builder, pointer, mask, live)
        tile, token = self.create(
            builder, "simt.load_start", [pointer], [masked], [] if other is None else [other], **how
        ).results
        tile.layout = load.results[0].layout
        return _Flight(tile, token)

    def _store(
        self, builder: Builder, flights: list[_Flight], slots: list[Value], *, ordered: bool
    ) -> None:
        """Wait for tiles in flight, one by one, and store them."""
        for flight, slot in zip(flights, slots, strict=True):
            (tile,) = self.create(builder, "simt.wait", [flight.token], [flight.tile]).results
            tile.layout = flight.tile.layout
            self.create(builder, "simt.store", [slot], [tile], ordered=ordered)
