"""Selection of the loads of a loop to prefetch, and of their copy mechanisms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.ir.core import Function, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import DescriptorLoad, Load
from tilewright.passes.analysis.axis import AxisInfo, axis_info
from tilewright.simt.analysis.divergence import Divergence
from tilewright.simt.analysis.iteration_slices import slice_of
from tilewright.simt.analysis.pipelined_loads import feeding_matmuls, is_copyable
from tilewright.simt.analysis.pipelined_loops import pipelined_loops, streaming_loops
from tilewright.simt.dialect.pipeline_attributes import BY, Ahead, deselect, forget, selected
from tilewright.simt.passes.sink_conversions import sink_conversions
from tilewright.simt.pipeline.modulo_expander import kind_of
from tilewright.simt.pipeline.shared_memory_budget import slot_bytes
from tilewright.simt.target.copy_mechanism import BARRIER, GROUPS, THROUGH_REGISTERS, CopyMechanism
from tilewright.simt.target.simt_target import SimtTarget

#: Bytes that the loads of matmuls have at least, by those of another load that is prefetched, too.
_BESIDE = 8


def select(function: Function, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Annotate the loads to prefetch with their copy mechanism and shared layout.

    Candidates are the loads that feed matmuls in loops, and the loads of loops without matmuls that
    ask for stages.
    """
    axes = None
    for loop in list(pipelined_loops(function, options)):
        sink_conversions(loop.regions[0])
        axes = axes or axis_info(function)
        if selected(loop) and _take_marked(loop, target, axes):
            continue
        for load in feeding_matmuls(loop.body):
            found = _choose(load, loop, target, axes)
            if found is not None:
                load.attributes.update(found)
        _select_beside(loop, target, axes)
    _select_streams(function, target, axes)


def _select_beside(loop: For, target: SimtTarget, axes: Mapping[Value, AxisInfo]) -> None:
    """Annotate small loads beside those that feed matmuls, such as of scales of the results.

    Their copies complete with those of the others: in the same commit groups, or at the same
    mbarriers, which count the bytes of blocks of descriptors. Other loads beside copies that
    complete at mbarriers are prefetched by each thread for itself
    (:mod:`tilewright.simt.pipeline.prefetch_beside_matmuls`).
    """

    def completes(attributes: Mapping[str, Any]) -> str:
        return target.async_copy.mechanism(attributes[BY]).completes

    before = selected(loop)
    kinds = {completes(load.attributes) for load in before}
    if kinds not in ({GROUPS}, {BARRIER}):
        return
    room = sum(map(slot_bytes, before)) // _BESIDE
    part = slice_of(loop.body, before, target)
    indices = set() if part is None else {one.operation for one in part.operations}
    for load in loop.body:
        if (
            isinstance(load, Ahead)
            and load not in before
            and load not in indices
            and (isinstance(load, DescriptorLoad) or is_copyable(load))
        ):
            found = _choose(load, loop, target, axes)
            if found is not None and completes(found) in kinds:
                load.attributes.update(found)
                if slot_bytes(load) > room:
                    deselect(load)


def _select_streams(
    function: Function, target: SimtTarget, axes: Mapping[Value, AxisInfo] | None
) -> None:
    """Annotate the loads of loops without matmuls.

    Copies need barriers, which those loops may not have had, so a loop under divergent control flow
    is not pipelined.
    """
    mechanisms = [
        mechanism
        for mechanism in target.async_copy.mechanisms
        if mechanism.widths and not mechanism.lanes_side_by_side
    ]
    loops = list(streaming_loops(function)) if mechanisms else []
    divergence = Divergence(function, target) if loops else None
    for loop in loops:
        if divergence is None or any(
            divergence.cause(around) for around in (loop, *loop.ancestors())
        ):
            continue
        axes = axes or axis_info(function)
        for load in [
            operation
            for operation in loop.body
            if isinstance(operation, Load) and is_copyable(operation)
        ]:
            if slice_of(loop.body, (load,), target) is not None:
                load.attributes.update(_attributes(load, mechanisms, target, axes) or {})


def _take_marked(loop: For, target: SimtTarget, axes: Mapping[Any, AxisInfo]) -> bool:
    """Annotate loads that already have a mechanism with their shared layouts.

    Returns whether the mechanism can copy all of them; otherwise none is prefetched.
    """
    for load in selected(loop):
        mechanism = target.async_copy.mechanism(load.attributes[BY])
        found = None
        if isinstance(load, Load) and slice_of(loop.body, (load,), target) is not None:
            found = kind_of(mechanism).attributes_of(load, mechanism, target, axes)
        if found is None:
            forget(loop)
            return False
        load.attributes.update(found)
    return True


def _choose(
    load: Ahead, loop: For, target: SimtTarget, axes: Mapping[Any, AxisInfo]
) -> dict[str, Any] | None:
    """Return the attributes of a load for the first mechanism that can copy it.

    Its shared layout is the one, among those that the mechanism can fill, that the matmuls which
    read the load prefer.
    """
    if slice_of(loop.regions[0], (load,), target) is None:
        return None
    mechanisms = [
        mechanism for mechanism in target.async_copy.mechanisms if not mechanism.lanes_side_by_side
    ]
    if not any(mechanism.widths for mechanism in mechanisms):
        mechanisms.append(THROUGH_REGISTERS)
    return _attributes(load, mechanisms, target, axes)


def _attributes(
    load: Ahead,
    mechanisms: Iterable[CopyMechanism],
    target: SimtTarget,
    axes: Mapping[Any, AxisInfo],
) -> dict[str, Any] | None:
    """Return the attributes of a load for the first of some mechanisms that can copy it."""
    for mechanism in mechanisms:
        found = kind_of(mechanism).attributes_of(load, mechanism, target, axes)
        if found is not None:
            return {BY: mechanism.name, **found}
    return None
