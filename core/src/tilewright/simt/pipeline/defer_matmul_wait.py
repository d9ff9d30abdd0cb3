"""Asynchronous matmuls: each is started, and waited for where its result is read.

Outside of pipelined loops that is at once. A matmul in such a loop that only adds to an accumulator
is waited for in the next iteration, after that one's matmul was started: one is always in flight.
So is the last matmul of a chain whose result is read nowhere before the next iteration has waited
for its first matmul: matmuls end in order, and the one wait is for both.
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
from tilewright.simt.dialect.ops.dot import Dot, DotStart
from tilewright.simt.dialect.pipeline_attributes import selected, shared_layout
from tilewright.simt.dialect.types import MATMULS
from tilewright.simt.passes.allocate_tensor_memory import accumulated, accumulator_of
from tilewright.simt.target.matmul_plan import MULTIPLYING, REGISTERS
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


def start_matmuls(function: Function, target: SimtTarget) -> bool:
    """Start the matmuls of a function whose plans are asynchronous, and wait for each; whether
    there was one."""
    found = False
    for operation in list(function.walk()):
        if isinstance(operation, Dot) and plan_of(operation, target).asynchronous:
            start_and_wait(operation, target)
            found = True
    return found


def start_and_wait(matmul: Dot, target: SimtTarget) -> tuple[DotStart, Wait]:
    """Put (its start, the wait for it) in place of an asynchronous matmul."""
    held = held_by(matmul, target)
    tile, token = start(matmul)
    (result,) = wait(Builder(matmul.parent, matmul.next, matmul.location), [token], [tile], matmul.results[0], held)
    matmul.erase()
    started, waiting = token.definition, result.definition
    assert isinstance(started, DotStart) and isinstance(waiting, Wait)
    return started, waiting


def held_by(matmul: Dot, target: SimtTarget) -> list[Value]:
    """The operands that a matmul reads in registers: they are to stay there until a wait for it."""
    plan = plan_of(matmul, target)
    return [operand for position, operand in enumerate((matmul.a, matmul.b)) if plan.reads[position] == REGISTERS and isinstance(operand.type, TileType)]


def start(matmul: Dot) -> tuple[Value, Value]:
    """Start a matmul in place of computing it; (the tile in flight, the token).

    The matmul stays, for its readers to be given something else.
    """
    builder = Builder.at(matmul)
    made = builder.create(SIMT_TABLE["simt.dot_start"], [[operand] for operand in matmul.operands], matmul.attributes)
    tile, token = made.results
    tile.name, tile.layout = matmul.results[0].name, matmul.results[0].layout
    return tile, token


def wait(builder: Builder, tokens: list[Value], tiles: list[Value], readers: Value | None = None, held: Sequence[Value] = ()) -> list[Value]:
    """Wait for tokens; the tiles that may be read then, the first of which the readers of
    ``readers`` get. The registers of ``held`` are kept until then."""
    made = builder.create(SIMT_TABLE["simt.wait"], [tokens, tiles, held], {}).results
    for tile, before in zip(made, tiles, strict=True):
        tile.name, tile.layout = before.name, before.layout
    if readers is not None:
        readers.replace_all_uses(made[0])
    return made


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A matmul of a loop that only adds to what the loop carries as number ``index``."""

    matmul: Dot
    index: int


def accumulation(loop: For, target: SimtTarget) -> Accumulation | None:
    """The only asynchronous matmul of a loop whose loads are read from their slots, if it only adds
    to an accumulator that nothing else in the loop reads, and nothing that it reads is written anew
    before the wait of the next iteration: neither registers nor the place that an operand is put to
    in each one."""
    (body,) = loop.regions
    matmuls = [operation for operation in body if isinstance(operation, Dot) and plan_of(operation, target).asynchronous]
    last = body.terminator
    assert last is not None
    if len(matmuls) != 1:
        return None
    (matmul,) = matmuls
    if held_by(matmul, target) or reads_what_is_staged(matmul, loop, target):
        return None
    accumulator, result = matmul.c, matmul.results[0]
    if accumulator.owner is not body or accumulator.index == 0 or len(accumulator.uses) != 1 or set(result.uses) != {last} or result.uses[last] != 1:
        return None
    index = accumulator.index - 1
    return Accumulation(matmul, index) if last.operands[index] is result else None


def kept_sums(loop: For, target: SimtTarget) -> Accumulation | None:
    """The only matmul of a loop, if its plan has the accumulator in tensor memory, it only adds to
    them, and it reads both operands where the loop's loads put them, which nothing else reads."""
    (body,) = loop.regions
    matmuls = [operation for operation in body if isinstance(operation, MULTIPLYING)]
    if len(matmuls) != 1 or not isinstance(matmul := matmuls[0], Dot) or accumulator_of(matmul, target) is None:
        return None
    index, plan, read = accumulated(matmul), plan_of(matmul, target), set[int]()
    for load in selected(loop):
        for view in views_of(load.results[0]):
            if any(user is not matmul and not renames(user) for user in view.value.uses):
                return None
            shared = view.shared(shared_layout(load))
            read |= {position for position, operand in enumerate((matmul.a, matmul.b)) if operand is view.value and plan.can_read(position, shared)}
    return Accumulation(matmul, index) if index is not None and read == {0, 1} else None


@dataclass(frozen=True, slots=True)
class Trailing:
    """The last matmul of a loop, whose result the loop carries as number ``index``, and the first
    one, before whose end nothing reads that."""

    matmul: Dot
    first: Dot
    index: int


def trailing_matmul(loop: For, target: SimtTarget) -> Trailing | None:
    """The last asynchronous matmul of a loop of several, if the loop only carries what it gives,
    and what reads that comes after the first matmul of the next iteration, as does all that writes
    the registers it reads."""
    (body,) = loop.regions
    matmuls = [operation for operation in body if isinstance(operation, Dot) and plan_of(operation, target).asynchronous]
    last = body.terminator
    assert last is not None
    if len(matmuls) < 2 or any(isinstance(operation, Dot) and operation not in matmuls for operation in body):
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
    return None if early or any(reader in before for reader in readers) else Trailing(matmul, first, index)


def _is_written_by(operand: Value, before: set[Operation], body: Region) -> bool:
    """Return whether an operation of a set, or going on to the next iteration, writes the registers
    of a tile."""
    definition = operand.definition
    while definition is not None and renames(definition):
        operand = definition.x
        definition = operand.definition
    return operand.owner is body if definition is None else definition in before


def reads_what_is_staged(matmul: Dot, loop: For, target: SimtTarget) -> bool:
    """Return whether a matmul of a loop whose loads are read from their slots reads a place that
    threads put an operand to in each iteration."""
    reads = plan_of(matmul, target).reads
    return any(
        isinstance(operand.type, TileType) and reads[position] != REGISTERS and is_made_in(operand, loop)
        for position, operand in enumerate((matmul.a, matmul.b))
    )


def _of_region(region: Region, operation: Operation) -> Operation:
    """The operation of a region that is, or holds, another one."""
    while operation.parent is not region:
        owner = operation.parent.owner if operation.parent is not None else None
        assert isinstance(owner, Operation)
        operation = owner
    return operation


def no_matmul(builder: Builder) -> Value:
    """A token of matmuls of which there are none."""
    return builder.create(SIMT_TABLE["simt.commit"], [], {}, (MATMULS,)).results[0]
