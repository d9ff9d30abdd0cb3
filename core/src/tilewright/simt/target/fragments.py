"""Fragments: the registers of a matmul operand that one step along K reads, as a tile of packed
registers that a loop can carry."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import TileType, Type
from tilewright.simt.layouts.linear_layout import LinearLayout, coordinates, log2
from tilewright.simt.target.matmul_plan import MatmulPlan
from tilewright.simt.target.simt_target import SimtTarget


def fragment(plan: MatmulPlan, position: int, element: Type, num_warps: int, target: SimtTarget) -> tuple[TileType, LinearLayout]:
    """The type and the layout of a ``simt.fragment`` of an operand."""
    layout, axis = plan.operand(position), k_axis(plan, position)
    word, count = target.fragment_word(element)
    registers, lanes, warps = len(step_registers(layout, axis, 0, plan.k_step)) // count, target.warp_size, num_warps
    shape = (registers * lanes * warps,)
    bits = [1 << bit for bit in range(log2(shape[0]))]
    threads = log2(lanes), log2(lanes * warps)
    return TileType(shape, word), LinearLayout(shape, tuple(bits[threads[1] :]), tuple(bits[: threads[0]]), tuple(bits[threads[0] : threads[1]]))


def k_axis(plan: MatmulPlan, position: int) -> int:
    """The axis of operand 0 or 1 that the matmul sums over."""
    return len(plan.operand(position).shape) - 1 - position


def step_registers(layout: LinearLayout, axis: int, first: int, step: int) -> Sequence[int]:
    """The registers whose coordinate along ``axis`` is in a step: from ``first``, a multiple of the
    power of two ``step``, on; all for step 0. What lanes and warps add to the coordinate is less
    than a step."""
    if not step:
        return range(layout.register_count)
    return [register for register, element in enumerate(layout.register_elements()) if coordinates(element, layout.shape)[axis] & -step == first]
