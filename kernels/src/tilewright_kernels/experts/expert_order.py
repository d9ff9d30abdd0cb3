"""The order of tokens by expert: a counting sort, the same in each run."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.reductions.views import contiguous

#: Assignments that a program sorts.
_BLOCK = 1024


class ExpertOrder(NamedTuple):
    """The assignments of tokens to experts, sorted by expert.

    Attributes:
        order: for each row, the number of its assignment. Assignment number ``token * k + i``
            assigns a token to the i-th of its experts.
        slots: for each assignment, the number of its row: the inverse of ``order``.
        starts: the first row of each expert, and at the end the number of all rows.
    """

    order: Any
    slots: Any
    starts: Any


@tw.jit
def count_experts_kernel(experts_ptr, counts_ptr, n, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    is_inside = offsets < n
    expert = tl.load(experts_ptr + offsets, mask=is_inside, other=0).to(tl.int32)
    counts = tl.histogram(expert, EXPERTS, mask=is_inside)
    tl.store(counts_ptr + block * EXPERTS + tl.arange(0, EXPERTS), counts)


@tw.jit
def count_before_kernel(
    counts_ptr,
    before_ptr,
    totals_ptr,
    n_blocks,
    EXPERTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Store how many assignments to each expert the blocks before each have, and all of them."""
    expert = tl.program_id(0) * LANES + tl.arange(0, LANES)
    carried = tl.zeros([LANES], tl.int32)
    for start in range(0, n_blocks, BLOCKS):
        block = start + tl.arange(0, BLOCKS)
        at = block[:, None] * EXPERTS + expert[None, :]
        is_block = (block < n_blocks)[:, None]
        counts = tl.load(counts_ptr + at, mask=is_block, other=0)
        before = carried[None, :] + tl.cumsum(counts, axis=0) - counts
        tl.store(before_ptr + at, before, mask=is_block)
        carried += tl.sum(counts, axis=0)
    tl.store(totals_ptr + expert, carried)


@tw.jit
def place_kernel(
    experts_ptr,
    counts_ptr,
    before_ptr,
    totals_ptr,
    order_ptr,
    slots_ptr,
    starts_ptr,
    n,
    n_experts,
    EXPERTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    block = tl.program_id(0)
    expert = tl.arange(0, EXPERTS)
    totals = tl.load(totals_ptr + expert)
    starts = tl.cumsum(totals, axis=0) - totals
    tl.store(starts_ptr + expert, starts, mask=(expert < n_experts) & (block == 0))
    tl.store(starts_ptr + n_experts, n, mask=block == 0)
    counts = tl.load(counts_ptr + block * EXPERTS + expert)
    # where the expert's first in the sorted block would be, were that at row 0
    base = starts + tl.load(before_ptr + block * EXPERTS + expert)
    base -= tl.cumsum(counts, axis=0) - counts
    lane = tl.arange(0, BLOCK)
    is_inside = block * BLOCK + lane < n
    own = tl.load(experts_ptr + block * BLOCK + lane, mask=is_inside, other=EXPERTS).to(tl.int32)
    key = tl.sort(own * BLOCK + lane)
    chosen, assignment = key // BLOCK, block * BLOCK + key % BLOCK
    is_placed = chosen < EXPERTS
    slot = tl.gather(base, tl.where(is_placed, chosen, 0), 0) + lane
    tl.store(order_ptr + slot, assignment, mask=is_placed)
    tl.store(slots_ptr + assignment, slot, mask=is_placed)


def expert_order_reference(experts: Any, n_experts: int) -> ExpertOrder:
    """Return the order of a stable sort by expert, its inverse, and each expert's first row."""
    xp = array_api_compat.array_namespace(experts)
    flat = xp.reshape(experts, (-1,))
    order = xp.argsort(flat, stable=True)
    bounds = xp.arange(n_experts + 1, device=array_api_compat.device(experts))
    is_below = flat[None, :] < bounds[:, None]
    return ExpertOrder(order, xp.argsort(order), xp.sum(xp.astype(is_below, xp.int32), axis=1))


def _shapes(make: Any, experts: Any, n_experts: int) -> tuple[Any, ...]:
    n = math.prod(experts.shape)
    return make((n,), "int32"), make((n,), "int32"), make((n_experts + 1,), "int32")


def _launch(
    run: Launcher, order: Any, slots: Any, starts: Any, experts: Array, n_experts: int
) -> None:
    n, width = math.prod(experts.shape), max(tw.next_power_of_2(n_experts), 16)
    experts = contiguous(experts)
    n_blocks = max(tw.cdiv(n, _BLOCK), 1)
    counts, before = (run.empty((n_blocks, width), "int32") for _ in range(2))
    totals = run.empty((width,), "int32")
    run(count_experts_kernel, (n_blocks,), experts, counts, n, EXPERTS=width, BLOCK=_BLOCK)
    run(
        count_before_kernel,
        (width // 16,),
        counts,
        before,
        totals,
        n_blocks,
        EXPERTS=width,
        BLOCKS=min(tw.next_power_of_2(n_blocks), 128),
        LANES=16,
    )
    run(
        place_kernel,
        (n_blocks,),
        experts,
        counts,
        before,
        totals,
        order,
        slots,
        starts,
        n,
        n_experts,
        EXPERTS=width,
        BLOCK=_BLOCK,
    )


EXPERT_ORDER = Operation(
    "expert_order",
    ("order", "slots", "starts"),
    _shapes,
    _launch,
    reference=expert_order_reference,
)


def expert_order(experts: Any, n_experts: int) -> ExpertOrder:
    """Sort the assignments of tokens to experts by expert.

    Args:
        experts: of int32 or int64, of shape (tokens, k): the numbers of each token's experts, from
            0 to ``n_experts`` - 1.
        n_experts: number of experts, at most 4096.

    Returns:
        The :class:`ExpertOrder` of the assignments, whose arrays ``order``, ``slots`` and
        ``starts`` are of int32. The result is the same in each run.

    Raises:
        ValueError: there are no experts, or more than 4096.
    """
    if not 1 <= n_experts <= 4096:
        raise ValueError(f"expert_order: there are {n_experts} experts, not 1 to 4096")
    return ExpertOrder(*EXPERT_ORDER(experts, n_experts))
