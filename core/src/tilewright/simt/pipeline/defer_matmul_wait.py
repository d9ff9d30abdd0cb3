"""Asynchronous matmuls, and deferred waits for them.

Outside pipelined loops a matmul is waited for as soon as it is started. A matmul in a pipelined
loop that only adds to an accumulator is waited for in the next iteration, after that iteration's
matmul was started: one is always in flight. The same holds for the last of several matmuls if its
result is read only after the next iteration has waited for its first matmul: matmuls complete in
order, and the one wait is for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.types import TileType
from tilewright.simt.analysis.shared_views import renames, views_of
from tilewright.simt.dialect.attributes import is_made_in
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.dot import DotStart, PlannedDot
from tilewright.simt.dialect.pipeline_attributes import selected, shared_layout
from tilewright.simt.dialect.types import MATMULS
from tilewright.simt.passes.allocate_tensor_memory import accumulated, accumulator_of
from tilewright.simt.target.matmul_plan import MULTIPLYING, REGISTERS
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


def start_matmuls(function: Function, target: SimtTarget) -> bool:
    """Replace the asynchronous matmuls of a function by a start and a wait.

    Returns whether there was one.
    """
    found = False
    for operation in list(function.walk()):
        if isinstance(operation, PlannedDot) and plan_of(operation, target).asynchronous:
            start_and_wait(operation, target)
            found = True
    return found


def start_and_wait(matmul: PlannedDot, target: SimtTarget) -> tuple[DotStart, Wait]:
    """Replace an asynchronous matmul by its start and the wait for it, and return both."""
    held = held_by(matmul, target)
    tile, token = start(matmul)
    (result,) = wait(
        Builder(matmul.parent, matmul.next, matmul.location),
        [token],
        [tile],
        matmul.results[0],
        held,
    )
    matmul.erase()
    started, waiting = token.definition, result.definition
    assert isinstance(started, DotStart) and isinstance(waiting, Wait)
    return started, waiting


def held_by(matmul: PlannedDot, target: SimtTarget) -> list[Value]:
    """Return the operands that a matmul reads from registers, to be kept until it is waited for."""
    plan = plan_of(matmul, target)
    return [
        operand
        for position, operand in enumerate((matmul.a, matmul.b))
        if plan.reads[position] == REGISTERS and isinstance(operand.type, TileType)
    ]


def start(matmul: PlannedDot) -> tuple[Value, Value]:
    """Start a matmul in place of computing it; return (the tile in flight, the token).

    The original matmul stays until the caller has replaced its result.
    """
    builder = Builder.at(matmul)
    made = builder.create(
        SIMT_TABLE["simt.dot_start"], [[operand] for operand in matmul.operands], matmul.attributes
    )
    tile, token = made.results
    tile.name, tile.layout = matmul.results[0].name, matmul.results[0].layout
    return tile, token


def wait(
    builder: Builder,
    tokens: list[Value],
    tiles: list[Value],
    readers: Value | None = None,
    held: Sequence[Value] = (),
) -> list[Value]:
    """Wait for tokens; return the tiles that may be read afterwards.

    The first of them replaces ``readers``. The registers of ``held`` are kept until the wait.
    """
    made = builder.create(SIMT_TABLE["simt.wait"], [tokens, tiles, held], {}).results
    for tile, before in zip(made, tiles, strict=True):
        tile.name, tile.layout = before.name, before.layout
    if readers is not None:
        readers.replace_all_uses(made[0])
    return made


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A matmul of a loop that only adds to the loop-carried value number ``index``."""

    matmul: PlannedDot
    index: int


def accumulation(loop: For, target: SimtTarget) -> Accumulation | None:
    """Return the matmul of a loop whose wait can be deferred to the next iteration, if any.

    It is the loop's only asynchronous matmul and only adds to an accumulator that nothing else in
    the loop reads. No operand is overwritten before the next iteration's wait: none is in
    registers, and none is staged in shared memory in each iteration. The loop's loads are read from
    their slots.
    """
    (body,) = loop.regions
    matmuls = [
        operation
        for operation in body
        if isinstance(operation, PlannedDot) and plan_of(operation, target).asynchronous
    ]
    last = body.terminator
    assert last is not None
    if len(matmuls) != 1:
        return None
    (matmul,) = matmuls
    if held_by(matmul, target) or reads_what_is_staged(matmul, loop, target):
        return None
    accumulator, result = matmul.c, matmul.results[0]
    if (
        accumulator.owner is not body
        or accumulator.index == 0
        or len(accumulator.uses) != 1
        or set(result.uses) != {last}
        or result.uses[last] != 1
    ):
        return None
    index = accumulator.index - 1
    return Accumulation(matmul, index) if last.operands[index] is result else None


def kept_sums(loop: For, target: SimtTarget) -> Accumulation | None:
    """Return the only matmul of a loop, if its accumulator can stay in tensor memory throughout.

    It only adds to the accumulator, and reads both operands from the slots of the loop's loads,
    which nothing else reads.
    """
    (body,) = loop.regions
    matmuls = [operation for operation in body if isinstance(operation, MULTIPLYING)]
    if (
        len(matmuls) != 1
        or not isinstance(matmul := matmuls[0], PlannedDot)
        or accumulator_of(matmul, target) is None
    ):
        return None
    index, plan, read = accumulated(matmul), plan_of(matmul, target), set[int]()
    for load in selected(loop):
        for view in views_of(load.results[0]):
            if any(user is not matmul and not renames(user) for user in view.value.uses):
                return None
            shared = view.shared(shared_layout(load))
            read |= {
                position
                for position, operand in enumerate((matmul.a, matmul.b))
                if operand is view.value and plan.can_read(position, shared)
            }
    return Accumulation(matmul, index) if index is not None and read == {0, 1} else None


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
    matmuls = [
        operation
        for operation in body
        if isinstance(operation, PlannedDot) and plan_of(operation, target).asynchronous
    ]
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


def _is_written_by(operand: Value, before: set[Operation], body: Region) -> bool:
    """Return whether an operation of a set, or the next iteration, writes a tile's registers."""
    definition = operand.definition
    while definition is not None and renames(definition):
        operand = definition.x
        definition = operand.definition
    return operand.owner is body if definition is None else definition in before


def reads_what_is_staged(matmul: PlannedDot, loop: For, target: SimtTarget) -> bool:
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


def no_matmul(builder: Builder) -> Value:
    """Create a token for an empty group of matmuls."""
    return builder.create(SIMT_TABLE["simt.commit"], [], {}, (MATMULS,)).results[0]
