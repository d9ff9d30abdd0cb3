"""Coalesced layouts for memory accesses: neighbouring threads access neighbouring addresses.

Each thread accesses as many bytes as one access may have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tilewright.ir.core import Value
from tilewright.ir.ops.memory import AtomicCas, AtomicLoad, AtomicRmw, AtomicStore, Load, Store
from tilewright.ir.types import TileType, element_type
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.simt.assign_layouts.tile_access import Access, TileAccess
from tilewright.simt.layouts.linear_layout import LinearLayout, axis_shifts, blocked, log2
from tilewright.simt.target.cost_model import element_size, fits
from tilewright.simt.target.simt_target import SimtTarget

ACCESSES = (Load, Store, AtomicRmw, AtomicCas, AtomicLoad, AtomicStore)
#: Bytes of a register.
_WORD: Final = 4


def access_limit(operation: Access, target: SimtTarget) -> int:
    """Return the maximum number of bytes per access of a thread."""
    if isinstance(operation, Load | Store):
        return target.resources.max_access
    size = element_size(operation.pointer)
    if isinstance(operation, AtomicRmw):
        return size * target.memory.atomic_width(
            operation.kind, element_type(operation.value.type), operation.scope
        )
    return size


def tile_access(
    operation: Access, axes: Mapping[Value, AxisInfo], target: SimtTarget
) -> TileAccess | None:
    """Return the address attributes of a tile access; None for a scalar access."""
    pointer, mask = operation.pointer, mask_of(operation)
    type_ = pointer.type
    if not isinstance(type_, TileType):
        return None
    info, mask_info = axes[pointer], axes[mask] if mask is not None else None
    size, limit = element_size(pointer), access_limit(operation, target)
    order = tuple(
        sorted(
            range(type_.rank),
            key=lambda axis: (type_.shape[axis] == 1, -info.contiguity[axis], -axis),
        )
    )
    first = order[0]
    vector = limit // size
    while vector > 1 and not fits(first, vector, info, mask_info, size):
        vector //= 2
    return TileAccess(operation, type_.shape, order, max(1, vector), size, limit, info, mask_info)


def mask_of(operation: Access) -> Value | None:
    """Return the mask of an access, if it has one."""
    return None if isinstance(operation, AtomicCas) else operation.mask


def coalesced(
    accesses: Iterable[TileAccess], lanes: int, warps: int, limit: int
) -> dict[tuple[int, ...], list[LinearLayout]]:
    """Return candidate layouts for the accesses of each shape.

    Accesses of one shape and order share their candidates, so that values need no conversion
    between them.

    Accesses without consecutive addresses follow those that have them.
    """
    groups: dict[tuple[int, ...], dict[tuple[int, ...], list[TileAccess]]] = {}
    for access in accesses:
        groups.setdefault(access.shape, {}).setdefault(access.order, []).append(access)
    found: dict[tuple[int, ...], list[LinearLayout]] = {}
    for shape, orders in groups.items():
        running = {
            order: group
            for order, group in orders.items()
            if any(access.pointer.contiguity[order[0]] > 1 for access in group)
        }
        layouts: list[LinearLayout] = []
        for order, group in (running or orders).items():
            layouts += [
                layout
                for layout in _layouts(shape, order, group, lanes, warps, limit)
                if layout not in layouts
            ]
        found[shape] = layouts
    return found


def _layouts(
    shape: tuple[int, ...],
    order: tuple[int, ...],
    group: Sequence[TileAccess],
    lanes: int,
    warps: int,
    limit: int,
) -> list[LinearLayout]:
    most = math.prod(shape) // (lanes * warps)
    shared = min(
        max(access.vector for access in group),
        max(1, 2 * limit // max(access.size for access in group)),
    )
    # A store of wider elements than the loads have is no good in their layout: its threads would
    # each write every other part of a sector. So is an atomic update that takes fewer elements, and
    # a load that is not aligned to words: its threads would each read a few bytes, far from the
    # next one's.
    own = sorted(
        {access.vector for access in group if access.writes or access.vector * access.size < _WORD},
        reverse=True,
    )
    layouts: list[LinearLayout] = []
    for vector in dict.fromkeys(max(1, min(vector, most)) for vector in (shared, *own)):
        layouts.append(blocked(shape, order, vector, lanes, warps))
        if len(shape) > 1 and warps > 1:
            layouts.append(warps_apart(shape, order, vector, lanes, warps))
    return layouts


def warps_apart(
    shape: tuple[int, ...], order: tuple[int, ...], vector: int, lanes: int, warps: int
) -> LinearLayout:
    """Blocked layout with warps along the slowest axis first.

    Unlike in :func:`blocked`, elements along the fastest axis stay within a warp as far as
    possible.
    """
    shifts = axis_shifts(shape)
    free = [shifts[axis] + bit for axis in order for bit in range(log2(shape[axis]))]
    taken = min(log2(vector), log2(shape[order[0]]))
    registers, rest = free[:taken], free[taken:]
    lane_bits, rest = rest[: log2(lanes)], rest[log2(lanes) :]
    outer = [
        bit
        for axis in reversed(order)
        for bit in range(shifts[axis] + log2(shape[axis]) - 1, shifts[axis] - 1, -1)
        if bit in rest
    ]
    warp_bits = sorted(outer[: log2(warps)], key=rest.index)
    rest = [bit for bit in rest if bit not in warp_bits]

    def images(bits: Sequence[int], count: int) -> tuple[int, ...]:
        return (*(1 << bit for bit in bits), *(0,) * (count - len(bits)))

    return LinearLayout(
        shape,
        images([*registers, *rest], 0),
        images(lane_bits, log2(lanes)),
        images(warp_bits, log2(warps)),
    )


def transposed_read(
    access: TileAccess, axis: int, reader: LinearLayout, lanes: int, warps: int, most: int
) -> LinearLayout | None:
    """Return a layout for a load of a matmul operand that is contiguous along the other axis.

    A thread holds a block of elements: along ``axis``, which the matmul sums over, the elements
    that one thread of ``reader`` holds, at most ``most`` bytes, and the contiguous elements in
    memory. None if both axes
    are the same, or if a thread has too few elements.
    """
    shape, shifts = access.shape, axis_shifts(access.shape)
    own = log2(math.prod(shape)) - log2(lanes * warps)
    count = min(log2(access.vector), log2(shape[access.order[0]]))
    along = [1 << shifts[axis] + bit for bit in range(log2(shape[axis]))]
    together = [image for image in reader.registers if image in along][
        : min(own - count, log2(max(1, most // access.size)))
    ]
    if access.order[0] == axis or not 1 <= count < own or not together:
        return None
    free = [1 << shifts[one] + bit for one in access.order for bit in range(log2(shape[one]))]
    registers = (*free[:count], *together)
    rest = [image for image in free if image not in registers]
    threads = log2(lanes * warps)
    return LinearLayout(
        shape,
        (*registers, *rest[threads:]),
        tuple(rest[: log2(lanes)]),
        tuple(rest[log2(lanes) : threads]),
    )


def widened(layout: LinearLayout, axis: int, width: int) -> LinearLayout | None:
    """Return ``layout`` with ``width`` consecutive elements per thread, or None.

    Threads of a warp exchange elements for this; None if that is impossible.

    What a thread hands over are its elements that are nearest along the axis, so that the threads
    together have longer runs.
    """
    shift, mask = axis_shifts(layout.shape)[axis], layout.axis_mask(axis)
    wanted = [1 << shift + bit for bit in range(log2(width))]
    registers, lanes = list(layout.registers), list(layout.lanes)
    for image in wanted:
        if image in registers:
            continue
        spare = [other for other in registers if other not in wanted]
        if image not in lanes or not spare:
            return None
        given = min(spare, key=lambda other: (other & mask != other, other))
        lanes[lanes.index(image)] = given
        registers[registers.index(given)] = image
    return LinearLayout(
        layout.shape,
        (*wanted, *(image for image in registers if image not in wanted)),
        tuple(lanes),
        layout.warps,
    )


def spread(layout: LinearLayout) -> LinearLayout:
    """Return ``layout`` with register bits moved to broadcast lane and warp bits.

    One thread of those that hold an element updates it: the others then update elements of their
    own, in place of one thread doing so one after the other.
    """
    lanes, warps = list(layout.lanes), list(layout.warps)
    idle = [
        (images, bit) for images in (lanes, warps) for bit, image in enumerate(images) if not image
    ]
    count = min(len(idle), len(layout.registers))
    kept = len(layout.registers) - count
    for (images, bit), image in zip(idle, layout.registers[kept:], strict=False):
        images[bit] = image
    return replace(
        layout, registers=layout.registers[:kept], lanes=tuple(lanes), warps=tuple(warps)
    )


def default_layout(shape: tuple[int, ...], lanes: int, warps: int) -> LinearLayout:
    """Default layout for tiles without preferences: row-major, a few contiguous elements each."""
    return blocked(
        shape,
        tuple(reversed(range(len(shape)))),
        max(1, min(4, math.prod(shape) // (lanes * warps))),
        lanes,
        warps,
    )
