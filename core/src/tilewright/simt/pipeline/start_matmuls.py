"""Starts of asynchronous matmuls, and waits for them.

A matmul is waited for where it is started, but in loops behind the starts of independent matmuls
(:mod:`.sink_matmul_waits`), or in the next iteration (:mod:`.defer_matmul_wait`). One that another
matmul continues is not waited for (:mod:`.chain_matmuls`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.types import TileType
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.dot import DotStart, PlannedDot
from tilewright.simt.pipeline.chain_matmuls import chain_matmuls
from tilewright.simt.pipeline.sink_matmul_waits import sink_matmul_waits
from tilewright.simt.target.matmul_plan import REGISTERS
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


def start_matmuls(function: Function, target: SimtTarget) -> bool:
    """Replace the asynchronous matmuls of a function by a start and a wait.

    Returns whether there was one.
    """
    waits = [
        start_and_wait(operation, target)[1]
        for operation in list(function.walk())
        if isinstance(operation, PlannedDot) and plan_of(operation, target).asynchronous
    ]
    sink_matmul_waits(chain_matmuls(waits))
    return bool(waits)


def start_and_wait(matmul: PlannedDot, target: SimtTarget) -> tuple[DotStart, Wait]:
    """Replace an asynchronous matmul by its start and the wait for it, and return both."""
    held = held_by(matmul, target)
    tile, token = start_matmul(matmul)
    (result,) = wait_for(
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


def start_matmul(matmul: PlannedDot) -> tuple[Value, Value]:
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


def wait_for(
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
