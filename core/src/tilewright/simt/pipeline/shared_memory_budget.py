"""The shared-memory budget of pipelined loops."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.ir.core import Value
from tilewright.ir.ops.control import For
from tilewright.ir.types import TileType
from tilewright.simt.analysis.shared_views import views_of
from tilewright.simt.dialect.attributes import is_made_in
from tilewright.simt.dialect.ops.buffers import Convert
from tilewright.simt.dialect.ops.dot import Multiplication
from tilewright.simt.dialect.pipeline_attributes import ALTERNATES, Ahead, selected, shared_layout
from tilewright.simt.dialect.types import SlotType
from tilewright.simt.passes.allocate_shared import scratch_of
from tilewright.simt.passes.stage_operands import staged_bytes
from tilewright.simt.passes.tma.lower_tma_stores import min_staging
from tilewright.simt.target.simt_target import SimtTarget


def slot_bytes(load: Ahead) -> int:
    """Bytes of a load's tile in shared memory."""
    type_ = load.results[0].type
    assert isinstance(type_, TileType)
    return SlotType(type_.shape, type_.element, shared_layout(load)).tile_bytes


def fitting_slots(
    loop: For, loads: list[Ahead], stages: int, barriers: int, target: SimtTarget
) -> int:
    """Return how many slots fit in shared memory, at most ``stages``.

    Scratch space of the loop's operations and ``barriers`` bytes of mbarriers come off first.
    """
    taken = scratch_beside(loop, target) + barriers
    return min(
        stages,
        max(0, target.resources.shared_memory - taken) // sum(slot_bytes(load) for load in loads),
    )


def scratch_beside(loop: For, target: SimtTarget, elsewhere: Collection[Value] = ()) -> int:
    """Return the shared memory that a loop's operations need beside the slots of its loads.

    Values in ``elsewhere`` are in shared memory already. Loop-invariant operands occupy shared
    memory for the whole loop, all at once.
    """
    views = {
        *elsewhere,
        *(view.value for load in selected(loop) for view in views_of(load.results[0])),
    }
    scratch = staged = 0
    for operation in loop.regions[0]:
        if isinstance(operation, Multiplication):
            factors = {operation.a, operation.b}
            kept = {operand for operand in factors if not is_made_in(operand, loop)}
            staged += staged_bytes(operation, target, views | factors - kept)
            slots = 2 if ALTERNATES in operation.attributes else 1
            scratch = max(scratch, slots * staged_bytes(operation, target, views | kept))
            views |= kept
        elif not (isinstance(operation, Convert) and operation.x in views):
            scratch = max(scratch, scratch_of(operation, target))
    return staged + max(scratch, min_staging(loop, target))
