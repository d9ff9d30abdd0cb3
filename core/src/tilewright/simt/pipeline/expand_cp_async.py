"""Expansion of loops with cp.async copies: one stream of operations, run by all threads.

A loop of n iterations with S slots becomes

    S slots of shared memory for each load
    for s in 0 .. S-2:
        start copying the loads of iteration s, where s < n, into slot s; commit
    for each iteration i:
        wait until S-2 groups are in flight: the copies for i have arrived
        start copying the loads of iteration i+S-1, where i+S-1 < n, into the slot of iteration
            i-1; commit
        ... the body, which reads slot i mod S
    wait for all

The addresses of iteration i+S-1 are those of the body, recomputed with loop-carried values that are
S-1 iterations ahead (:func:`slice_of`). Copies past the end are masked off, so that each iteration
commits one group, whatever n is. All of that is arithmetic modulo the width of the loop's counter;
whether a copy is past the end is decided by the number of iterations, which fits the counter's
unsigned type, and not by the counter.

The necessary barriers follow from the operations (:mod:`.barriers`): an asynchronous copy counts as
a write at its wait, so one barrier comes between the wait and the first read; and the slot that is
filled in an iteration was read in the previous one, so a barrier comes between: the same one,
before the first copy.

Where a matmul is the last reader of the slots, and takes its operands from them alone, it is
written step by step along K, so that neither the wait nor the loads of fragments from shared memory
nor the start of copies stall the matrix instructions:

    load the fragments of step 0 from slot 0
    for each iteration i:
        for each step but the last:
            load the fragments of the next step; start copies (their share); multiply
        wait until S-2 groups are in flight: the copies for i+1 have arrived; barrier
        load the fragments of step 0 from the slot of iteration i+1; multiply the last step

There, all fragments of slot i-1 are loaded before the barrier of iteration i-1, and the copies into
it start after: they are marked as ordered. Where registers are short, nothing is loaded for the
next iteration: the wait, the barrier and the load of step 0 come first in each iteration.

A group's token is loop-carried until the iteration that waits for it: S-1 tokens are in flight at
the top of the loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import I32
from tilewright.simt.dialect.ops.dot import PlannedDot
from tilewright.simt.dialect.pipeline_attributes import ALTERNATING, BY, EARLY, STEPS, TRAILS, Ahead
from tilewright.simt.dialect.types import COPIES
from tilewright.simt.pipeline.defer_matmul_wait import (
    Accumulation,
    Trailing,
    accumulation,
    reads_what_is_staged,
    trailing_matmul,
)
from tilewright.simt.pipeline.multibuffer import Ring
from tilewright.simt.pipeline.ping_pong import fragment_of, step_of, write_phases
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


def expand_groups(loop: For, target: SimtTarget) -> None:
    """Expand a loop whose loads are copied by cp.async groups."""
    _Stream(loop, target).run()


class _Stream(Ring):
    """The expansion of one loop.

    Attributes:
        stepped: the matmul that is computed step by step, if there is one.
        early: whether the fragments of its first step are prefetched in the previous iteration.
        alternating: whether halves of the warps ping-pong between reading and multiplying
            (:mod:`.ping_pong`).
    """

    def __init__(self, loop: For, target: SimtTarget) -> None:
        super().__init__(loop, target)
        self.stepped = next(
            (
                operation
                for operation in self.body
                if isinstance(operation, PlannedDot) and STEPS in operation.attributes
            ),
            None,
        )
        how = self.stepped.attributes[STEPS] if self.stepped is not None else ""
        self.early, self.alternating = how == EARLY, how == ALTERNATING

    def run(self) -> None:
        before = Builder.at(self.loop)
        buffers = [self.buffer(before, load) for load in self.loads]
        depth = self.slots - 1

        # the first copies
        count = self.iterations(before)
        ahead = self.first()
        tokens = []
        for stage in range(depth):
            live = before.cmp(count, self.number(before, stage, self.count_type), predicate="gt")
            mapping = dict(ahead)
            self.repeat(before, mapping, live)
            number = self.number(before, stage, I32)
            for load, buffer in zip(self.loads, buffers, strict=True):
                self._start(before, load, self.slot(before, buffer, number), mapping, live)
            tokens.append(self._commit(before))
            ahead = self.advanced(before, mapping, ahead)
        left = self.left_after(before, count, depth)

        # further loop-carried values: prefetched values, the slot to read, the number of iterations
        # left to copy, tokens
        keys = self.keys(ahead)
        values = [self.carry(ahead[key]) for key in keys]
        slot, left = self.carry(self.number(before, 0, I32)), self.carry(left)
        waiting = [self.carry(token) for token in tokens]

        top = Builder(self.body, self.body.first, self.loop.location)
        if self.alternating:
            self.create(before, "simt.wait", [tokens[0]], [])
        elif not self.early:
            self.create(top, "simt.wait", [waiting[0]], [])
            if self.stepped is not None:
                top.barrier()
        live = top.cmp(left, self.number(top, 0, self.count_type), predicate="gt")
        previous, following = self.neighbours(top, slot)
        one_less = top.sub(left, top.cast(live, result=self.count_type))
        ahead = dict(zip(keys, values, strict=True))
        free, filled = (
            [self.slot(top, buffer, which) for buffer in buffers] for which in (previous, slot)
        )
        made: list[Value] = []
        late: list[Value] = []
        found: Accumulation | Trailing | None = None
        if self.stepped is None:
            self.read(filled)
            refill = top
            if (only := accumulation(self.loop, self.target)) is not None:
                found = only
                earlier, matmul = self.overlap(only, before)
                late, made = [earlier], [matmul]
            elif (last := self._trailing()) is not None:
                found = last
                late, made = self.trail(last, before)
            if late:
                refill = self.after_wait(late[0])
            mapping = dict(ahead)
            self.repeat(refill, mapping, live)
            for load, place in zip(self.loads, free, strict=True):
                self._start(refill, load, place, mapping, live)
            token = self._commit(refill)
            advanced = self.advanced(refill, mapping, ahead)
        elif self.alternating:
            mapping = dict(ahead)
            self.repeat(top, mapping, live)
            for load, place in zip(self.loads, free, strict=True):
                self._start(top, load, place, mapping, live, ordered=True)
            token = self._commit(top)
            advanced = self.advanced(top, mapping, ahead)
            self.read(filled)
            write_phases(self, self.stepped, lambda reading: self._wait_for(reading, waiting[1]))
        else:
            self.read(filled)
            next_filled = [self.slot(top, buffer, following) for buffer in buffers]
            firsts = [self.slot(before, buffer, self.number(before, 0, I32)) for buffer in buffers]
            advanced, token, made = self._in_steps(
                self.stepped,
                before,
                firsts,
                filled,
                next_filled,
                ahead,
                live,
                free,
                tokens[0],
                waiting,
            )
        self.yield_more(
            [*(advanced[key] for key in keys), following, one_less, *waiting[1:], token, *made]
        )
        after = Builder(self.loop.parent, self.loop.next, self.loop.location)
        self.create(after, "simt.wait", self.results_of(waiting), [])
        if found is not None:
            self.settle(found, late)

    def _wait_for(self, builder: Builder, token: Value) -> None:
        self.create(builder, "simt.wait", [token], [])

    def _trailing(self) -> Trailing | None:
        """Return the matmul whose wait is deferred to the next iteration, if any."""
        found = trailing_matmul(self.loop, self.target)
        if (
            found is None
            or not found.matmul.attributes.pop(TRAILS, False)
            or reads_what_is_staged(found.matmul, self.loop, self.target)
        ):
            return None
        return found

    def _in_steps(
        self,
        matmul: PlannedDot,
        before: Builder,
        firsts: list[Value],
        filled: list[Value],
        next_filled: list[Value],
        ahead: Mapping[Value, Value],
        live: Value,
        free: list[Value],
        first_token: Value,
        waiting: list[Value],
    ) -> tuple[dict[Value, Value], Value, list[Value]]:
        """Compute the matmul step by step along K; fragments are prefetched one step ahead.

        Copies start between the steps. Returns the values of ``ahead`` one iteration later, the
        token of the copies, and the fragments that the next iteration begins with.
        """
        builder = Builder.at(matmul)
        plan = plan_of(matmul, self.target)
        count = plan.a.shape[-1] // plan.k_step
        operands = (matmul.a, matmul.b)

        def fragments(at: Builder, slots: list[Value], step: int) -> list[Value]:
            found = [self.seen(at, operand, filled, slots) for operand in operands]
            return [
                fragment_of(self, at, slot, matmul, position, step * plan.k_step)
                for position, slot in enumerate(found)
            ]

        if self.early:
            self.create(before, "simt.wait", [first_token], [])
            current = [self.carry(value) for value in fragments(before, firsts, 0)]
        else:
            current = fragments(builder, filled, 0)
        mapping = dict(ahead)
        starting = list(zip(self.loads, free, strict=True))
        accumulator = matmul.c
        token: Value | None = None
        drains = any(
            self.target.async_copy.mechanism(load.attributes[BY]).drains for load in self.loads
        )
        for step in range(count):
            following: list[Value] = []
            if step + 1 < count:
                # this step's fragments are waited for in any case, so copies that wait for reads
                # come first
                if not drains:
                    following = fragments(builder, filled, step + 1)
            elif self.early:
                # with two slots the copies that were just started are those of the next iteration
                arriving = waiting[1] if len(waiting) > 1 else token
                assert arriving is not None
                self.create(builder, "simt.wait", [arriving], [])
                builder.barrier()
                following = fragments(builder, next_filled, 0)
            if step == 0:
                self.repeat(builder, mapping, live)
            # an equal share of the copies at each step but the last, after which only counted
            # copies may be in flight
            share = -(-len(starting) // max(1, count - 1 - step))
            for load, place in starting[:share]:
                self._start(builder, load, place, mapping, live, ordered=True)
            if starting and not starting[share:]:
                token = self._commit(builder)
            del starting[:share]
            if drains and step + 1 < count:
                following = fragments(builder, filled, step + 1)
            accumulator = step_of(self, builder, matmul, current, accumulator)
            current = following
        assert token is not None
        advanced = self.advanced(builder, mapping, ahead)
        matmul.results[0].replace_all_uses(accumulator)
        matmul.erase()
        return advanced, token, current

    def _start(
        self,
        builder: Builder,
        load: Ahead,
        slot: Value,
        mapping: Mapping[Value, Value],
        live: Value,
        ordered: bool = False,
    ) -> None:
        """Start the copies of a load, where ``live`` holds."""
        assert isinstance(load, Load)
        pointer, mask, _ = self.addresses(load, mapping)
        attributes = {
            "by": load.attributes[BY],
            "cache": load.cache,
            "eviction": load.eviction,
            "ordered": ordered,
        }
        masked = self.masked(builder, pointer, mask, live)
        self.create(builder, "simt.copy_start", [slot], [pointer], [masked], **attributes)

    def _commit(self, builder: Builder) -> Value:
        return self.create(builder, "simt.commit", result=COPIES).results[0]
