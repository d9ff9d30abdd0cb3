"""The forward pass of attention: online softmax over blocks of keys."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.attention.scores import (
    LN_2,
    LOG2_E,
    head_of,
    kept_scores,
    key_spans,
    load_block,
    modified_scores,
    sequence,
    store_block,
)


@tw.jit
def forward_span(
    accumulator, total, highest, q, k_ptr, v_ptr, k_stride, v_stride, k_first, k_end,
    rows, first, last, n_q, n_k, scale, softcap, left, right,
    batch, head, slope, bias_ptr, bias_row, bias_column,
    MASKED: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr,
    MASK: tl.constexpr, SOFTCAP: tl.constexpr, SLOPES: tl.constexpr,
    N: tl.constexpr, D: tl.constexpr, D_V: tl.constexpr,
    PADDED: tl.constexpr, PADDED_V: tl.constexpr, BACKWARDS: tl.constexpr = False,
):  # fmt: skip
    """Update the running softmax with the keys from ``first`` to ``last``.

    With BACKWARDS, they begin at 0, and the last block, the only one on the diagonal, comes first.
    """
    BENT: tl.constexpr = SOFTCAP or SLOPES or bias_ptr is not None
    # each row sees a key of its first block
    DIAGONAL: tl.constexpr = RIGHT and SQUARE and not LEFT and MASK is None and not BENT
    log2_scale = scale * LOG2_E
    for place in range(first, last, N):
        start = last - N - place if BACKWARDS else place
        tl.assume(k_first + start >= 0)
        k = load_block(k_ptr, k_first + start, k_stride, k_end, N, D, PADDED)
        scores = tl.dot(q, tl.trans(k))
        if DIAGONAL and MASKED:
            kept = (start + tl.arange(0, N))[None, :] <= rows[:, None]
            if BACKWARDS:
                kept = kept | (place > 0)
            scores = tl.where(kept, scores, -float("inf"))
        if BENT or (MASKED and not DIAGONAL):
            row, column = rows[:, None], (start + tl.arange(0, N))[None, :]
            if BENT:
                scores, _ = modified_scores(
                    scores, row, column, n_q, n_k, scale, softcap, slope,
                    bias_ptr, bias_row, bias_column, SOFTCAP, SLOPES,
                )  # fmt: skip
            else:
                scores = scores * log2_scale
            if MASKED:
                kept = kept_scores(
                    row, column, n_q, n_k, left, right, batch, head, LEFT, RIGHT, SQUARE, MASK
                )
                scores = tl.where(kept, scores, -float("inf"))
            new = tl.maximum(highest, tl.max(scores, 1))
            # rows without keys so far subtract 0
            base = tl.where(new == -float("inf"), 0.0, new)
            scores = scores - base[:, None]
            shrink = tl.math.exp2(highest - base)
        else:
            new = tl.maximum(highest, tl.max(scores, 1) * log2_scale)
            scores = scores * log2_scale - new[:, None]
            shrink = tl.math.exp2(highest - new)
        weights = tl.math.exp2(scores)
        accumulator = accumulator * shrink[:, None]
        v = load_block(v_ptr, k_first + start, v_stride, k_end, N, D_V, PADDED_V)
        accumulator = tl.dot(weights.to(v.dtype), v, accumulator)
        total = total * shrink + tl.sum(weights, 1)
        highest = new
    return accumulator, total, highest


@tw.jit
def forward_tile(
    block, head, batch,
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sinks_ptr, slopes_ptr, bias_ptr, cu_q_ptr, cu_k_ptr,
    q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
    out_batch, out_row, out_head, lse_batch, lse_head, slopes_batch,
    bias_batch, bias_head, bias_row, bias_column,
    n_q, n_k, total_k, scale, softcap, left, right,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr, EVEN: tl.constexpr,
    MASK: tl.constexpr, SOFTCAP: tl.constexpr, GROUP: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr, D_V: tl.constexpr, PADDED: tl.constexpr, PADDED_V: tl.constexpr,
    BACKWARDS: tl.constexpr = False,
):  # fmt: skip
    """Compute M rows of a head; BACKWARDS: causal ones from their last key to the first."""
    row = block * M
    SLOPES: tl.constexpr = slopes_ptr is not None
    q_first, n_q = sequence(cu_q_ptr, batch, n_q)
    k_first, n_k = sequence(cu_k_ptr, batch, n_k)
    if cu_k_ptr is None:
        k_end = n_k
    else:
        k_end = total_k
        tl.assume(k_first >= 0)
    k_ptr = head_of(k_ptr, cu_k_ptr, batch, head // GROUP, k_batch, k_head)
    v_ptr = head_of(v_ptr, cu_k_ptr, batch, head // GROUP, v_batch, v_head)
    q_ptr = head_of(q_ptr, cu_q_ptr, batch, head, q_batch, q_head)
    out_ptr = head_of(out_ptr, cu_q_ptr, batch, head, out_batch, out_head)
    rows = row + tl.arange(0, M)
    slope, bias = 0.0, bias_ptr
    if SLOPES:
        slope = tl.load(slopes_ptr + batch * slopes_batch + head).to(tl.float32)
    if bias_ptr is not None:
        bias = head_of(bias_ptr, None, batch, head, bias_batch, bias_head)
    tl.assume(q_first + row >= 0)
    q = load_block(q_ptr, q_first + row, q_row, q_first + n_q, M, D, PADDED)
    highest = tl.full([M], -float("inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    accumulator = tl.zeros([M, PADDED_V], tl.float32)
    BENT: tl.constexpr = SOFTCAP or SLOPES or bias_ptr is not None
    ALIGNED: tl.constexpr = SQUARE and RIGHT and not LEFT and M == N
    if BACKWARDS and ALIGNED and MASK is None and not BENT:
        # the block on the diagonal alone has a mask
        accumulator, total, highest = forward_span(
            accumulator, total, highest, q, k_ptr, v_ptr, k_row, v_row, k_first, k_end,
            rows, 0, row + M, n_q, n_k, scale, softcap, left, right,
            batch, head, slope, bias, bias_row, bias_column,
            True, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES, N, D, D_V, PADDED, PADDED_V, True,
        )  # fmt: skip
    else:
        first, full, masked, last = key_spans(row, n_q, n_k, left, right, LEFT, RIGHT, SQUARE, M, N)
        if LEFT:
            accumulator, total, highest = forward_span(
                accumulator, total, highest, q, k_ptr, v_ptr, k_row, v_row, k_first, k_first + n_k,
                rows, first, full, n_q, n_k, scale, softcap, left, right,
                batch, head, slope, bias, bias_row, bias_column,
                True, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES, N, D, D_V, PADDED, PADDED_V,
            )  # fmt: skip
        accumulator, total, highest = forward_span(
            accumulator, total, highest, q, k_ptr, v_ptr, k_row, v_row, k_first, k_end,
            rows, full, masked, n_q, n_k, scale, softcap, left, right,
            batch, head, slope, bias, bias_row, bias_column,
            MASK is not None, False, False, False, MASK, SOFTCAP, SLOPES,
            N, D, D_V, PADDED, PADDED_V,
        )  # fmt: skip
        if RIGHT or not EVEN:
            accumulator, total, highest = forward_span(
                accumulator, total, highest, q, k_ptr, v_ptr, k_row, v_row, k_first, k_first + n_k,
                rows, masked, last, n_q, n_k, scale, softcap, left, right,
                batch, head, slope, bias, bias_row, bias_column,
                True, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES, N, D, D_V, PADDED, PADDED_V,
            )  # fmt: skip
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + head).to(tl.float32) * LOG2_E
        new = tl.maximum(highest, sink)
        shrink = tl.math.exp2(highest - new)
        accumulator = accumulator * shrink[:, None]
        total = total * shrink + tl.math.exp2(sink - new)
        highest = new
    if lse_ptr is not None:
        at = head_of(lse_ptr, None, batch, head, lse_batch, lse_head) + q_first
        tl.store(at + rows, (highest + tl.math.log2(total)) * LN_2, mask=rows < n_q)
    accumulator = accumulator * (1.0 / tl.where(total == 0.0, 1.0, total))[:, None]
    store_block(out_ptr, q_first + row, out_row, q_first + n_q, accumulator, M, D_V, PADDED_V)


@tw.jit
def tile_of(tile, blocks, heads, LONG_AND_SHORT: tl.constexpr):
    """Return the block of rows, the head and the batch of a tile: heads one after the other.

    With LONG_AND_SHORT, a head's blocks go from the ends to the middle, the last one first, so
    that each two in a row have as many keys as any other two of a causal head.
    """
    block, head = tile % blocks, tile // blocks
    if LONG_AND_SHORT:
        block = tl.where(block % 2 == 0, blocks - 1 - block // 2, block // 2)
    return block, head % heads, head // heads


@tw.jit(do_not_specialize=["heads", "batches"])
def attention_forward_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sinks_ptr, slopes_ptr, bias_ptr, cu_q_ptr, cu_k_ptr,
    q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
    out_batch, out_row, out_head, lse_batch, lse_head, slopes_batch,
    bias_batch, bias_head, bias_row, bias_column,
    n_q, n_k, total_k, scale, softcap, left, right, heads, batches,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr, EVEN: tl.constexpr,
    MASK: tl.constexpr, SOFTCAP: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr, D_V: tl.constexpr, PADDED: tl.constexpr, PADDED_V: tl.constexpr,
):  # fmt: skip
    """Compute rows of heads by blocks of M: programs are (blocks of rows, heads, batches).

    Persistent programs, PROGRAMS of them, take a tile after the other; two in a row, a long and a
    short one, where rows see no later keys.
    """
    if PROGRAMS:
        EACH: tl.constexpr = 2 if RIGHT else 1
        blocks, program = tl.cdiv(n_q, M), tl.program_id(0)
        tiles = blocks * heads * batches
        runs = tl.cdiv(tl.cdiv(tiles, EACH) - program, PROGRAMS)
        # the last run may have one tile less
        is_last = (program + (runs - 1) * PROGRAMS + 1) * EACH > tiles
        for turn in tl.range(runs * EACH - is_last.to(tl.int32)):
            tile = (program + turn // EACH * PROGRAMS) * EACH + turn % EACH
            block, head, batch = tile_of(tile, blocks, heads, RIGHT)
            forward_tile(
                block, head, batch,
                q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sinks_ptr, slopes_ptr, bias_ptr,
                cu_q_ptr, cu_k_ptr,
                q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
                out_batch, out_row, out_head, lse_batch, lse_head, slopes_batch,
                bias_batch, bias_head, bias_row, bias_column,
                n_q, n_k, total_k, scale, softcap, left, right,
                LEFT, RIGHT, SQUARE, EVEN, MASK, SOFTCAP, GROUP,
                M, N, D, D_V, PADDED, PADDED_V, True,
            )  # fmt: skip
    else:
        block, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
        if RIGHT:
            block = tl.num_programs(0) - 1 - block  # the longest first
        forward_tile(
            block, head, batch,
            q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sinks_ptr, slopes_ptr, bias_ptr,
            cu_q_ptr, cu_k_ptr,
            q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
            out_batch, out_row, out_head, lse_batch, lse_head, slopes_batch,
            bias_batch, bias_head, bias_row, bias_column,
            n_q, n_k, total_k, scale, softcap, left, right,
            LEFT, RIGHT, SQUARE, EVEN, MASK, SOFTCAP, GROUP,
            M, N, D, D_V, PADDED, PADDED_V,
        )  # fmt: skip
