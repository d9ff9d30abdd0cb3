"""Deferred waits for asynchronous matmuls in pipelined loops.

A matmul in a pipelined loop that only adds to an accumulator is waited for in the next iteration,
after that iteration's matmul was started: one is always in flight. The same holds for the last of
several matmuls if its result is read only after the next iteration has waited for its first matmul:
matmuls complete in order, and the one wait is for both.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.types import TileType
from tilewright.simt.analysis.shared_views import renames
from tilewright.simt.dialect.attributes import is_made_in
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops.dot import PlannedDot
from tilewright.simt.dialect.pipeline_attributes import ALTERNATES, DEFERRED_WAIT
from tilewright.simt.dialect.types import MATMULS
from tilewright.simt.passes.allocate_tensor_memory import accumulated
from tilewright.simt.pipeline.pipelined_loop import PipelinedLoop, redirect
from tilewright.simt.pipeline.start_matmuls import held_by, start_and_wait, start_matmul, wait_for
from tilewright.simt.target.matmul_plan import REGISTERS
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A matmul of a loop that only adds to the loop-carried value number ``index``."""

    matmul: PlannedDot
    index: int


def accumulation(loop: For, target: SimtTarget) -> Accumulation | None:
    """Return the matmul of a loop whose wait can be deferred to the next iteration, if any.

    It is the loop's only asynchronous matmul and only adds to an accumulator that nothing else in
    the loop reads. No operand is overwritten before the next iteration's wait: none is in
    registers, and the loop's loads are read from their slots. One that threads stage in shared
    memory in each iteration has to alternate between two slots
    (:mod:`tilewright.simt.pipeline.alternating_operands`).
    """
    matmuls = _asynchronous(loop, target)
    if len(matmuls) != 1:
        return None
    (matmul,) = matmuls
    if held_by(matmul, target):
        return None
    index = accumulated(matmul)
    return None if index is None else Accumulation(matmul, index)


@dataclass(frozen=True, slots=True)
class Trailing:
    """The last matmul of a loop, with a deferred wait, and the first matmul.

    The loop carries the last one's result as number ``index``; nothing reads it before the first
    matmul has completed.
    """

    matmul: PlannedDot
    first: PlannedDot
    index: int


def trailing_matmul(loop: For, target: SimtTarget) -> Trailing | None:
    """Return the last of several asynchronous matmuls, if its wait can be deferred.

    The loop only carries its result. Readers of the result, and all writes of the registers that
    the matmul reads, come after the first matmul of the next iteration.
    """
    (body,) = loop.regions
    matmuls = _asynchronous(loop, target)
    last = body.terminator
    assert last is not None
    if len(matmuls) < 2 or any(
        isinstance(operation, PlannedDot) and operation not in matmuls for operation in body
    ):
        return None
    first, matmul = matmuls[0], matmuls[-1]
    result = matmul.results[0]
    if set(result.uses) != {last} or result.uses[last] != 1:
        return None
    index = next(number for number, operand in enumerate(last.operands) if operand is result)
    before = set()
    for operation in body:
        before.add(operation)
        if operation is first:
            break
    readers = [_of_region(body, user) for user in body.arguments[1 + index].uses]
    early = any(_is_written_by(operand, before, body) for operand in held_by(matmul, target))
    return (
        None
        if early or any(reader in before for reader in readers)
        else Trailing(matmul, first, index)
    )


@dataclass(frozen=True, slots=True)
class Deferred:
    """A matmul that the next iteration waits for.

    Attributes:
        index: the index of the loop-carried value that it computes.
        earlier: the loop-carried token of the previous iteration's matmul, and its operands in
            registers.
        following: the same of this iteration, which the loop has to yield for them.
    """

    index: int
    earlier: list[Value]
    following: list[Value]

    def after_wait(self, loop: PipelinedLoop) -> Builder:
        """Return a builder behind the wait for the previous iteration's matmul."""
        (waiting,) = self.earlier[0].uses
        assert waiting.next is not None
        return Builder(loop.body, waiting.next, loop.loop.location)

    def settle(self, loop: PipelinedLoop) -> Builder:
        """Wait for the last iteration's matmul after the loop; return a builder after the wait."""
        result = loop.loop.results[self.index]
        readers, builder = list(result.uses), loop.behind
        token, *held = loop.results_of(self.earlier)
        (settled,) = wait_for(builder, [token], [result], held=held)
        redirect(readers, result, settled)
        return builder


def defer_wait(loop: PipelinedLoop) -> Deferred | None:
    """Defer the wait for a matmul of the loop to the next iteration, if it can be."""
    found = accumulation(loop.loop, loop.target)
    if found is not None and (
        ALTERNATES in found.matmul.attributes
        or not _reads_what_is_staged(found.matmul, loop.loop, loop.target)
    ):
        return _overlap(loop, found)
    last = trailing_matmul(loop.loop, loop.target)
    if (
        last is None
        or not last.matmul.attributes.pop(DEFERRED_WAIT, False)
        or _reads_what_is_staged(last.matmul, loop.loop, loop.target)
    ):
        return None
    return _trail(loop, last)


def _overlap(loop: PipelinedLoop, found: Accumulation) -> Deferred:
    """Wait for the previous iteration's matmul right after the start of this one."""
    tile, token = start_matmul(found.matmul)
    earlier = loop.carry(_no_matmul(loop.before))
    wait_for(Builder.at(found.matmul), [earlier], [])
    found.matmul.results[0].replace_all_uses(tile)
    found.matmul.erase()
    return Deferred(found.index, [earlier], [token])


def _trail(loop: PipelinedLoop, found: Trailing) -> Deferred:
    """Wait for the previous iteration's last matmul together with the first one of this one."""
    held, before = held_by(found.matmul, loop.target), loop.before
    tile, token = start_matmul(found.matmul)
    earlier = [
        loop.carry(_no_matmul(before)),
        *(loop.carry(_zeros_like(before, value)) for value in held),
    ]
    found.matmul.results[0].replace_all_uses(tile)
    found.matmul.erase()
    _, waiting = start_and_wait(found.first, loop.target)
    carried = loop.body.arguments[1 + found.index]
    readers = [user for user in carried.uses if user is not waiting]
    ended, settled = wait_for(
        Builder.at(waiting),
        [*waiting.tokens, earlier[0]],
        [*waiting.tiles, carried],
        held=[*waiting.held, *earlier[1:]],
    )
    waiting.results[0].replace_all_uses(ended)
    waiting.erase()
    redirect(readers, carried, settled)
    return Deferred(found.index, earlier, [token, *held])


def _no_matmul(builder: Builder) -> Value:
    """Create a token for an empty group of matmuls."""
    return builder.create(SIMT_TABLE["simt.commit"], [], {}, (MATMULS,)).results[0]


def _zeros_like(builder: Builder, tile: Value) -> Value:
    """Create a tile of zeros with the type and layout of another tile."""
    found: Value = builder.constant_like(tile.type, 0)
    found.layout = tile.layout
    return found


def _asynchronous(loop: For, target: SimtTarget) -> list[PlannedDot]:
    return [
        operation
        for operation in loop.body
        if isinstance(operation, PlannedDot) and plan_of(operation, target).asynchronous
    ]


def _is_written_by(operand: Value, before: set[Operation], body: Region) -> bool:
    """Return whether an operation of a set, or the next iteration, writes a tile's registers."""
    definition = operand.definition
    while definition is not None and renames(definition):
        operand = definition.x
        definition = operand.definition
    return operand.owner is body if definition is None else definition in before


def _reads_what_is_staged(matmul: PlannedDot, loop: For, target: SimtTarget) -> bool:
    """Return whether a matmul reads an operand that is staged anew in each iteration.

    Threads stage the operand in shared memory. The loop's loads are read from their slots.
    """
    reads = plan_of(matmul, target).reads
    return any(
        isinstance(operand.type, TileType)
        and reads[position] != REGISTERS
        and is_made_in(operand, loop)
        for position, operand in enumerate((matmul.a, matmul.b))
    )


def _of_region(region: Region, operation: Operation) -> Operation:
    """Return the operation of a region that is, or contains, another one."""
    while operation.parent is not region:
        owner = operation.parent.owner if operation.parent is not None else None
        assert isinstance(owner, Operation)
        operation = owner
    return operation
