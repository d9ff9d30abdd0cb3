"""The decision table of software pipelining: form, slots and prefetch distance of each loop.

The *form* says who issues the copies of a loop, and how the loop is expanded:

| copies complete | the loop | form |
|---|---|---|
| by groups | any | ``groups`` |
| in registers | any | ``registers`` |
| at mbarriers | not to be warp-specialized, or it cannot be | ``barrier`` |
| | the first one to be warp-specialized | ``parts`` |
| | back-to-back matmuls, tiles in flight and two slots fit | ``chain`` |
| | they do not fit in registers; it has the largest tiles; two slots fit | ``parts`` |
| | otherwise | ``barrier`` |

*Slots* are the stages that were asked for, as far as shared memory suffices. Each decision is made
once and then written to the loop; those on its matmuls (K steps, ping-pong, deferred waits) depend
on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.core import Function, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Load
from tilewright.simt.analysis.alias import is_address, root_of, writer_in
from tilewright.simt.analysis.iteration_slices import Slice, slice_of
from tilewright.simt.analysis.pipelined_loops import pipelined_loops, stages_of, streaming_loops
from tilewright.simt.dialect.attributes import PROGRAMS, note, warps_of
from tilewright.simt.dialect.pipeline_attributes import (
    BY,
    CHAIN,
    FORM,
    PARTS,
    SLOTS,
    Ahead,
    deselect,
    forget,
    selected,
)
from tilewright.simt.passes.allocate_tensor_memory import accumulator_of
from tilewright.simt.pipeline.alternating_operands import settle_alternation
from tilewright.simt.pipeline.back_to_back import asynchronous_matmuls, is_chain, late_half
from tilewright.simt.pipeline.modulo_expander import kinds
from tilewright.simt.pipeline.occupancy import settle_chains
from tilewright.simt.pipeline.partitions.tile_operands import select_tile_operands
from tilewright.simt.pipeline.partitions.warp_specialize import is_separable, writer_of
from tilewright.simt.pipeline.pipelined_loop import LoopSchedule
from tilewright.simt.pipeline.shared_memory_budget import fitting_slots, slot_bytes
from tilewright.simt.pipeline.start_matmuls import held_by
from tilewright.simt.target.copy_mechanism import BARRIER
from tilewright.simt.target.simt_target import SimtTarget, required


def schedule(function: Function, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Choose the schedule of each loop that has selected loads."""
    schedules: dict[For, LoopSchedule] = {}
    for loop in [*pipelined_loops(function, options), *streaming_loops(function)]:
        if selected(loop):
            found = _schedule(loop, schedules, target, options)
            if found is None:
                forget(loop)
            else:
                schedules[loop] = found
    settle_chains(function, schedules, target)
    select_tile_operands(function, schedules, target)
    for loop, found in schedules.items():
        loop.attributes[SLOTS], loop.attributes[FORM] = found.slots, found.form
        if (kind := kinds().get(found.form)) is not None:
            kind.decide(loop, found, target, options)
    # with warp specialization, or several programs on an SM, there are no registers to spare
    if PROGRAMS in function.attributes or any(one.specialized for one in schedules.values()):
        return
    for loop, found in schedules.items():
        if (kind := kinds().get(found.form)) is not None:
            kind.decide_spare(loop, target, options)


def _schedule(
    loop: For,
    schedules: Mapping[For, LoopSchedule],
    target: SimtTarget,
    options: Mapping[str, Any],
) -> LoopSchedule | None:
    """Return the schedule of a loop, given those of earlier loops; None if it is not pipelined."""
    (body,) = loop.regions
    stages, loads = stages_of(loop, options), selected(loop)
    writer = writer_in(body, _read_ahead(loads, slice_of(body, loads, target)))
    if writer is not None:
        note(
            loop, f"not pipelined: {writer.name} in the loop may change what later iterations load"
        )
        return None
    form = _completion(loop, target)
    loads = selected(loop)  # those that keep their mechanism
    kind = kinds()[form]
    slots = kind.slots(stages)
    extra = kind.extra_bytes(slots, target)
    settle_alternation(loop, loads, slots, extra, target)
    fitting = fitting_slots(loop, loads, slots, extra, target)
    if slice_of(body, loads, target) is None or fitting < 2:
        why = (
            "its addresses are too costly to compute twice"
            if fitting >= 2
            else f"{target.name} has no shared memory for two buffers of its loads"
        )
        note(loop, f"not pipelined: {why}")
        return None
    if fitting < slots:
        note(loop, f"pipelined {fitting} deep instead of {stages}, for want of shared memory")
    found = LoopSchedule(form, fitting)
    if form == BARRIER and _is_to_be_specialized(loop, target, options):
        if (obstacle := _obstacle(loop, loads, target)) is not None:
            note(loop, f"not divided among warps: {obstacle}")
        elif is_chain(loop, target) and not any(
            other.form == PARTS for other in schedules.values()
        ):
            found.form = CHAIN
        elif not any(other.specialized for other in schedules.values()):
            found.form = PARTS
    return found


def _read_ahead(loads: Sequence[Ahead], part: Slice | None) -> frozenset[Value | None]:
    """Return the memory that later iterations load from.

    It is the memory of the loads themselves, and of the loads that their addresses are computed
    from.
    """
    readers = (
        [
            *loads,
            *(reader.operation for reader in part.operations if isinstance(reader.operation, Load)),
        ]
        if part is not None
        else loads
    )
    return frozenset(
        root_of(operand)
        for load in readers
        for operand in load.operands
        if is_address(operand.type)
    )


def _completion(loop: For, target: SimtTarget) -> str:
    """Return how a loop's copies complete: as those of the loads with the most bytes do.

    Loads of another kind are not pipelined.
    """
    moved: dict[str, int] = {}
    for load in selected(loop):
        completes = target.async_copy.mechanism(load.attributes[BY]).completes
        moved[completes] = moved.get(completes, 0) + slot_bytes(load)
    form = max(moved, key=moved.__getitem__)
    for load in selected(loop):
        by = load.attributes[BY]
        if target.async_copy.mechanism(by).completes != form:
            deselect(load)
            note(
                load,
                f"{load.name} is not pipelined: most of what the loop loads is copied in another "
                f"way than by {by!r}",
            )
    return form


# ---- warp specialization


def _is_to_be_specialized(loop: For, target: SimtTarget, options: Mapping[str, Any]) -> bool:
    """Return whether warp specialization is requested, or pays without a request."""
    return target.warp_specialization is not None and (
        _asks_for_parts(loop, options) or _is_register_chain(loop, target)
    )


def _obstacle(loop: For, loads: Sequence[Ahead], target: SimtTarget) -> str | None:
    """Return the reason why a loop cannot be warp-specialized, if there is one."""
    if not is_separable(loop):
        return "what it loads depends on what the program computes"
    if (writer := writer_of(loads)) is not None:
        return f"{writer.name} at {writer.location} may change what it loads"
    specialization = required(target.warp_specialization, target, "warp specialization")
    warps, sizes = warps_of(loop), target.resources
    if sizes.warp_size * (warps + specialization.warp_multiple) > sizes.max_threads:
        return f"beside {warps} there are none left for loads"
    return None


def _asks_for_parts(loop: For, options: Mapping[str, Any]) -> bool:
    """Return whether the loop, a loop around it or the options request warp specialization.

    A loop around it that is to be flattened (``flatten``) requests it too: a producer warp
    continues its loads across the ends of the inner loop, as the flattened loop would.
    """
    outer = [operation for operation in loop.ancestors() if isinstance(operation, For)]
    asked = any(one.warp_specialize for one in (loop, *outer)) or any(one.flatten for one in outer)
    return asked or bool(options.get("warp_specialize"))


def _is_register_chain(loop: For, target: SimtTarget) -> bool:
    """Return whether a loop has back-to-back matmuls without a barrier between them.

    The operands of the later matmuls stay in registers, or their accumulators are in tensor memory,
    so that only the copies need synchronization.
    """
    (body,) = loop.regions
    matmuls = asynchronous_matmuls(body, target)
    late = late_half(body, matmuls)
    return late is not None and all(
        held_by(matmul, target) or accumulator_of(matmul, target) is not None
        for matmul in matmuls
        if matmul in late
    )
