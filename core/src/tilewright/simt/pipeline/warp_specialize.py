"""Warp specialization of loops with TMA copies: a producer and a consumer partition.

    S slots of shared memory for each load; S mbarriers ``full``, S mbarriers ``empty``
    partition
        part "load": the whole program without its effects, down to the addresses of its loads
            for each iteration, in one warp:
                wait until its slot is empty; expect and start its copies at ``full``
        part "math": the program
            for each iteration:
                wait for ``full``; ... the body, which reads the slot
                each warp arrives at ``empty``

Slot and parity continue from one run of the loop to the next, so that the producer already
prefetches for the next tile of a persistent kernel while the consumer is in the epilogue of this
one. Where the matmul is asynchronous and only adds to an accumulator, its slot is released one
iteration later; where its accumulator is in tensor memory, by the matmul itself when it has
completed.

A descriptor that the producer makes anew in a loop replaces the previous one: all copies that were
started have arrived before that, and also before the end of the partition.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.control import For, If, While
from tilewright.ir.table import Effect
from tilewright.ir.types import I1, I32, TileType
from tilewright.passes.clone import clone_operation
from tilewright.passes.effects import effects_of
from tilewright.simt.dialect.attributes import PROGRAMS, WARPS, function_of
from tilewright.simt.dialect.loop_carried import CARRIERS, all_carried, is_repeated, terminator
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops.warp_specialize import Part
from tilewright.simt.dialect.pipeline_attributes import selected
from tilewright.simt.passes.ssa_repair import thread_values
from tilewright.simt.pipeline.defer_matmul_wait import Accumulation, accumulation, kept_sums
from tilewright.simt.pipeline.expand_tma import BlockRing
from tilewright.simt.target.simt_target import SimtTarget, required

LOAD, MATH = "load", "math"


def is_separable(loop: For) -> bool:
    """Return whether a producer can compute a loop's loads and trip count from scalars alone.

    The computation must not depend on anything that the program loads or writes.
    """
    function = function_of(loop)
    if any(_has_effect(operation) and _decides(operation) for operation in function.walk()):
        return False
    carried = all_carried(function)
    work = [operand for load in selected(loop) for operand in load.operands]
    around = [loop, *loop.ancestors()]
    for operation in around:
        if not isinstance(operation, For | If):
            return False
        work += operation.operands[: 3 if isinstance(operation, For) else 1]
    seen: set[Value] = set()
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value.type, TileType):
            return False
        owner = value.owner
        if value in carried:
            one = carried[value]
            if isinstance(one.operation, While):
                return False
            work += [
                *one.incoming(),
                *one.operation.operands[: 3 if isinstance(one.operation, For) else 1],
            ]
        elif isinstance(owner, Operation):
            if not owner.spec.pure or owner.regions:
                return False
            work += owner.operands
        elif isinstance(owner.owner, Operation):  # a loop's counter
            assert isinstance(owner.owner, For)
            work += [owner.owner.lower, owner.owner.upper, owner.owner.step]
    return True


def _has_effect(operation: Operation) -> bool:
    """Return whether an operation has effects that only the consumer may have."""
    return (
        not isinstance(operation, CARRIERS)
        and not operation.spec.terminator
        and bool(effects_of(operation) & (Effect.WRITE | Effect.ORDER))
    )


def _decides(operation: Operation) -> bool:
    """Return whether control flow depends on an operation's results or carries them."""
    work, seen = list(operation.results), set(operation.results)
    while work:
        for user in work.pop().uses:
            if user.spec.terminator or isinstance(user, CARRIERS):
                return True
            fresh = [result for result in user.results if result not in seen]
            seen.update(fresh)
            work += fresh
    return False


def expand_parts(loop: For, target: SimtTarget) -> None:
    """Warp-specialize the function of a loop into a producer and a consumer."""
    function = function_of(loop)
    (copy,), bodies, warps = divide([loop], target)
    before = Builder.at(next(iter(function.body)))
    loads, math = _Loads(copy, target), _Math(loop, target)
    buffers = [math.buffer(before, load) for load in math.loads]
    kept = kept_sums(loop, target)
    full, empty = (
        math.barriers(before, 1),
        math.barriers(before, warps[MATH] * math.givers() if kept is None else 1),
    )
    ended = None if kept is None else math.barriers(before, 1, 1)
    first = [math.number(before, 0, I32), before.constant(value=False, result=I1)]
    made = loads.made_descriptors()

    def update(place: Operation, values: tuple[Value, ...]) -> Sequence[Value]:
        if place is copy:
            return loads.run(values, buffers, full, empty)
        loads.drain(Builder.at(place), full, *values)
        return values

    last = thread_values(bodies[LOAD], [copy, *filter(is_repeated, made)], first, update)
    if made:
        loads.drain(Builder.at(terminator(bodies[LOAD])), full, *last)
    if kept is None or ended is None:
        thread_values(
            bodies[MATH],
            [loop],
            first,
            lambda place, values: math.run(values, buffers, full, empty),
        )
    else:
        # with the parity of the mbarrier at which a loop's matmuls arrive
        thread_values(
            bodies[MATH],
            [loop],
            [*first, first[1]],
            lambda place, values: math.run_kept(values, buffers, full, empty, ended, kept),
        )


def divide(
    loops: Sequence[For], target: SimtTarget
) -> tuple[list[For], dict[str, Region], dict[str, int]]:
    """Split a function into a producer and a consumer partition for some of its loops.

    Returns the copies of the loops in the producer, and the partitions' bodies and warps.
    """
    function = function_of(loops[0])
    for number, loop in enumerate(loops):
        loop.attributes[_MARK] = number
    bodies = _divide(function)
    copies = sorted(
        (one for one in bodies[LOAD].walk() if isinstance(one, For) and _MARK in one.attributes),
        key=lambda one: one.attributes[_MARK],
    )
    for operation in (*loops, *copies):
        del operation.attributes[_MARK]
    last = function.body.terminator
    assert last is not None
    specialization = required(target.warp_specialization, target, "warp specialization")
    warps = {MATH: function.attributes[WARPS], LOAD: specialization.warp_multiple}
    function.attributes[WARPS] = sum(warps.values())
    registers = specialization.registers(warps, function.attributes.get(PROGRAMS, 1))
    parts = Region()
    for name, count in warps.items():
        bodies[name].append(_end())
        parts.append(
            Operation(
                SIMT_TABLE["simt.part"],
                (),
                (),
                {"name": name, "warps": count, "registers": registers.get(name, 0)},
                (),
                [bodies[name]],
                loop.location,
            )
        )
    parts.append(_end())
    function.body.insert_before(
        Operation(SIMT_TABLE["simt.partition"], (), (), {}, (), [parts], loop.location), last
    )
    return copies, bodies, warps


def _end() -> Operation:
    return Operation(TABLE["yield"], (), (0,), {}, ())


#: Attribute that identifies the copies of loops, by number.
_MARK = "simt.divided"


def _divide(function: Function) -> dict[str, Region]:
    """Move a function's body to the consumer, and copy it without effects to the producer.

    The terminator stays in the function.
    """
    load, math = Region(), Region()
    mapping: dict[Value, Value] = {}
    for operation in function.body:
        if not operation.spec.terminator:
            load.append(clone_operation(operation, mapping))
    for operation in function.body:
        if not operation.spec.terminator:
            operation.move_to_end(math)
    _without_effects(load)
    return {LOAD: load, MATH: math}


def _without_effects(region: Region) -> None:
    for operation in reversed(list(region)):
        if isinstance(operation, CARRIERS):
            for inner in operation.regions:
                _without_effects(inner)
        elif _has_effect(operation):
            # readers of a result have no effect, and are erased as well
            _forget(operation)


def _forget(operation: Operation) -> None:
    """Erase an operation and all operations that depend on it."""
    for result in operation.results:
        for user in list(result.uses):
            if user.spec.terminator or isinstance(user, CARRIERS):
                raise AssertionError(
                    f"{operation.name} at {operation.location} decides what {user.name} does"
                )
            _forget(user)
    if operation.parent is not None:
        operation.erase()


class _Loads(BlockRing):
    """The producer's loop."""

    def run(
        self, values: tuple[Value, ...], buffers: list[Value], full: Value, empty: Value
    ) -> list[Value]:
        slot, phase = (self.carry(value) for value in values)
        place = Builder.at(self.loads[-1])
        passed = place.xor(phase, place.constant(value=True, result=I1))
        self.create(place, "simt.await", [empty], [slot], [passed], alone=True)
        self.start_blocks(
            place, [self.slot(place, buffer, slot) for buffer in buffers], full, slot, {}
        )
        _, following = self.neighbours(place, slot)
        self.yield_more([following, self.next_phase(place, following, phase)])
        return self.results_of([slot, phase])


class _Math(BlockRing):
    """The consumer's loop."""

    def run(
        self, values: tuple[Value, ...], buffers: list[Value], full: Value, empty: Value
    ) -> list[Value]:
        slot, phase = (self.carry(value) for value in values)
        top = Builder(self.body, self.body.first, self.loop.location)
        self.create(top, "simt.await", [full], [slot], [phase])
        previous, following = self.neighbours(top, slot)
        self.read([self.slot(top, buffer, slot) for buffer in buffers])
        found = accumulation(self.loop, self.target)
        after = Builder.at(self.last)
        if found is None:
            self.create(after, "simt.arrive", [empty], [slot], at_all=self.givers() > 1)
            self.yield_more([following, self.next_phase(after, following, phase)])
            self._release(Builder(self.loop.parent, self.loop.next, self.loop.location), buffers)
            return self.results_of([slot, phase])
        before = Builder.at(self.loop)
        earlier, token = self.overlap(found, before)
        running = self.carry(before.constant(value=False, result=I1))
        self.create(
            self.after_wait(earlier),
            "simt.arrive",
            [empty],
            [previous],
            [running],
            at_all=self.givers() > 1,
        )
        self.yield_more(
            [
                following,
                self.next_phase(after, following, phase),
                token,
                after.constant(value=True, result=I1),
            ]
        )
        ended = self.settle(found, [earlier])
        last, ran = self.results_of([slot, running])
        self.create(
            ended,
            "simt.arrive",
            [empty],
            [self.neighbours(ended, last)[0]],
            [ran],
            at_all=self.givers() > 1,
        )
        self._release(ended, buffers)
        return self.results_of([slot, phase])

    def run_kept(
        self,
        values: tuple[Value, ...],
        buffers: list[Value],
        full: Value,
        empty: Value,
        ended: Value,
        kept: Accumulation,
    ) -> list[Value]:
        """Write the loop of a matmul with its accumulator in tensor memory.

        One warp alone runs the loop.
        """
        slot, phase = (self.carry(value) for value in values[:2])
        parity = values[2]
        top = Builder(self.body, self.body.first, self.loop.location)
        self.create(top, "simt.await", [full], [slot], [phase], alone=True)
        _, following = self.neighbours(top, slot)
        self.read([self.slot(top, buffer, slot) for buffer in buffers])
        sums, after = self.keep(kept, empty, slot), Builder.at(self.last)
        self.yield_more(
            [
                following,
                self.next_phase(after, following, phase),
                after.constant(value=True, result=I1),
            ]
        )
        behind = self.settle_kept(sums, empty, slot, phase, ended, parity)
        self._release(behind, buffers)
        # a loop that did not run has completed no phase
        following, round_, ran = self.results_of([slot, phase, sums.running])
        return [following, round_, behind.xor(parity, ran)]

    def _release(self, builder: Builder, buffers: list[Value]) -> None:
        """Release the buffers after a loop that runs only once.

        All copies have then arrived and been read, and no more are started.
        """
        around = next(self.loop.ancestors(), None)
        if around is not None and isinstance(around, Part):
            for buffer in buffers:
                self.create(builder, "simt.release", [buffer])
