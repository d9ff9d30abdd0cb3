"""Selection of the loads of a loop to prefetch, and of their copy mechanisms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.core import Function, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import DescriptorLoad, Load
from tilewright.passes.analysis.axis import AxisInfo, axis_info
from tilewright.simt.analysis.divergence import Divergence
from tilewright.simt.analysis.iteration_slices import slice_of
from tilewright.simt.analysis.pipelined_loads import (
    copied_elements,
    feeding_matmuls,
    group_layout,
    is_copyable,
    is_plain,
    wished_layout,
)
from tilewright.simt.analysis.pipelined_loops import pipelined_loops, streaming_loops
from tilewright.simt.dialect.pipeline_attributes import BY, SHARED, WIDTH, Ahead, forget, selected
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.passes.sink_conversions import sink_conversions
from tilewright.simt.target.copy_mechanism import BARRIER, GROUPS, THROUGH_REGISTERS, CopyMechanism
from tilewright.simt.target.simt_target import SimtTarget


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
                mechanism, shared = found
                load.attributes[BY], load.attributes[SHARED] = mechanism.name, shared
                if mechanism.completes == GROUPS and isinstance(load, Load):
                    load.attributes[WIDTH] = copied_elements(load, mechanism, axes)
    _select_streams(function, target, axes)


def _select_streams(
    function: Function, target: SimtTarget, axes: Mapping[Value, AxisInfo] | None
) -> None:
    """Annotate the loads of loops without matmuls.

    Copies need barriers, which those loops may not have had, so a loop under divergent control flow
    is not pipelined.
    """
    groups = [
        mechanism
        for mechanism in target.async_copy.mechanisms
        if mechanism.completes == GROUPS and not mechanism.lanes_side_by_side
    ]
    loops = list(streaming_loops(function)) if groups else []
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
            for mechanism in groups if slice_of(loop.body, (load,), target) is not None else ():
                shared = group_layout(load, mechanism, target, axes)
                if shared is not None:
                    load.attributes.update(
                        {
                            BY: mechanism.name,
                            SHARED: shared,
                            WIDTH: copied_elements(load, mechanism, axes),
                        }
                    )
                    break


def _take_marked(loop: For, target: SimtTarget, axes: Mapping[Any, AxisInfo]) -> bool:
    """Annotate loads that already have a mechanism with their shared layouts.

    Returns whether the mechanism can copy all of them; otherwise none is prefetched.
    """
    for load in selected(loop):
        mechanism = target.async_copy.mechanism(load.attributes[BY])
        shared = None
        if isinstance(load, Load) and slice_of(loop.body, (load,), target) is not None:
            shared = group_layout(load, mechanism, target, axes)
        if shared is None or not isinstance(load, Load):
            forget(loop)
            return False
        load.attributes[SHARED], load.attributes[WIDTH] = (
            shared,
            copied_elements(load, mechanism, axes),
        )
    return True


def _choose(
    load: Ahead, loop: For, target: SimtTarget, axes: Mapping[Any, AxisInfo]
) -> tuple[CopyMechanism, SharedLayout] | None:
    """Return the first mechanism that can copy a load, and the best shared layout it can fill.

    The best layout is the one that the matmuls which read the load prefer.
    """
    if slice_of(loop.regions[0], (load,), target) is None:
        return None
    mechanisms = [
        mechanism for mechanism in target.async_copy.mechanisms if not mechanism.lanes_side_by_side
    ]
    for mechanism in mechanisms:
        shared = None
        if mechanism.completes == GROUPS and isinstance(load, Load) and is_copyable(load):
            shared = group_layout(load, mechanism, target, axes)
        elif mechanism.completes == BARRIER and isinstance(load, DescriptorLoad):
            shared = wished_layout(load, mechanism, target)
        if shared is not None:
            return mechanism, shared
    if (
        isinstance(load, Load)
        and is_plain(load)
        and not any(mechanism.completes == GROUPS for mechanism in mechanisms)
    ):
        shared = wished_layout(load, THROUGH_REGISTERS, target)
        return (THROUGH_REGISTERS, shared) if shared is not None else None
    return None
