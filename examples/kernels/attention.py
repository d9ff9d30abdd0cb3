"""Flash attention forward: softmax(q kᵀ · scale) v without stored scores (Dao et al., 2022)."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl


@tw.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, scale, length,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    base = head.to(tl.int64) * length * HEAD
    rows = start_m + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD)
    row_inside = rows < length
    q = tl.load(
        q_ptr + base + rows[:, None] * HEAD + dims[None, :], mask=row_inside[:, None], other=0.0
    )

    highest = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    accumulator = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    log2_scale = scale * 1.44269504  # exp(x) = exp2(x / ln 2)
    end = tl.minimum(start_m + BLOCK_M, length) if CAUSAL else length
    for start_n in range(0, end, BLOCK_N):
        columns = start_n + tl.arange(0, BLOCK_N)
        column_inside = columns < length
        k = tl.load(
            k_ptr + base + columns[:, None] * HEAD + dims[None, :],
            mask=column_inside[:, None],
            other=0.0,
        )
        v = tl.load(
            v_ptr + base + columns[:, None] * HEAD + dims[None, :],
            mask=column_inside[:, None],
            other=0.0,
        )
        scores = tl.dot(q, tl.trans(k)) * log2_scale
        if CAUSAL:
            scores = tl.where(
                (rows[:, None] >= columns[None, :]) & column_inside[None, :], scores, -float("inf")
            )
        else:
            scores = tl.where(column_inside[None, :], scores, -float("inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=1))
        correction = tl.exp2(highest - new_highest)
        weights = tl.exp2(scores - new_highest[:, None])
        total = total * correction + tl.sum(weights, axis=1)
        accumulator = accumulator * correction[:, None]
        accumulator = tl.dot(weights.to(v.dtype), v, accumulator)
        highest = new_highest

    accumulator = accumulator / total[:, None]
    tl.store(lse_ptr + head * length + rows, highest + tl.log2(total), mask=row_inside)
    out_ptrs = out_ptr + base + rows[:, None] * HEAD + dims[None, :]
    tl.store(out_ptrs, accumulator.to(out_ptr.dtype.element_ty), mask=row_inside[:, None])


def attention(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    causal: bool = False,
    block: tuple[int, int] = (64, 64),
) -> Any:
    """Compute attention of C-contiguous ``q``, ``k``, ``v`` [heads, length, head dimension].

    ``lse`` [heads, length] receives log2 of the row sums.
    """
    heads, length, head = q.shape
    grid = (tw.cdiv(length, block[0]), heads)
    attention_kernel[grid](
        q,
        k,
        v,
        out,
        lse,
        head**-0.5,
        length,
        CAUSAL=causal,
        BLOCK_M=block[0],
        BLOCK_N=block[1],
        HEAD=head,
    )
    return out
