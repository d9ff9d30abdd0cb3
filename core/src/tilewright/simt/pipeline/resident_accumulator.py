"""Accumulators that stay in tensor memory while a pipelined loop runs.

One thread starts such a matmul, and the matmul itself arrives at the mbarrier ``empty`` of its slot
when it has completed. Then one warp alone runs the loop, at its own pace; all others wait behind
the loop, at an mbarrier of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ir.ops.control import For
from tilewright.ir.types import I1, I32
from tilewright.simt.analysis.shared_views import renames, views_of
from tilewright.simt.dialect.ops.dot import PlannedDot
from tilewright.simt.dialect.pipeline_attributes import selected, shared_layout
from tilewright.simt.passes.allocate_tensor_memory import (
    accumulated,
    accumulator_of,
    new_place,
    read_accumulator,
    start_into,
    starts_at_zero,
    write_accumulator,
)
from tilewright.simt.pipeline.defer_matmul_wait import Accumulation
from tilewright.simt.pipeline.modulo_expander import ModuloExpander
from tilewright.simt.pipeline.pipelined_loop import redirect
from tilewright.simt.target.matmul_plan import MULTIPLYING
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget

if TYPE_CHECKING:
    from tilewright.simt.pipeline.completion.tma_copies import TmaCopies


@dataclass(frozen=True, slots=True)
class ResidentAccumulator:
    """A matmul whose accumulator stays in tensor memory, at ``place``, while its loop runs.

    Attributes:
        running: the loop-carried condition that the loop has started such a matmul.
        fresh: whether the first matmul overwrites the accumulator.
        behind: a builder behind the start.
    """

    found: Accumulation
    place: Value
    running: Value
    fresh: bool
    behind: Builder

    @staticmethod
    def start(loop: ModuloExpander, found: Accumulation, empty: Value) -> ResidentAccumulator:
        """Start the matmul in the loop, which has to yield true for ``running``."""
        matmul, before, at = found.matmul, loop.before, Builder.at(found.matmul)
        place, init = new_place(matmul, loop.target), loop.loop.inits[found.index]
        fresh = starts_at_zero(init)
        if not fresh:
            write_accumulator(before, place, init, matmul, loop.target)
        before.barrier()
        running = loop.carry(before.constant(value=False, result=I1))
        adds = running if fresh else at.constant(value=True, result=I1)
        start_into(at, matmul, place, adds, empty, loop.slot)
        loop.last.set_operand(found.index, loop.body.arguments[1 + found.index])
        return ResidentAccumulator(found, place, running, fresh, at)

    def settle(self, copies: TmaCopies, empty: Value, ended: Value, parity: Value) -> Builder:
        """Wait for the matmuls behind the loop, read the accumulator, and return a builder there.

        All threads wait for the mbarrier ``ended``, whose phase has the given parity. Most warps
        arrive here at once, and may not wait for ``empty``: they cannot distinguish the end of a
        phase from the end of the phase two before.
        """
        loop = copies.loop
        matmul, result = self.found.matmul, loop.loop.results[self.found.index]
        readers, behind = list(result.uses), loop.behind
        slot, phase, ran = loop.results_of([loop.slot, copies.phase, self.running])
        which = loop.number(behind, 0, I32)
        loop.create(behind, "simt.arrive_after", [ended], [which], [ran])
        loop.create(behind, "simt.await", [ended], [which], [parity], [ran])
        copies.drain(behind, empty, slot, phase)
        tile = read_accumulator(
            behind, self.place, ran if self.fresh else None, matmul, loop.target
        )
        redirect(readers, result, tile)
        matmul.erase()
        return behind


def resident_matmul(loop: For, target: SimtTarget) -> Accumulation | None:
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
