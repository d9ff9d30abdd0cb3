"""Lowering of matmuls whose accumulator is in tensor memory.

One thread issues such a matmul, and its completion arrives on an mbarrier
(:class:`~tilewright.simt.target.matmul_plan.TensorMemoryAccumulator` describes the accumulator).

    %c = simt.dot %a, %b, %x

becomes

    simt.accumulator_store %accumulator, %x (unless it is zero; then the matmul does not add)
    barrier
    simt.dot_into %a, %b, %accumulator, %adds
    simt.arrive_after %ended, 0
    simt.await %ended, 0, %phase
    %c = simt.accumulator_load %accumulator

All such matmuls of a kernel use the same columns of tensor memory, one after the other. A matmul
that only accumulates into a loop-carried value has columns of its own, where its accumulator stays
for the whole loop: it is written before the loop and read after it. The loop then carries a flag
that says whether the accumulator was written.

A matmul of a back-to-back chain that is issued in one place and waited for in another
(``simt.dot_start``, ``simt.wait``) has columns and an mbarrier of its own, shared with its copies:
the one in the loop, and the one after the loop, which completes the last iteration. If both only
accumulate into the loop-carried value, the accumulator stays in tensor memory until the latter.

Loops pipelined with TMA copies contain such matmuls already
(:mod:`tilewright.simt.pipeline.resident_accumulator`), with the mbarriers of their slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.errors import OutOfResources
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.control import For
from tilewright.ir.types import I1, I32
from tilewright.passes.dce import dce_function
from tilewright.passes.rewriter import constant_of, is_positive_zero
from tilewright.simt.dialect.attributes import ACCUMULATOR_INDEX, function_of, part_of
from tilewright.simt.dialect.loop_carried import operations_of_program, terminator
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.dot import DotStart, TileMatmul
from tilewright.simt.dialect.ops.tensor_memory import Accumulators
from tilewright.simt.dialect.types import AccumulatorType, BarriersType
from tilewright.simt.passes.ssa_repair import carry_in_for, thread_values, yield_more
from tilewright.simt.target.matmul_plan import TensorMemoryAccumulator, matmul_of, step_attributes
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget, required
from tilewright.simt.target.tma_mechanism import create

#: Name of the resource in out-of-resources errors.
ACCUMULATORS: Final = "memory for accumulators"


# ---- helpers that the expansion of pipelined loops uses as well


def accumulator_of(matmul: Operation, target: SimtTarget) -> TensorMemoryAccumulator | None:
    """Return the tensor-memory accumulator of a matmul; None if it accumulates in registers."""
    return plan_of(matmul, target).accumulator if isinstance(matmul, TileMatmul) else None


def accumulated(matmul: TileMatmul) -> int | None:
    """Return the index of the loop-carried value that a matmul only accumulates into.

    None if there is none, or if anything else in the loop reads it.
    """
    body = matmul.parent
    assert body is not None
    loop, accumulator, result = body.owner, matmul.c, matmul.results[0]
    if (
        not isinstance(loop, For)
        or accumulator.owner is not body
        or accumulator.index == 0
        or len(accumulator.uses) != 1
    ):
        return None
    last, index = body.terminator, accumulator.index - 1
    assert last is not None
    return (
        index
        if set(result.uses) == {last} and result.uses[last] == 1 and last.operands[index] is result
        else None
    )


def new_place(matmul: TileMatmul, target: SimtTarget, first: int | None = None) -> Value:
    """Allocate tensor memory for the accumulator of a matmul, at its own or at a given column.

    The function takes memory for it where it begins.
    """
    function, found = function_of(matmul), accumulator_of(matmul, target)
    assert found is not None
    memory = _memory(function)
    if memory is None:
        builder = Builder(function.body, function.body.first, matmul.location)
        made = create(builder, "simt.accumulators", result=I32, units=0)
        assert isinstance(made, Accumulators)
        memory = made
    if first is None:
        first = memory.units
    memory.attributes["units"] = max(memory.units, first + found.units)
    type_ = matmul.results[0].type
    builder = Builder(memory.parent, memory.next, matmul.location)
    return create(
        builder,
        "simt.accumulator",
        [memory.results[0]],
        result=AccumulatorType(type_.shape, type_.element),  # type: ignore[attr-defined]
        first=first,
    ).results[0]


def _memory(function: Function) -> Accumulators | None:
    """Return the function's allocation of tensor memory, if there is one."""
    return next(
        (operation for operation in function.body if isinstance(operation, Accumulators)), None
    )


def starts_at_zero(value: Value) -> bool:
    """Return whether an accumulator is known to start at zero."""
    return is_positive_zero(constant_of(value))


def write_accumulator(
    builder: Builder, place: Value, accumulator: Value, matmul: TileMatmul, target: SimtTarget
) -> None:
    """Write an accumulator to tensor memory, by all threads."""
    create(builder, "simt.accumulator_store", [place], [accumulator], **_described(matmul, target))


def read_accumulator(
    builder: Builder, place: Value, there: Value | None, matmul: TileMatmul, target: SimtTarget
) -> Value:
    """Read an accumulator from tensor memory, by all threads; zeros where nothing was written."""
    type_ = place.type
    assert isinstance(type_, AccumulatorType)
    made = create(
        builder,
        "simt.accumulator_load",
        [place],
        [] if there is None else [there],
        **_described(matmul, target),
    ).results[0]
    made.layout = plan_of(matmul, target).c
    return made


def start_into(
    builder: Builder, matmul: TileMatmul, place: Value, adds: Value, barriers: Value, index: Value
) -> None:
    """Issue a matmul into tensor memory; its completion arrives on an mbarrier."""
    known = {
        "plan": matmul.plan,
        "precision": matmul.precision,
        "max_imprecise": matmul.max_imprecise,
    }
    create(builder, "simt.dot_into", [matmul.a], [matmul.b], [place], [adds], **known)
    create(builder, "simt.arrive_after", [barriers], [index])


def _described(matmul: TileMatmul, target: SimtTarget) -> dict[str, object]:
    return step_attributes(matmul_of(matmul), plan_of(matmul, target))


# ---- the stage


def write_accumulators(function: Function, target: SimtTarget) -> None:
    """Lower the matmuls of a function whose accumulator is in tensor memory.

    Raises:
        OutOfResources: the machine has less of it.
    """
    if target.tensor_memory is None:
        return
    matmuls = [
        operation
        for operation in operations_of_program(function.body)
        if isinstance(operation, TileMatmul)
    ]
    found = [operation for operation in matmuls if accumulator_of(operation, target) is not None]
    started = [operation for operation in found if isinstance(operation, DotStart)]
    if started:
        _Started(function, started, target).run()
    if len(found) > len(started):
        _Matmuls(
            function, [operation for operation in found if operation not in started], target
        ).run()
    if found:
        dce_function(function)
    _take_and_give_back(function, target)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Matmul whose accumulator stays in tensor memory while its loop runs.

    ``index`` is the number of the loop-carried value that it replaces.
    """

    loop: For
    index: int
    place: Value
    adds: Value


class _Matmuls:
    """Lowering of matmuls that are waited for where they are issued.

    Attributes:
        ended: an mbarrier for those that are waited for one by one, in the order of the parts that
            they are in.
    """

    def __init__(self, function: Function, found: Sequence[TileMatmul], target: SimtTarget) -> None:
        self.function, self.found, self.target = function, found, target
        #: partitions that contain matmuls; None stands for the program itself
        self.parts = list(dict.fromkeys(part_of(matmul) for matmul in found))

    def run(self) -> None:
        start = Builder(self.function.body, self.function.body.first, self.found[0].location)
        self.ended = create(
            start, "simt.barriers", result=BarriersType(len(self.parts)), count=1
        ).results[0]
        false = start.constant(value=False, result=I1)
        kept = {matmul: found for matmul in self.found if (found := self._keep(matmul)) is not None}
        others = [matmul for matmul in self.found if matmul not in kept]
        self.same_threads = len({plan_of(matmul, self.target).c for matmul in others}) == 1
        shared = new_first(self.function)
        places = {matmul: new_place(matmul, self.target, shared) for matmul in others}
        for number, part in enumerate(self.parts):
            region: Region = part.regions[0] if part is not None else self.function.body
            mine = [matmul for matmul in self.found if part_of(matmul) is part]

            def update(
                matmul: TileMatmul, values: tuple[Value, ...], number: int = number
            ) -> list[Value]:
                (phase,) = values
                builder = Builder.at(matmul)
                if matmul in kept:
                    self._add(matmul, kept[matmul], number, phase)
                else:
                    self._compute(matmul, places[matmul], number, phase)
                flipped: Value = builder.xor(phase, builder.constant(value=True, result=I1))
                matmul.erase()
                return [flipped]

            thread_values(region, mine, [false], update)

    def _keep(self, matmul: TileMatmul) -> _Kept | None:
        """Keep the accumulator of a matmul in tensor memory for its whole loop.

        Applies if the loop only accumulates into it. The loop then carries a flag that says whether
        the accumulator was written, in place of the accumulator.
        """
        index = accumulated(matmul)
        if index is None:
            return None
        body = matmul.parent
        assert body is not None and isinstance(body.owner, For)
        loop = body.owner
        place, before = new_place(matmul, self.target), Builder.at(loop)
        init, readers = loop.inits[index], list(loop.results[index].uses)
        fresh = starts_at_zero(init)
        if not fresh:
            write_accumulator(before, place, init, matmul, self.target)
        before.barrier()
        adds = carry_in_for(loop, before.constant(value=not fresh, result=I1))
        yield_more(body, [Builder.at(terminator(body)).constant(value=True, result=I1)])
        after = Builder(loop.parent, loop.next, loop.location)
        tile = read_accumulator(
            after, place, loop.results[-1] if fresh else None, matmul, self.target
        )
        _replace(loop.results[index], readers, tile)
        return _Kept(loop, index, place, adds)

    def _add(self, matmul: TileMatmul, kept: _Kept, number: int, phase: Value) -> None:
        """Issue a matmul that accumulates onto the tile in tensor memory.

        The wait stands at the end of the iteration unless an operation before that may touch the
        matmul's operands.
        """
        builder, body = Builder.at(matmul), matmul.parent
        assert body is not None
        which = builder.constant(value=number, result=I32)
        start_into(builder, matmul, kept.place, kept.adds, self.ended, which)
        last, following = terminator(body), matmul.next
        while following is not None and following is not last and _is_idle(following):
            following = following.next
        waiting = Builder.at(last) if following is last else builder
        create(waiting, "simt.await", [self.ended], [which], [phase])
        last.set_operand(kept.index, body.arguments[1 + kept.index])

    def _compute(self, matmul: TileMatmul, place: Value, number: int, phase: Value) -> None:
        """Issue a matmul, and wait for its accumulator."""
        builder, accumulator = Builder.at(matmul), matmul.c
        adds = not starts_at_zero(accumulator)
        if adds:
            if not self.same_threads:
                builder.barrier()  # other threads may still read the previous accumulator
            write_accumulator(builder, place, accumulator, matmul, self.target)
        builder.barrier()
        which = builder.constant(value=number, result=I32)
        start_into(
            builder, matmul, place, builder.constant(value=adds, result=I1), self.ended, which
        )
        create(builder, "simt.await", [self.ended], [which], [phase])
        matmul.results[0].replace_all_uses(
            read_accumulator(builder, place, None, matmul, self.target)
        )


@dataclass(frozen=True, slots=True)
class _Carried:
    """Matmul that only accumulates into loop-carried value ``index``, and its copy after the loop.

    The copy continues from the loop's result.
    """

    loop: For
    index: int
    inside: DotStart
    behind: DotStart


class _Started:
    """Lowering of back-to-back matmuls, whose issue and wait are two operations of one region."""

    def __init__(self, function: Function, started: Sequence[DotStart], target: SimtTarget) -> None:
        self.function, self.started, self.target = function, started, target
        self.count = 1 + max(start.attributes[ACCUMULATOR_INDEX] for start in started)

    def run(self) -> None:
        beginning = Builder(self.function.body, self.function.body.first, self.started[0].location)
        ended = create(
            beginning, "simt.barriers", result=BarriersType(self.count), count=1
        ).results[0]
        false = beginning.constant(value=False, result=I1)
        waits = {_wait_for(start): start for start in self.started}
        places: dict[DotStart, Value] = {}
        for number in range(self.count):
            mine, first = (
                [start for start in self.started if start.attributes[ACCUMULATOR_INDEX] == number],
                new_first(self.function),
            )
            places.update((start, new_place(start, self.target, first)) for start in mine)

        adds = self._keep(places)

        def read(wait: Wait, phases: tuple[Value, ...]) -> list[Value]:
            start, builder = waits[wait], Builder.at(wait)
            number = start.attributes[ACCUMULATOR_INDEX]
            create(
                builder,
                "simt.await",
                [ended],
                [builder.constant(value=number, result=I32)],
                [phases[number]],
            )
            if wait.results[0].uses:
                wait.results[0].replace_all_uses(
                    read_accumulator(builder, places[start], None, start, self.target)
                )
            flipped = builder.xor(phases[number], builder.constant(value=True, result=I1))
            wait.erase()
            return [
                flipped if position == number else phase for position, phase in enumerate(phases)
            ]

        (part,) = {part_of(start) for start in self.started}
        region = part.regions[0] if part is not None else self.function.body
        thread_values(region, list(waits), [false] * self.count, read)
        for start, place in places.items():
            builder, accumulator = Builder.at(start), start.c
            if start not in adds:
                adds[start] = builder.constant(value=not starts_at_zero(accumulator), result=I1)
                if not starts_at_zero(accumulator):
                    write_accumulator(builder, place, accumulator, start, self.target)
            builder.barrier()
            which = builder.constant(value=start.attributes[ACCUMULATOR_INDEX], result=I32)
            start_into(builder, start, place, adds[start], ended, which)
            start.erase()

    def _keep(self, places: Mapping[DotStart, Value]) -> dict[DotStart, Value]:
        """Keep accumulators in tensor memory over loops that only accumulate into them.

        Such a loop carries a flag that says whether the accumulator was written. Return, for each
        of these matmuls, the flag that says whether it accumulates.
        """
        adds: dict[DotStart, Value] = {}
        for one in filter(None, map(_carried_by, self.started)):
            before, body = Builder.at(one.loop), one.loop.body
            init = one.loop.inits[one.index]
            fresh = starts_at_zero(init)
            if not fresh:
                write_accumulator(before, places[one.inside], init, one.inside, self.target)
            adds[one.inside] = carry_in_for(one.loop, before.constant(value=not fresh, result=I1))
            yield_more(body, [Builder.at(terminator(body)).constant(value=True, result=I1)])
            adds[one.behind] = one.loop.results[-1]
            terminator(body).set_operand(one.index, body.arguments[1 + one.index])
        return adds


def _carried_by(start: DotStart) -> _Carried | None:
    """Return the loop that carries a chain's accumulator, if nothing else reads that value."""
    body, accumulator, result = start.parent, start.c, _wait_for(start).results[0]
    assert body is not None
    loop = body.owner
    if (
        not isinstance(loop, For)
        or accumulator.owner is not body
        or accumulator.index == 0
        or len(accumulator.uses) != 1
    ):
        return None
    last, index = terminator(body), accumulator.index - 1
    if set(result.uses) != {last} or result.uses[last] != 1 or last.operands[index] is not result:
        return None
    readers = list(loop.results[index].uses)
    if (
        len(readers) != 1
        or not isinstance(reader := readers[0], DotStart)
        or reader.attributes.get(ACCUMULATOR_INDEX) != start.attributes[ACCUMULATOR_INDEX]
    ):
        return None
    return _Carried(loop, index, start, reader) if reader.c is loop.results[index] else None


def _wait_for(start: DotStart) -> Wait:
    """Return the wait for a matmul of a chain."""
    tile, token = start.results
    (waiting,) = token.uses
    assert set(tile.uses) == {waiting} and isinstance(waiting, Wait) and len(waiting.operands) == 2
    return waiting


def new_first(function: Function) -> int:
    """Return the first tensor-memory column that no accumulator of a function occupies."""
    memory = _memory(function)
    return memory.units if memory is not None else 0


def _is_idle(operation: Operation) -> bool:
    """Return whether an operation is pure and computes scalars alone."""
    return (
        operation.spec.pure
        and not operation.regions
        and all(result.layout is None for result in operation.results)
    )


def _replace(value: Value, readers: Sequence[Operation], other: Value) -> None:
    """Replace a value in some of its users."""
    for reader in readers:
        for position, operand in enumerate(reader.operands):
            if operand is value:
                reader.set_operand(position, other)


def _take_and_give_back(function: Function, target: SimtTarget) -> None:
    """Deallocate the function's tensor memory at its end."""
    memory = _memory(function)
    if memory is None:
        return
    columns = required(target.tensor_memory, target, "tensor memory").columns
    if memory.units > columns:
        raise OutOfResources(memory.units, columns, ACCUMULATORS)
    last = terminator(function.body)
    function.body.insert_before(
        Operation(TABLE["barrier"], (), (), {}, (), location=last.location), last
    )
    create(Builder.at(last), "simt.free_accumulators", [memory.results[0]])
