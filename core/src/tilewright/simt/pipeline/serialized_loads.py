"""Serialized loads through registers, for threads with few registers.

Only a part of the next iteration's loads is in flight at a time: one starts at the top of the body
and is stored between matmuls, or between the K steps of one, where the next load starts
(:mod:`.register_budget`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.simt.dialect.ops.buffers import SharedView
from tilewright.simt.dialect.ops.dot import PlannedDot
from tilewright.simt.dialect.pipeline_attributes import Ahead
from tilewright.simt.dialect.types import SlotType
from tilewright.simt.pipeline.k_steps import step_fragments, step_of
from tilewright.simt.pipeline.pipelined_loop import PipelinedLoop
from tilewright.simt.target.plan_selection import plan_of


def turns(
    loop: PipelinedLoop, filled: Sequence[Value], top: Builder, end: Builder
) -> Iterator[tuple[Builder, Builder, list[Ahead]]]:
    """Yield (start of loads, place of their stores, the loads) of each serialized group.

    All but the last group are stored between matmuls that read slots, after the barrier of the
    iteration.
    """
    pieces = _pieces(loop, filled)
    count = max(1, min(len(pieces), len(loop.loads)))
    places = [
        top,
        *(Builder.at(pieces[len(pieces) * turn // count]) for turn in range(1, count)),
        end,
    ]
    for turn, (start, stop) in enumerate(itertools.pairwise(places)):
        yield (
            start,
            stop,
            loop.loads[len(loop.loads) * turn // count : len(loop.loads) * (turn + 1) // count],
        )


def _pieces(loop: PipelinedLoop, filled: Sequence[Value]) -> list[Operation]:
    """Return the first operations of the matmuls that read slots, in order.

    If there are fewer matmuls than loads, each is split along K.
    """
    matmuls = [
        one
        for one in loop.body
        if isinstance(one, PlannedDot)
        and any(_is_read(operand, filled) for operand in one.operands)
    ]
    return [
        piece
        for matmul in matmuls
        for piece in _cut(loop, matmul, -(-len(loop.loads) // len(matmuls)))
    ]


def _is_read(operand: Value, filled: Sequence[Value]) -> bool:
    view = operand.definition
    return operand in filled or (isinstance(view, SharedView) and view.x in filled)


def _cut(loop: PipelinedLoop, matmul: PlannedDot, parts: int) -> list[Operation]:
    """Write a matmul step by step along K, if possible, and group the steps into ``parts``.

    Returns the first operation of each part; there are at most as many parts as steps.
    """
    plan = plan_of(matmul, loop.target)
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
        fragments = step_fragments(loop, builder, matmul, (matmul.a, matmul.b), first)
        begin = fragments[0].definition
        assert begin is not None
        steps.append(begin)
        total = step_of(loop, builder, matmul, fragments, total)
    matmul.results[0].replace_all_uses(total)
    matmul.erase()
    return list(dict.fromkeys(steps[len(steps) * part // parts] for part in range(parts)))
