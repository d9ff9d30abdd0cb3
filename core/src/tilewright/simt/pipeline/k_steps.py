"""Matmuls of pipelined loops in steps along K, with fragments prefetched one step ahead.

Where a matmul is the last reader of the slots, and takes its operands from them alone, neither the
wait for copies nor the loads of fragments from shared memory nor the start of copies need stall the
matrix instructions:

    load the fragments of step 0 from slot 0
    for each iteration i:
        for each step but the last:
            load the fragments of the next step; start copies (their share); multiply
        wait until S-2 groups are in flight: the copies for i+1 have arrived; barrier
        load the fragments of step 0 from the slot of iteration i+1; multiply the last step

All fragments of slot i-1 are loaded before the barrier of iteration i-1, and the copies into it
start after. Where registers are short, nothing is loaded for the next iteration: the wait, the
barrier and the load of step 0 come first in each iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.simt.dialect.attributes import warps_of
from tilewright.simt.dialect.ops.dot import PlannedDot
from tilewright.simt.dialect.types import slot_type
from tilewright.simt.pipeline.pipelined_loop import PipelinedLoop
from tilewright.simt.pipeline.slot_reads import same_view
from tilewright.simt.target.fragments import fragment
from tilewright.simt.target.matmul_plan import matmul_of, step_attributes
from tilewright.simt.target.plan_selection import plan_of


def write_k_steps(
    loop: PipelinedLoop,
    matmul: PlannedDot,
    filled: Sequence[Value],
    early: tuple[Sequence[Value], Sequence[Value]] | None,
    start: Callable[[int, int], None],
    arrive: Callable[[], None],
    *,
    drains: bool,
) -> list[Value]:
    """Compute a matmul step by step; return the fragments that the next iteration begins with.

    Args:
        filled: the slots of this iteration.
        early: the slots of the first iteration and of the next one, if the fragments of step 0 are
            prefetched in the iteration before.
        start: called with the number of a step and of all: start the step's share of the copies.
        arrive: wait until the next iteration's slots may be read.
        drains: starting copies waits for reads of shared memory.
    """
    builder, plan = Builder.at(matmul), plan_of(matmul, loop.target)
    count, operands = plan.a.shape[-1] // plan.k_step, (matmul.a, matmul.b)

    def fragments(at: Builder, slots: Sequence[Value], step: int) -> list[Value]:
        found = [same_view(loop, at, operand, filled, slots) for operand in operands]
        return step_fragments(loop, at, matmul, found, step * plan.k_step)

    if early is None:
        current = fragments(builder, filled, 0)
    else:
        current = [loop.carry(value) for value in fragments(loop.before, early[0], 0)]
    accumulator = matmul.c
    for step in range(count):
        following: list[Value] = []
        if step + 1 == count:
            if early is not None:
                arrive()
                following = fragments(builder, early[1], 0)
            start(step, count)
        elif drains:
            # this step's fragments are waited for in any case, so copies that wait for reads come
            # first
            start(step, count)
            following = fragments(builder, filled, step + 1)
        else:
            following = fragments(builder, filled, step + 1)
            start(step, count)
        accumulator = step_of(loop, builder, matmul, current, accumulator)
        current = following
    matmul.results[0].replace_all_uses(accumulator)
    matmul.erase()
    return current


def step_fragments(
    loop: PipelinedLoop, builder: Builder, matmul: PlannedDot, slots: Sequence[Value], first: int
) -> list[Value]:
    """Create the fragments of a matmul's operands for the step that begins at ``first`` along K."""
    plan, found = plan_of(matmul, loop.target), []
    attributes = step_attributes(matmul_of(matmul), plan)
    for position, slot in enumerate(slots):
        element = slot_type(slot).element
        type_, layout = fragment(plan, position, element, warps_of(matmul), loop.target)
        (result,) = loop.create(
            builder,
            "simt.fragment",
            [slot],
            result=type_,
            operand=position,
            first=first,
            **attributes,
        ).results
        result.layout = layout
        found.append(result)
    return found


def step_of(
    loop: PipelinedLoop,
    builder: Builder,
    matmul: PlannedDot,
    fragments: list[Value],
    accumulator: Value,
) -> Value:
    """Create one step of a matmul."""
    plan = plan_of(matmul, loop.target)
    attributes = step_attributes(matmul_of(matmul), plan)
    made = loop.create(
        builder, "simt.dot_step", *([value] for value in (*fragments, accumulator)), **attributes
    )
    made.results[0].layout = plan.c
    return made.results[0]
