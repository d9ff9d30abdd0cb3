"""Scans along an axis of a linear layout: plan of the steps, and layouts that support them.

A scan visits the bits of the coordinate from lowest to highest, because its combination need not
commute: blocks of 2**k neighbours become blocks of 2**(k+1). The lowest bits, if they are register
bits, make up a chunk that one thread scans; from there on a chunk has a total, and a prefix of its
block. A lane bit costs one shuffle of totals, the warp bits together one round trip through shared
memory, and further register bits only combinations.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tilewright.ir.order import ANY, SEQUENTIAL, TREE
from tilewright.simt.layouts.linear_layout import LinearLayout, axis_shifts, blocked, log2

#: Kinds of steps, which are the kinds of bits.
REGISTER, LANE, WARPS = "register", "lane", "warps"


@dataclass(frozen=True, slots=True)
class ScanStep:
    """Step of a scan from one length of blocks to the next longer one.

    Attributes:
        kind: :data:`REGISTER`, :data:`LANE` or :data:`WARPS`.
        masks: the register, lane or warp index of the bit; for warps, of all bits, from the lowest
            bit of the coordinate to the highest.
        position: the lowest bit of the coordinate that the step combines.
    """

    kind: str
    masks: tuple[int, ...]
    position: int


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Steps of a scan.

    Attributes:
        chunk: register masks of the bits that a thread scans first, lowest first; none for a tree.
        steps: the remaining steps.
    """

    chunk: tuple[int, ...]
    steps: tuple[ScanStep, ...]


@functools.lru_cache(maxsize=1024)
def plan_scan(layout: LinearLayout, axis: int, order: str = ANY) -> ScanPlan | None:
    """The steps in ``layout``, or None where it does not serve: in sequence, where the axis is not
    a chunk; else unless a bit of a register, lane or warp
    moves along the axis by one bit of the coordinate and nowhere else, or not at all along it;
    every bit of the coordinate is moved by one of them; bits of warps follow each other, above
    those of lanes."""
    shift, mask = axis_shifts(layout.shape)[axis], layout.axis_mask(axis)
    found: dict[int, tuple[str, int]] = {}
    for kind, images in ((REGISTER, layout.registers), (LANE, layout.lanes), (WARPS, layout.warps)):
        for bit, image in enumerate(images):
            if not image & mask:
                continue
            position = image.bit_length() - 1 - shift
            if image != 1 << (shift + position) or position in found:
                return None
            found[position] = (kind, 1 << bit)
    if len(found) != log2(layout.shape[axis]):
        return None
    bits = [found[position] for position in range(len(found))]
    first = next(
        (position for position, (kind, _) in enumerate(bits) if kind is not REGISTER), len(bits)
    )
    if order == TREE:
        first = 0
    elif order == SEQUENTIAL and first < len(bits):
        return None
    steps: list[ScanStep] = []
    for position, (kind, number) in enumerate(bits[first:], first):
        if kind is WARPS and steps and steps[-1].kind is WARPS:
            steps[-1] = ScanStep(WARPS, (*steps[-1].masks, number), steps[-1].position)
        elif kind is not REGISTER and any(step.kind is WARPS for step in steps):
            return None
        else:
            steps.append(ScanStep(kind, (number,), position))
    return ScanPlan(tuple(number for _, number in bits[:first]), tuple(steps))


def scan_layout(layout: LinearLayout, axis: int, order: str = ANY) -> LinearLayout:
    """``layout`` itself where a scan along ``axis`` can be done in it, else one to convert to: as
    much of the axis in a thread as it has registers, and all of it for a scan in sequence."""
    if plan_scan(layout, axis, order) is not None:
        return layout
    lanes, warps = 1 << len(layout.lanes), 1 << len(layout.warps)
    numel = 1 << sum(map(log2, layout.shape))
    axes = (axis, *(other for other in reversed(range(len(layout.shape))) if other != axis))
    vector = layout.shape[axis] if order == SEQUENTIAL else max(1, numel // (lanes * warps))
    return blocked(layout.shape, axes, vector, lanes, warps)
