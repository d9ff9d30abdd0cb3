"""Reduction of the losses of rows, and its backward pass."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Launcher

#: Names of reductions, as those of PyTorch's losses.
REDUCTIONS = ("none", "mean", "sum")
_BLOCK = 4096


@tw.jit
def reduce_losses_kernel(
    losses_ptr,
    target_ptr,
    total_ptr,
    count_ptr,
    n_rows,
    ignore_index,
    MEAN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum losses in one program, and count the rows whose target is not ignored."""
    total = tl.zeros([BLOCK], tl.float32)
    counts = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_rows, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        inside = rows < n_rows
        total += tl.load(losses_ptr + rows, mask=inside, other=0.0)
        if target_ptr is None:
            counts += inside.to(tl.float32)
        else:
            target = tl.load(target_ptr + rows, mask=inside, other=ignore_index)
            counts += (target != ignore_index).to(tl.float32)
    count = tl.sum(counts, axis=0)
    found = tl.sum(total, axis=0)
    tl.store(total_ptr, found / count if MEAN else found)
    if count_ptr is not None:
        tl.store(count_ptr, count)


@tw.jit
def spread_kernel(d_loss_ptr, d_losses_ptr, n_rows, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """Return the cotangent of each row's loss from that of their sum or mean."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d_loss = tl.load(d_loss_ptr).to(tl.float32)
    d_loss = d_loss / n_rows if MEAN else d_loss
    tl.store(d_losses_ptr + rows, tl.zeros([BLOCK], tl.float32) + d_loss, mask=rows < n_rows)


def launch_reduction(
    run: Launcher,
    reduction: str,
    losses: Any,
    target: Any,
    total: Any,
    count: Any,
    n_rows: int,
    ignore_index: int,
) -> None:
    """Reduce losses of rows to their sum or mean.

    Args:
        run: launches the kernel.
        reduction: ``"mean"`` or ``"sum"``.
        losses: of shape (rows,).
        target: the class of each row, or None where all rows count.
        total: the result.
        count: receives the number of rows that count, or is None.
        n_rows: the number of rows.
        ignore_index: the class of rows that do not count.
    """
    block = min(_BLOCK, tw.next_power_of_2(max(n_rows, 1)))
    run(
        reduce_losses_kernel,
        (1,),
        losses,
        target,
        total,
        count,
        n_rows,
        ignore_index,
        MEAN=reduction == "mean",
        BLOCK=block,
        num_warps=min(max(block // 256, 1), 16),
    )


def spread(run: Launcher, reduction: str, d_loss: Any, n_rows: int) -> Any:
    """Return the cotangents of the losses of rows."""
    found = run.empty((n_rows,), "float32")
    run(
        spread_kernel,
        (tw.cdiv(n_rows, 1024),),
        d_loss,
        found,
        n_rows,
        MEAN=reduction == "mean",
        BLOCK=1024,
        num_warps=4,
    )
    return found


def check_reduction(reduction: str) -> None:
    """Check the name of a reduction.

    Raises:
        ValueError: there is none of that name.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction is {reduction!r}: give one of {', '.join(REDUCTIONS)}")


def reduced(xp: Any, losses: Any, reduction: str) -> Any:
    """Return the reduction of losses in a reference."""
    if reduction == "none":
        return losses
    return xp.mean(losses) if reduction == "mean" else xp.sum(losses)
