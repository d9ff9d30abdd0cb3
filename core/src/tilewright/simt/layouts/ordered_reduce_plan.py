"""Plan of a reduction in a stated order, in any linear layout.

The tree combines one bit of the index after the other. A bit is an axis of extent 2 of the reshaped
tile, so that each is a reduction of its own, whose plan says whether the bit is of registers, lanes
or warps. Consecutive bits of warps are one trip through shared memory, whose parts are combined in
the tree's order.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tilewright.ir.order import SEQUENTIAL, TREE, tree_bits
from tilewright.simt.layouts.linear_layout import LinearLayout, axis_shifts, log2
from tilewright.simt.layouts.reduce_plan import ReducePlan, plan_reduction


@dataclass(frozen=True, slots=True)
class OrderedStep:
    """Step of a reduction.

    Attributes:
        plan: how elements meet.
        parts: bits of the number of a part in shared memory, in the order in which they are
            combined; empty where the parts are combined one after the other.
    """

    plan: ReducePlan
    parts: tuple[int, ...]


@functools.lru_cache(maxsize=1024)
def plan_ordered_reduction(
    layout: LinearLayout, axis: int, order: str, symmetric: bool
) -> tuple[OrderedStep, ...]:
    """Plan the reduction of a tile in ``layout`` along ``axis`` in an order other than any.

    ``symmetric``: swapping the operands of the combination does not change bits. Otherwise bits
    are combined between threads only if each register, lane and warp bit moves one bit of the
    index or none: the lower index is then the left operand.
    """
    count = log2(layout.shape[axis])
    if count == 0:
        return (OrderedStep(plan_reduction(layout, axis), ()),)
    if order == SEQUENTIAL:
        registers = _register_order(layout, axis)
        if registers is None:
            return (OrderedStep(_through_memory(layout, axis), ()),)
        return (OrderedStep(_in_sequence(layout, axis, registers), ()),)
    assert order == TREE
    steps: list[OrderedStep] = []
    current = layout
    if symmetric or _is_by_bits(layout, axis):
        for _ in range(min(2, count)):
            current = _step(steps, current, axis, low=True)
        while current.shape[axis] > 1:
            current = _step(steps, current, axis, low=False)
        if current.without_axis(axis) == layout.without_axis(axis):
            return tuple(steps)
    return (OrderedStep(_through_memory(layout, axis), tree_bits(1 << count)),)


def _step(steps: list[OrderedStep], layout: LinearLayout, axis: int, low: bool) -> LinearLayout:
    """Append the step of the lowest or the highest bits; return the layout of the rest."""
    shape, extent = layout.shape, layout.shape[axis]

    def view(taken: int) -> LinearLayout:
        inner = (extent // taken, taken) if low else (taken, extent // taken)
        return layout.reshape((*shape[:axis], *inner, *shape[axis + 1 :]))

    split, own = view(2), axis + 1 if low else axis
    plan = plan_reduction(split, own)
    if plan.parts > 1 and not low:
        taken = 2
        while taken < extent and _is_of_warps(layout, axis, log2(extent // taken) - 1):
            taken *= 2
        split = view(taken)
        plan = _through_memory(split, own)
        parts = tuple(reversed(range(log2(taken))))
    else:
        parts = (0,)
    steps.append(OrderedStep(plan, parts))
    return split.without_axis(own)


def _axis_images(layout: LinearLayout, axis: int) -> list[tuple[str, int, int]]:
    """Return (kind, bit, image) of each register, lane and warp bit that moves along an axis."""
    mask = layout.axis_mask(axis)
    return [
        (kind, bit, image)
        for kind, images in (
            ("register", layout.registers),
            ("lane", layout.lanes),
            ("warp", layout.warps),
        )
        for bit, image in enumerate(images)
        if image & mask
    ]


def _is_of_warps(layout: LinearLayout, axis: int, bit: int) -> bool:
    """Return whether a bit of the index is moved by warps alone."""
    moved = 1 << (axis_shifts(layout.shape)[axis] + bit)
    return all(kind == "warp" for kind, _, image in _axis_images(layout, axis) if image & moved)


def _is_by_bits(layout: LinearLayout, axis: int) -> bool:
    images = [image for _, _, image in _axis_images(layout, axis)]
    return len(set(images)) == len(images) and all(image & (image - 1) == 0 for image in images)


def _register_order(layout: LinearLayout, axis: int) -> tuple[int, ...] | None:
    """Return the registers' masks of the bits of the index, lowest first.

    None unless each bit is one of registers.
    """
    images = _axis_images(layout, axis)
    if not _is_by_bits(layout, axis) or any(kind != "register" for kind, _, _ in images):
        return None
    return tuple(1 << bit for _, bit, _ in sorted(images, key=lambda found: found[2]))


def _in_sequence(layout: LinearLayout, axis: int, masks: tuple[int, ...]) -> ReducePlan:
    """Plan the combination of registers, from the lowest index to the highest."""
    members = [0]
    for mask in masks:
        members += [member | mask for member in members]
    inside = sum(masks)
    kept = tuple(number for number in range(layout.register_count) if not number & inside)
    pairs = tuple(tuple((first, first | member) for first in kept) for member in members[1:])
    result = layout.without_axis(axis)
    partials = LinearLayout((*result.shape, 1), result.registers, result.lanes, result.warps)
    return ReducePlan(result, pairs, kept, (), partials, True)


def _through_memory(layout: LinearLayout, axis: int) -> ReducePlan:
    """Plan a reduction of which every element is a part in shared memory."""
    shift, extent = axis_shifts(layout.shape)[axis], log2(layout.shape[axis])
    result = layout.without_axis(axis)

    def part(image: int) -> int:
        on = image >> shift & ((1 << extent) - 1)
        off = image & ((1 << shift) - 1) | image >> (shift + extent) << shift
        return off << extent | on

    partials = LinearLayout(
        (*result.shape, 1 << extent),
        tuple(map(part, layout.registers)),
        tuple(map(part, layout.lanes)),
        tuple(map(part, layout.warps)),
    )
    kept = tuple(range(layout.register_count))
    return ReducePlan(result, (), kept, (), partials, False)
