"""Ping-pong loops: one half of the warps computes matmuls while the other half reads.

An iteration has two phases, each followed by a barrier of all warps:

    reading:        start copies or loads of a later iteration; load all fragments of this one;
                    wait for the copies of the next one
    multiplying:    all steps of the matmul

The second half of the warps takes one extra barrier before the loop, so that it stays one phase
behind, and the first half takes one after the loop. If two warps, one of each half, share matrix
units and load units, neither waits for the other's.

With the first half in reading phase i at interval 2i between two barriers, the second half is in it
at interval 2i+1. So the data of iteration i has arrived once each warp has waited, in its reading
phase i-1, for its own part of the copies (the second half: at interval 2i-1); and the slot of
iteration i-1, which the second half reads at interval 2i-1, may be filled again from reading phase
i on. To wait only for copies that were started a whole iteration before, three iterations are in
flight: the one being multiplied, the one being waited for, and the one being started.

The barriers between dependent operations are those of the phases: the pass
:mod:`tilewright.simt.passes.insert_membar` inserts none, because its rules assume that all warps
meet at the same barrier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.ir.builder import Builder
from tilewright.ir.ops.control import For
from tilewright.ir.ops.debug import Assert, Print
from tilewright.ir.ops.memory import Barrier
from tilewright.simt.dialect.ops.dot import Multiplication, PlannedDot
from tilewright.simt.pipeline.k_steps import step_fragments, step_of
from tilewright.simt.pipeline.pipelined_loop import PipelinedLoop
from tilewright.simt.pipeline.shared_memory_budget import scratch_beside
from tilewright.simt.target.matmul_plan import matmul_of
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget

#: Minimum number of iterations in flight with ping-pong.
MIN_IN_FLIGHT: Final = 3


def can_alternate(loop: For, matmul: PlannedDot, target: SimtTarget) -> bool:
    """Return whether the target wants ping-pong in the loop over a matmul, and the loop allows it.

    Nothing else in the loop may need a barrier.
    """
    (body,) = loop.regions
    ping_pong = target.matrix.ping_pong
    if ping_pong is None or not ping_pong.serves(matmul_of(matmul)) or scratch_beside(loop, target):
        return False
    alone = (operation for operation in body if operation is not matmul)
    return not any(
        operation.regions or isinstance(operation, (Multiplication, Barrier | Print | Assert))
        for operation in alone
    )


def write_phases(
    loop: PipelinedLoop, matmul: PlannedDot, before_end: Callable[[Builder], None]
) -> None:
    """Write the two phases of an iteration of a matmul whose operands are in slots.

    ``before_end`` writes the end of the reading phase. The halves of the warps are one barrier
    apart in the loop, in front of which all warps meet.
    """
    plan = plan_of(matmul, loop.target)
    reading = Builder.at(matmul)
    steps = [
        step_fragments(loop, reading, matmul, (matmul.a, matmul.b), first)
        for first in range(0, plan.a.shape[-1], plan.k_step)
    ]
    before_end(reading)
    reading.barrier()
    loop.create(reading, "simt.phase", matmuls=True)
    result = matmul.c
    for fragments in steps:
        result = step_of(loop, reading, matmul, fragments, result)
    loop.create(reading, "simt.phase", matmuls=False)
    matmul.results[0].replace_all_uses(result)
    matmul.erase()
    loop.end.barrier()
    before = loop.before
    before.barrier()
    loop.create(before, "simt.stagger", later=True)
    loop.create(loop.behind, "simt.stagger", later=False)
