"""Fragments: an operand's registers for one step along K, as a tile of packed registers.

A loop can carry such a tile.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import TileType, Type
from tilewright.simt.layouts.linear_layout import LinearLayout, coordinates, log2
from tilewright.simt.target.matmul_plan import MatmulPlan
from tilewright.simt.target.simt_target import SimtTarget


def fragment(
    plan: MatmulPlan, position: int, element: Type, num_warps: int, target: SimtTarget
) -> tuple[TileType, LinearLayout]:
    """Return the type and the layout of a ``simt.fragment`` of an operand."""
    layout, axis = plan.operand(position), k_axis(plan, position)
    word, count = target.matrix.fragment_word(element)
    registers, lanes, warps = (
        len(step_registers(layout, axis, 0, plan.k_step)) // count,
        target.resources.warp_size,
        num_warps,
    )
    shape = (registers * lanes * warps,)
    bits = [1 << bit for bit in range(log2(shape[0]))]
    threads = log2(lanes), log2(lanes * warps)
    return TileType(shape, word), LinearLayout(
        shape,
        tuple(bits[threads[1] :]),
        tuple(bits[: threads[0]]),
        tuple(bits[threads[0] : threads[1]]),
    )


def k_axis(plan: MatmulPlan, position: int) -> int:
    """Return the axis of operand 0 or 1 that the matmul sums over."""
    return len(plan.operand(position).shape) - 1 - position


def step_registers(layout: LinearLayout, axis: int, first: int, step: int) -> Sequence[int]:
    """Return the registers of a step, by their coordinates along ``axis``.

    A step begins at ``first``, a multiple of the power of two ``step``; step 0 has all registers.
    Lanes and warps contribute less than a step to the coordinate.
    """
    if not step:
        return range(layout.register_count)
    return [
        register
        for register, element in enumerate(layout.register_elements())
        if coordinates(element, layout.shape)[axis] & -step == first
    ]
