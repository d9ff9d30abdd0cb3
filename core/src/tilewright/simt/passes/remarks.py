"""Missed-optimization remarks: accesses narrower than the target's widest, strided accesses that
waste what memory moves, unpipelined loads.

``tilewright inspect`` prints the remarks; with ``TILEWRIGHT_WARN_SLOW=1`` in the environment each
is a warning, once per kernel. Other passes add remarks where they decide: about matmuls without a
matrix instruction, or loops that cannot be pipelined.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.environment import flag
from tilewright.ir.core import Function, Location, Operation, Value
from tilewright.ir.ops.control import LOOPS, For
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.types import I1, FloatType, IntType, TileType
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.axis import AxisInfo, axis_info
from tilewright.passes.analysis.axis_info import power_of_two_in
from tilewright.passes.rewriter import constant_of
from tilewright.simt.analysis.access_causes import AccessCauses
from tilewright.simt.analysis.access_waste import AccessWaste
from tilewright.simt.dialect.attributes import NOTES, layout_of, note, notes_of, warps_of
from tilewright.simt.dialect.loop_carried import operations_of_program
from tilewright.simt.dialect.ops import buffers as ops
from tilewright.simt.dialect.ops.async_copy import LoadStart
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.target.cost_model import (
    WarpAccess,
    access_width,
    element_size,
    fits,
    warp_access,
)
from tilewright.simt.target.matmul_plan import MULTIPLYING, factors
from tilewright.simt.target.simt_target import SimtTarget

_ACCESSES = (Load, Store, LoadStart)


def note_slow_paths(function: Function, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Add remarks about the accesses and pipelines of a function in its final form."""
    axes = axis_info(function)
    causes, waste = AccessCauses(function, axes), AccessWaste(function, target, axes)
    reported: set[tuple[Location | None, str]] = (
        set()
    )  # a pipelined load stands in the loop and before it
    for operation in operations_of_program(function.body):
        if isinstance(operation, _ACCESSES) and isinstance(operation.pointer.type, TileType):
            for why in (
                _narrow(operation, target, axes, causes),
                waste.remark(operation, _access_of(operation, target, axes), causes),
            ):
                if why and not (
                    isinstance(operation, LoadStart) and (operation.location, why) in reported
                ):
                    reported.add((operation.location, why))
                    note(operation, why)
        elif isinstance(operation, For) and not any(
            "pipelined" in note for note in operation.attributes.get(NOTES, ())
        ):
            for place, why in _not_pipelined(operation, target, axes, options):
                note(place, why)


def _access_of(
    operation: Load | Store | LoadStart, target: SimtTarget, axes: Mapping[Value, AxisInfo]
) -> WarpAccess:
    pointer, mask = operation.pointer, operation.mask
    return warp_access(
        layout_of(pointer),
        axes[pointer],
        axes[mask] if mask is not None else None,
        element_size(pointer),
        target.resources.max_access,
        target.costs,
    )


def _narrow(
    operation: Load | Store | LoadStart,
    target: SimtTarget,
    axes: Mapping[Value, AxisInfo],
    causes: AccessCauses,
) -> str:
    """Return why an access is narrower than it could be; the empty string if it is not.

    An access could be as wide as the thread's share of the tile, up to the target's widest access.
    """
    pointer, mask = operation.pointer, operation.mask
    type_ = pointer.type
    assert isinstance(type_, TileType)
    size, layout = element_size(pointer), layout_of(pointer)
    info, mask_info = axes[pointer], axes[mask] if mask is not None else None
    threads = target.resources.warp_size * warps_of(operation)
    possible = min(target.resources.max_access // size, math.prod(type_.shape) // threads)
    width = access_width(layout, info, mask_info, size, target.resources.max_access)
    if possible <= 1 or width >= possible:
        return ""
    axis = max(range(type_.rank), key=lambda i: (type_.shape[i] > 1, info.contiguity[i], i))
    if info.contiguity[axis] <= width and info.contiguity[axis] < type_.shape[axis]:
        if info.constancy[axis] > width:
            why = f"{min(info.constancy[axis], possible)} elements in a row are at one address"
        else:
            known = (
                "no two addresses"
                if info.contiguity[axis] == 1
                else f"only runs of {info.contiguity[axis]} addresses"
            )
            why = (
                f"{known} are known to be consecutive{causes.stride_note(pointer, axis, 2 * width)}"
            )
    elif not fits(axis, 2 * width, info, None, size):
        aim = max(2 * width, min(possible, power_of_two_in(info.contiguity[axis])))
        cause = causes.of_address(pointer, aim)
        why = (
            f"addresses are not known to be multiples of {aim * size} "
            f"bytes{f': {cause}' if cause else ''}{cause.remedy}"
        )
    elif mask_info is not None and not fits(axis, 2 * width, info, mask_info, size):
        assert mask is not None
        cause = causes.of_mask(mask, axis, possible)
        found = f": {cause}{cause.remedy}" if cause else ", which is computed for each by itself"
        why = f"the mask is not known to be the same for {possible} elements in a row{found}"
    else:
        elements = "elements" if width > 1 else "element"
        why = (
            f"a thread has {width} consecutive {elements} in the layout that the access shares "
            f"with other operations{_wider_layout(type_, layout, axis, warps_of(operation))}"
        )
    return (
        f"{'store' if isinstance(operation, Store) else 'load'} moves {width * size} bytes at "
        f"once instead of {possible * size}: {why}"
    )


def _wider_layout(type_: TileType, layout: LinearLayout, axis: int, warps: int) -> str:
    """Return the remedy for a layout in which threads hold few elements along ``axis``.

    If a thread holds consecutive elements along another axis, the layout follows an access along
    that axis. If the extent of that axis is larger, a conversion between two layouts pays.
    """
    shape = type_.shape
    runs = [layout.vector_width(each, extent) for each, extent in enumerate(shape)]
    other = max(range(type_.rank), key=runs.__getitem__)
    if other != axis and runs[other] > runs[axis]:
        return (
            f"; use a block of more than {shape[other]} elements along axis {other} of the "
            f"{'x'.join(map(str, shape))} tile"
        )
    return f"; use a {'smaller num_warps or a ' if warps > 1 else ''}larger block"


def _not_pipelined(
    loop: For, target: SimtTarget, axes: Mapping[Value, AxisInfo], options: Mapping[str, Any]
) -> list[tuple[Operation, str]]:
    """Return remarks on why loads that feed the matmuls of a loop are not pipelined."""
    body = loop.body
    matmuls = [operation for operation in body if isinstance(operation, MULTIPLYING)]
    stages = loop.num_stages or options.get("num_stages", 0)
    if not matmuls or stages < 2:
        return []
    loads = _feeding(matmuls)
    if not loads:
        return []
    if any(isinstance(inner, LOOPS) for inner in body.walk()):
        return [(loop, "not pipelined: there is a loop inside")]
    return [
        (load, f"load is not pipelined: {_why_not_ahead(load, target, axes)}") for load in loads
    ]


def _why_not_ahead(load: Load, target: SimtTarget, axes: Mapping[Value, AxisInfo]) -> str:
    pointer, mask, other = load.pointer, load.mask, load.other
    type_ = load.results[0].type
    if (
        not isinstance(type_, TileType)
        or not isinstance(type_.element, IntType | FloatType)
        or type_.element is I1
    ):
        return f"{type_} cannot be copied as it is"
    if load.volatile:
        return "it is volatile"
    widths = next(
        (
            mechanism.widths
            for mechanism in target.async_copy.mechanisms
            if mechanism.widths and not mechanism.lanes_side_by_side
        ),
        (),
    )
    if widths and other is not None and constant_of(other) != 0:
        return "asynchronous copies fill with zeros where the mask is false, not with another value"
    size = storage_size(type_.element)
    limit = max(widths, default=target.resources.max_access)
    width = size * access_width(
        layout_of(pointer), axes[pointer], axes[mask] if mask is not None else None, size, limit
    )
    if widths and width < min(widths):
        return (
            f"it reads {width} bytes at once, and asynchronous copies take "
            f"{', '.join(map(str, widths))}"
        )
    return (
        "its addresses depend on what the loop computes, or its layout in shared memory does "
        "not fit copies"
    )


def _feeding(matmuls: Sequence[Operation]) -> list[Load]:
    """Loads in the matmuls' block that their operands are computed from.

    That includes loads whose tile is stored to shared memory first.
    """
    found: dict[Operation, None] = {}
    work = [operand for matmul in matmuls for operand in factors(matmul)]
    while work:
        value = work.pop()
        # tiles staged in shared memory for this matmul alone
        work += [
            user.x
            for user in value.uses
            if isinstance(user, ops.SharedStore) and user.slot is value
        ]
        operation = value.definition
        if operation is None or operation.parent is not matmuls[0].parent or operation in found:
            continue
        found[operation] = None
        if not isinstance(operation, Load) and operation.spec.pure and not operation.regions:
            work += operation.operands
    return [operation for operation in found if isinstance(operation, Load)]


# ---- warnings

_warned: set[tuple[str, str]] = set()


def warn_slow(function: Function) -> None:
    """Emit each remark as a warning once per kernel if ``TILEWRIGHT_WARN_SLOW`` is set."""
    if not flag("TILEWRIGHT_WARN_SLOW"):
        return
    for operation, remark in notes_of(function):
        key = function.name, f"{operation.location}: {remark}"
        if key not in _warned:
            _warned.add(key)
            place = operation.location
            file, line = (place.file, place.line) if place is not None else ("", 0)
            warnings.warn_explicit(f"kernel {function.name}, {key[1]}", RuntimeWarning, file, line)
