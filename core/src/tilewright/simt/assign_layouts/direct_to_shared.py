"""Direct-to-shared loads in loops: selection, and the layouts that they need.

Such a copy keeps the order of elements in global memory. A loop's loads are therefore copied in
this way if each matmul can read the result: the loop is pipelined, all its loads feed matmuls
unchanged, and the target transposes tiles that are contiguous across K when it reads them.
Otherwise all of them go through registers, because the copies of one loop must be of one kind.

The decision is in the IR: an attribute of the load names the mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.core import Operation, Region
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import Load
from tilewright.passes.effects import clobbers_memory
from tilewright.simt.analysis.pipelined_loads import feeding_matmuls, is_copyable
from tilewright.simt.analysis.pipelined_loops import pipelined_loops
from tilewright.simt.dialect.op_interface import Statement
from tilewright.simt.dialect.pipeline_attributes import BY
from tilewright.simt.layouts.lane_order import lane_ordered, lane_ordered_shared
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.layouts.swizzle import accesses
from tilewright.simt.target.copy_mechanism import GROUPS, CopyMechanism
from tilewright.simt.target.simt_target import SimtTarget

#: Matmuls before they have plans.
_MATMULS = (Dot,)


def mark_direct_to_shared(
    statement: Statement, options: Mapping[str, Any]
) -> dict[Operation, LinearLayout]:
    """Tag direct-to-shared loads with their mechanism; return their layouts."""
    mechanism = direct_to_shared_mechanism(statement.target)
    if mechanism is None:
        return {}
    found: dict[Operation, LinearLayout] = {}
    for loop in pipelined_loops(statement.function, options, _MATMULS):
        for load, layout in _of_loop(statement, loop.regions[0], mechanism).items():
            load.attributes[BY] = mechanism.name
            found[load] = layout
    return found


def direct_to_shared_mechanism(target: SimtTarget) -> CopyMechanism | None:
    """Return the target's mechanism whose lanes write contiguous memory, if it has one."""
    return next(
        (
            one
            for one in target.async_copy.mechanisms
            if one.completes == GROUPS and one.lanes_side_by_side
        ),
        None,
    )


def _of_loop(
    statement: Statement, body: Region, mechanism: CopyMechanism
) -> dict[Operation, LinearLayout]:
    """Return the layouts of all loads that feed a loop's matmuls; empty if any cannot be copied."""
    if any(clobbers_memory(operation) for operation in body):
        return {}
    wanted = feeding_matmuls(body, _MATMULS)
    found: dict[Operation, LinearLayout] = {}
    for matmul in body:
        if not isinstance(matmul, Dot):
            continue
        for position in (0, 1):
            for leaf, path in statement.problem.paths((matmul.a, matmul.b)[position]):
                load = leaf.definition
                if not isinstance(load, Load) or load not in wanted or load in found:
                    continue
                readers = [
                    statement.problem.seen_before(path, reader)
                    for reader in statement.plans[matmul].readers(position)
                ]
                layout = _layout(statement, load, mechanism, readers)
                if layout is None:
                    return {}
                found[load] = layout
    return found if len(found) == len(wanted) else {}


def _layout(
    statement: Statement, load: Load, mechanism: CopyMechanism, readers: list[LinearLayout]
) -> LinearLayout | None:
    """Return a load's layout that suits a layout in which the matmul can read it, if any."""
    access, target = statement.accesses.get(load), statement.target
    if access is None or not is_copyable(load):
        return None
    width = next(
        (
            width // access.size
            for width in sorted(mechanism.widths, reverse=True)
            if access.size <= width <= access.vector * access.size
        ),
        0,
    )
    if not width:
        return None
    for reader in readers:
        machine = (
            target.resources.warp_size,
            statement.num_warps,
            target.resources.max_access,
            target.resources.banks,
        )
        layout = lane_ordered(access.shape, access.order, width, reader, access.size, *machine)
        if layout is None:
            return None
        shared = lane_ordered_shared(layout, width)
        assert shared is not None
        if (
            accesses(reader, shared, target.resources.max_access // access.size).width * access.size
            >= target.costs.thresholds.shared_read_bytes
        ):
            return layout
    return None
