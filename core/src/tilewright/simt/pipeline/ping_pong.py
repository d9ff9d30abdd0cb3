"""Loops in which one half of the warps multiplies while the other half reads.

An iteration has two phases with a barrier of all warps behind each:

    reading:        start copies or loads of a later iteration; load all fragments of this one; wait for what the next one reads
    multiplying:    all steps of the matmul

Before the loop the later half of the warps meets one barrier more, so that it is one phase behind
in all of it, and after it the earlier half does. Where two warps share the units that multiply and
those that read memory, one of each half, neither waits for the other's.

With the earlier half in reading phase i at interval 2i between two barriers, the later half is
there at interval 2i+1. So what a warp reads in iteration i has arrived if each warp has waited, in
its reading phase i-1, for its own part of it (of the later half: at interval 2i-1); and the slot of
iteration i-1, which the later half reads at interval 2i-1, may be filled anew from reading phase i
on. For a wait to find that what it waits for was started a whole iteration before, there are three
iterations in flight: that which is multiplied, that which is waited for, that which is started.

The barriers that operations need between each other are those of the phases: none is put in
(:mod:`tilewright.simt.passes.insert_membar`), whose rules are for warps that meet at the same one.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ir.ops.control import For
from tilewright.simt.dialect.attributes import warps_of
from tilewright.simt.dialect.ops.dot import Dot, Multiplication
from tilewright.simt.dialect.types import slot_type
from tilewright.simt.pipeline.multibuffer import Ring
from tilewright.simt.pipeline.shared_memory_budget import scratch_beside
from tilewright.simt.target.fragments import fragment
from tilewright.simt.target.matmul_plan import matmul_of, step_attributes
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


def can_alternate(loop: For, matmul: Dot, target: SimtTarget) -> bool:
    """Return whether the target wants halves of the warps to alternate in the loop over a matmul,
    and nothing else in it needs threads to meet."""
    (body,) = loop.regions
    if not target.alternates(matmul_of(matmul)) or scratch_beside(loop, target):
        return False
    alone = (operation for operation in body if operation is not matmul)
    return not any(operation.regions or isinstance(operation, Multiplication) or operation.name in ("barrier", "print", "assert") for operation in alone)


def fragment_of(ring: Ring, builder: Builder, slot: Value, matmul: Dot, position: int, first: int) -> Value:
    """One step of an operand of a matmul, which begins at a coordinate along K."""
    plan = plan_of(matmul, ring.target)
    type_, layout = fragment(plan, position, slot_type(slot).element, warps_of(matmul), ring.target)
    attributes = step_attributes(matmul_of(matmul), plan)
    (result,) = ring.create(builder, "simt.fragment", [slot], result=type_, operand=position, first=first, **attributes).results
    result.layout = layout
    return result


def step_of(ring: Ring, builder: Builder, matmul: Dot, fragments: list[Value], accumulator: Value) -> Value:
    """One step of a matmul."""
    plan = plan_of(matmul, ring.target)
    attributes = step_attributes(matmul_of(matmul), plan)
    made = ring.create(builder, "simt.dot_step", *([value] for value in (*fragments, accumulator)), **attributes)
    made.results[0].layout = plan.c
    return made.results[0]


def write_phases(ring: Ring, matmul: Dot, before_end: Callable[[Builder], None]) -> None:
    """Write a matmul, whose operands are in slots, in the two phases of an iteration;
    ``before_end`` writes what the reading phase ends with. Halves are a barrier apart in the loop,
    in front of which all warps meet."""
    plan = plan_of(matmul, ring.target)
    reading = Builder.at(matmul)
    firsts = range(0, plan.a.shape[-1], plan.k_step)
    steps = [[fragment_of(ring, reading, slot, matmul, position, first) for position, slot in enumerate((matmul.a, matmul.b))] for first in firsts]
    before_end(reading)
    reading.barrier()
    ring.create(reading, "simt.phase", matmuls=True)
    result = matmul.c
    for fragments in steps:
        result = step_of(ring, reading, matmul, fragments, result)
    ring.create(reading, "simt.phase", matmuls=False)
    matmul.results[0].replace_all_uses(result)
    matmul.erase()
    Builder.at(ring.last).barrier()
    before = Builder.at(ring.loop)
    before.barrier()
    ring.create(before, "simt.stagger", later=True)
    after = Builder(ring.loop.parent, ring.loop.next, ring.loop.location)
    ring.create(after, "simt.stagger", later=False)
