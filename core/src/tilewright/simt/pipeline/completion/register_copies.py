"""Copies through registers, for targets without asynchronous copies.

Threads load early and store late, with any prefetch distance D (``simt.distance``):

    prologue also: wait for the loads of iteration 0, store them in slot 0
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

With ping-pong (:mod:`tilewright.simt.pipeline.ping_pong`), stores and loads come before the matmul,
in this order: the stored tiles were loaded in the previous iteration, or earlier. Loads may also be
serialized (:mod:`tilewright.simt.pipeline.serialized_loads`); their stores, too, come after the
barrier, because a matmul that reads slots comes before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import I32
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.simt.analysis.masked_off_lanes import fills_with_zeros
from tilewright.simt.analysis.pipelined_loads import is_plain, stepped_matmul, wished_layout
from tilewright.simt.analysis.pipelined_loops import stages_of
from tilewright.simt.dialect.attributes import note
from tilewright.simt.dialect.ops.dot import PlannedDot
from tilewright.simt.dialect.pipeline_attributes import (
    ALTERNATING,
    DISTANCE,
    IN_TURN,
    KEPT,
    SHARED,
    STEPS,
    Ahead,
    selected,
)
from tilewright.simt.passes.stage_operands import put_in_shared
from tilewright.simt.pipeline.modulo_expander import Copies, ModuloExpander, completes
from tilewright.simt.pipeline.ping_pong import MIN_IN_FLIGHT, can_alternate, write_phases
from tilewright.simt.pipeline.pipelined_loop import LoopSchedule
from tilewright.simt.pipeline.register_budget import (
    phases_fit,
    prefetch_distance,
    register_budget,
    spare_registers,
)
from tilewright.simt.pipeline.serialized_loads import turns
from tilewright.simt.target.copy_mechanism import REGISTERS, CopyMechanism
from tilewright.simt.target.simt_target import SimtTarget


class _InFlight(NamedTuple):
    """A tile in flight, and the token to wait for."""

    tile: Value
    token: Value


@completes(REGISTERS)
class RegisterCopies(Copies):
    """Loads to registers, and stores to shared memory.

    Attributes:
        serialized: whether the loads start one after the other.
        buffers: the multi-buffered shared memory of each load.
        flying: the tiles in flight of each iteration, oldest first.
    """

    def __init__(self, loop: ModuloExpander) -> None:
        super().__init__(loop)
        self.distance = loop.loop.attributes.pop(DISTANCE)
        self.serialized = loop.loop.attributes.pop(IN_TURN, False)
        self.flying: list[list[_InFlight]] = []

    @classmethod
    def attributes_of(
        cls,
        load: Ahead,
        mechanism: CopyMechanism,
        target: SimtTarget,
        axes: Mapping[Value, AxisInfo],
    ) -> dict[str, Any] | None:
        if not isinstance(load, Load) or not is_plain(load):
            return None
        shared = wished_layout(load, mechanism, target)
        return None if shared is None else {SHARED: shared}

    @classmethod
    def slots(cls, stages: int) -> int:
        """Return 2: one slot is read while the other is written."""
        return 2

    @classmethod
    def decide(
        cls, loop: For, found: LoopSchedule, target: SimtTarget, options: Mapping[str, Any]
    ) -> None:
        """Choose the prefetch distance, and what spares registers."""
        loads, most = selected(loop), stages_of(loop, options) - 1
        loop.attributes[DISTANCE] = distance = prefetch_distance(loop, loads, most, target, options)
        if distance == 1 and target.resources.few_registers:
            spare_registers(loop, loads, register_budget(loop, target, options), target)
        if distance < most:
            note(
                loop, f"pipelined {distance + 1} deep instead of {most + 1}, for want of registers"
            )
        matmul = stepped_matmul(loop, loads, target)
        if (
            matmul is not None
            and distance >= MIN_IN_FLIGHT - 1
            and can_alternate(loop, matmul, target)
            and phases_fit(loop, loads, matmul, distance, target, options)
        ):
            matmul.attributes[STEPS] = ALTERNATING

    def allocate(self, before: Builder) -> None:
        self._share_operands()
        self.buffers = self.loop.buffers(before)

    def issue(self, builder: Builder, which: Value, mapping: Mapping[Value, Value]) -> None:
        self.flying.append(self._start(builder, self.loop.loads, mapping))

    def after_prologue(self, before: Builder) -> None:
        zero = self.loop.number(before, 0, I32)
        self._store(before, self.flying.pop(0), self.loop.loads, zero, ordered=False)

    def carry(self, before: Builder) -> None:
        carry = self.loop.carry
        self.flying = [
            [_InFlight(carry(one.tile), carry(one.token)) for one in tiles] for tiles in self.flying
        ]

    def write_iteration(self, top: Builder) -> None:
        loop, loads = self.loop, self.loop.loads
        loop.begin(top)
        loop.count_down(top)
        mapping = loop.look_ahead(top)
        alternating = next(
            (
                one
                for one in loop.body
                if isinstance(one, PlannedDot) and one.attributes.get(STEPS) == ALTERNATING
            ),
            None,
        )

        def store_oldest(builder: Builder) -> None:
            self._store(builder, self.flying.pop(0), loads, loop.next)

        def start(builder: Builder) -> None:
            self.flying.append(self._start(builder, loads, mapping))

        def store_and_start(builder: Builder) -> None:
            # loads then reuse the registers of the stored tiles
            store_oldest(builder)
            start(builder)

        if self.serialized:
            filled = loop.places(top, self.buffers, loop.slot)
            loop.read(filled)
            for first, last, some in turns(loop, filled, top, loop.end):
                tiles = self._start(first, some, mapping)
                loop.create(first, "simt.keep_order")
                loop.create(last, "simt.keep_order", everything=True)
                self._store(last, tiles, some, loop.next)
            loop.advance(loop.end, mapping)
            return
        if alternating is None:
            start(top)
        loop.advance(top, mapping)
        loop.read(loop.places(top, self.buffers, loop.slot))
        if alternating is None:
            store_oldest(loop.end)
        else:
            write_phases(loop, alternating, store_and_start)

    def following(self) -> list[Value]:
        return [value for tiles in self.flying for one in tiles for value in one]

    def _share_operands(self) -> None:
        """Store loop-invariant operands that are read from shared memory, before the loop."""
        kept: dict[Value, Value] = {}
        for matmul in [one for one in self.loop.body if isinstance(one, PlannedDot)]:
            for position in matmul.attributes.pop(KEPT, ()):
                operand = (matmul.a, matmul.b)[position]
                if operand not in kept:
                    kept[operand] = put_in_shared(matmul, position, self.loop.target)
                matmul.set_operand(position, kept[operand])

    def _start(
        self, builder: Builder, loads: Sequence[Ahead], mapping: Mapping[Value, Value]
    ) -> list[_InFlight]:
        """Start loads, where their iteration will run."""
        found = []
        for load in loads:
            assert isinstance(load, Load)
            pointer, mask, other = self.loop.addresses(load, mapping)
            tile, token = self.loop.create(
                builder,
                "simt.load_start",
                [pointer],
                [self.loop.masked(builder, pointer, mask, self.loop.live)],
                [] if other is None else [other],
                cache=load.cache,
                eviction=load.eviction,
                # of an iteration that will not run nobody sees anything
                unobserved=other is None and not fills_with_zeros(load),
            ).results
            tile.layout = load.results[0].layout
            found.append(_InFlight(tile, token))
        return found

    def _store(
        self,
        builder: Builder,
        tiles: Sequence[_InFlight],
        loads: Sequence[Ahead],
        which: Value,
        *,
        ordered: bool = True,
    ) -> None:
        """Wait for tiles in flight, one by one, and store them to slot ``which`` of their loads."""
        loop = self.loop
        buffers = [self.buffers[loop.loads.index(load)] for load in loads]
        for one, place in zip(tiles, loop.places(builder, buffers, which), strict=True):
            (tile,) = loop.create(builder, "simt.wait", [one.token], [one.tile]).results
            tile.layout = one.tile.layout
            loop.create(builder, "simt.store", [place], [tile], ordered=ordered)
