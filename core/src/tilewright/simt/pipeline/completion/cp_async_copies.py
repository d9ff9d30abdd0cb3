"""Copies by commit groups: cp.async and global_load_lds.

An iteration's copies are one group of each thread, and S-1 groups are in flight at the top of the
loop (:mod:`tilewright.simt.pipeline.modulo_expander`), whose tokens it carries:

    for each iteration i:
        wait until S-2 groups are in flight: the copies for i have arrived
        start copying the loads of iteration i+S-1, where i+S-1 < n, into the slot of iteration
            i-1; commit
        ... the body, which reads slot i mod S

Copies past the end are masked off: each iteration commits one group. The necessary barriers follow
from the operations (:mod:`~tilewright.simt.passes.insert_membar`): an asynchronous copy counts as a
write at its wait, so one barrier comes between the wait and the first read; and the slot that is
filled in an iteration was read in the previous one, so a barrier comes between: the same one,
before the first copy.

The body's matmul may be written in K steps (:mod:`tilewright.simt.pipeline.k_steps`), or as
ping-pong between halves of the warps (:mod:`tilewright.simt.pipeline.ping_pong`): their copies are
marked as ordered, because a barrier of their own stands before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import I32
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.simt.analysis.pipelined_loads import (
    copied_elements,
    group_layout,
    is_copyable,
    stepped_matmul,
)
from tilewright.simt.analysis.register_pressure import peak_words_in, words_of
from tilewright.simt.dialect.ops.dot import PlannedDot
from tilewright.simt.dialect.pipeline_attributes import (
    ALTERNATING,
    BY,
    DEFERRED_WAIT,
    EARLY,
    LATE,
    SHARED,
    STEPS,
    WIDTH,
    Ahead,
    selected,
)
from tilewright.simt.dialect.types import COPIES
from tilewright.simt.pipeline.defer_matmul_wait import Deferred, defer_wait, trailing_matmul
from tilewright.simt.pipeline.k_steps import write_k_steps
from tilewright.simt.pipeline.modulo_expander import Copies, ModuloExpander, completes
from tilewright.simt.pipeline.ping_pong import MIN_IN_FLIGHT, can_alternate, write_phases
from tilewright.simt.pipeline.pipelined_loop import LoopSchedule
from tilewright.simt.pipeline.register_budget import phases_fit, register_budget, steps_fit
from tilewright.simt.pipeline.start_matmuls import held_by
from tilewright.simt.target.copy_mechanism import GROUPS, CopyMechanism
from tilewright.simt.target.simt_target import SimtTarget


@completes(GROUPS)
class CpAsyncCopies(Copies):
    """Copies that each thread starts from its pointers, and waits for by groups.

    Attributes:
        buffers: the multi-buffered shared memory of each load.
        tokens: of the groups in flight at the top of the loop, oldest first.
        added: values beside tokens to yield for what the body's matmul carries.
    """

    def __init__(self, loop: ModuloExpander) -> None:
        super().__init__(loop)
        self.tokens: list[Value] = []
        self.added: list[Value] = []
        self.deferred: Deferred | None = None

    @classmethod
    def attributes_of(
        cls,
        load: Ahead,
        mechanism: CopyMechanism,
        target: SimtTarget,
        axes: Mapping[Value, AxisInfo],
    ) -> dict[str, Any] | None:
        if not isinstance(load, Load) or not is_copyable(load):
            return None
        shared = group_layout(load, mechanism, target, axes)
        if shared is None:
            return None
        return {SHARED: shared, WIDTH: copied_elements(load, mechanism, axes)}

    @classmethod
    def decide(
        cls, loop: For, found: LoopSchedule, target: SimtTarget, options: Mapping[str, Any]
    ) -> None:
        """Choose how the matmul that reads the slots last is written."""
        loads = selected(loop)
        matmul = stepped_matmul(loop, loads, target)
        if matmul is None:
            return
        if (
            found.slots >= MIN_IN_FLIGHT
            and can_alternate(loop, matmul, target)
            and phases_fit(loop, loads, matmul, 0, target, options)
        ):
            matmul.attributes[STEPS] = ALTERNATING
        else:
            early = steps_fit(loop, loads, matmul, target, options)
            matmul.attributes[STEPS] = EARLY if early else LATE

    @classmethod
    def decide_spare(cls, loop: For, target: SimtTarget, options: Mapping[str, Any]) -> None:
        """Defer the wait for the last matmul to the next iteration, if registers allow.

        The registers that the matmul reads stay live for longer.
        """
        last = trailing_matmul(loop, target)
        if last is not None:
            held = sum(map(words_of, held_by(last.matmul, target)))
            if peak_words_in(loop.regions[0]) + held <= register_budget(loop, target, options):
                last.matmul.attributes[DEFERRED_WAIT] = True

    def allocate(self, before: Builder) -> None:
        self.buffers = self.loop.buffers(before)

    def issue(self, builder: Builder, which: Value, mapping: Mapping[Value, Value]) -> None:
        places = self.loop.places(builder, self.buffers, which)
        self._start(builder, self.loop.loads, places, mapping)
        self.tokens.append(self._commit(builder))

    def carry(self, before: Builder) -> None:
        self.first = self.tokens[0]
        self.tokens = [self.loop.carry(token) for token in self.tokens]

    def write_iteration(self, top: Builder) -> None:
        loop = self.loop
        stepped = next(
            (one for one in loop.body if isinstance(one, PlannedDot) and STEPS in one.attributes),
            None,
        )
        how = stepped.attributes[STEPS] if stepped is not None else ""
        if how in (ALTERNATING, EARLY):
            # the first iteration's copies have arrived before the loop
            self._wait(loop.before, self.first)
        else:
            self._wait(top, self.tokens[0])
            if stepped is not None:
                top.barrier()
        loop.begin(top)
        loop.count_down(top)
        free, filled = (
            loop.places(top, self.buffers, which) for which in (loop.previous, loop.slot)
        )
        if stepped is None:
            loop.read(filled)
            self.deferred = defer_wait(loop)
            if self.deferred is not None:
                self.added = self.deferred.following
            self._refill(top if self.deferred is None else self.deferred.after_wait(loop), free)
        elif how == ALTERNATING:
            self._refill(top, free, ordered=True)
            loop.read(filled)
            write_phases(loop, stepped, lambda reading: self._wait(reading, self.tokens[1]))
        else:
            loop.read(filled)
            self._write_steps(stepped, top, filled, free, early=how == EARLY)

    def following(self) -> list[Value]:
        return [*self.tokens[1:], self.token, *self.added]

    def write_epilogue(self) -> None:
        behind = self.loop.behind
        self.loop.create(behind, "simt.wait", self.loop.results_of(self.tokens), [])
        if self.deferred is not None:
            self.deferred.settle(self.loop)

    # ---- copies

    def _refill(self, builder: Builder, places: Sequence[Value], *, ordered: bool = False) -> None:
        """Start the copies of iteration i+S-1."""
        mapping = self.loop.look_ahead(builder)
        self._start(builder, self.loop.loads, places, mapping, ordered=ordered)
        self.token = self._commit(builder)
        self.loop.advance(builder, mapping)

    def _write_steps(
        self,
        matmul: PlannedDot,
        top: Builder,
        filled: Sequence[Value],
        free: Sequence[Value],
        *,
        early: bool,
    ) -> None:
        """Write the matmul in K steps, between which the copies of iteration i+S-1 start."""
        loop = self.loop
        builder = Builder.at(matmul)
        behind = Builder(loop.body, matmul.next, matmul.location)
        waiting = list(zip(loop.loads, free, strict=True))
        mapping: dict[Value, Value] = {}

        def start(step: int, count: int) -> None:
            if step == 0:
                mapping.update(loop.look_ahead(builder))
            # an equal share of the copies at each step but the last, after which only counted
            # copies may be in flight
            share = -(-len(waiting) // max(1, count - 1 - step))
            for load, place in waiting[:share]:
                self._start(builder, [load], [place], mapping, ordered=True)
            if waiting and not waiting[share:]:
                self.token = self._commit(builder)
            del waiting[:share]

        def arrive() -> None:
            # with two slots the copies that were just started are those of the next iteration
            self._wait(builder, self.tokens[1] if len(self.tokens) > 1 else self.token)
            builder.barrier()

        slots = None
        if early:
            zero = loop.number(loop.before, 0, I32)
            slots = (
                loop.places(loop.before, self.buffers, zero),
                loop.places(top, self.buffers, loop.next),
            )
        drains = any(
            loop.target.async_copy.mechanism(load.attributes[BY]).drains for load in loop.loads
        )
        self.added = write_k_steps(loop, matmul, filled, slots, start, arrive, drains=drains)
        loop.advance(behind, mapping)

    def _start(
        self,
        builder: Builder,
        loads: Sequence[Ahead],
        places: Sequence[Value],
        mapping: Mapping[Value, Value],
        *,
        ordered: bool = False,
    ) -> None:
        """Start the copies of loads, where their iteration will run."""
        for load, place in zip(loads, places, strict=True):
            assert isinstance(load, Load)
            pointer, mask, _ = self.loop.addresses(load, mapping)
            masked = self.loop.masked(builder, pointer, mask, self.loop.live)
            self.loop.create(
                builder,
                "simt.copy_start",
                [place],
                [pointer],
                [masked],
                by=load.attributes[BY],
                cache=load.cache,
                eviction=load.eviction,
                ordered=ordered,
            )

    def _commit(self, builder: Builder) -> Value:
        return self.loop.create(builder, "simt.commit", result=COPIES).results[0]

    def _wait(self, builder: Builder, token: Value) -> None:
        self.loop.create(builder, "simt.wait", [token], [])
