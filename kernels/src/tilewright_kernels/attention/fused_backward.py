"""The backward pass of attention in one kernel, which adds to the gradient of queries atomically.

It computes five matmuls for each block of scores, where :mod:`.backward_kernels` computes seven: a
program has a block of keys, and adds its terms of the gradient of a block of queries to sums in
memory. Their order changes from launch to launch, and so do the last bits of this gradient.
"""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.attention.scores import (
    distance,
    first_block_row,
    head_of,
    load_block,
    recomputed_weights,
    row_spans,
    sequence,
    store_block,
)


@tw.jit
def fused_gradients_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_blocks_ptr, delta_blocks_ptr, dq_sums_ptr, dk_ptr, dv_ptr,
    distances_ptr, slopes_ptr, bias_ptr, cu_q_ptr, cu_k_ptr,
    q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
    dout_batch, dout_row, dout_head, dk_batch, dk_row, dk_head, dv_batch, dv_row, dv_head,
    blocks_batch, blocks_head, blocks_rows, distances_batch, distances_head,
    slopes_batch, bias_batch, bias_head, bias_row, bias_column,
    n_q, n_k, total_q, scale, softcap, left, right,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr, EVEN: tl.constexpr,
    MASK: tl.constexpr, SOFTCAP: tl.constexpr, GROUP: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr, D_V: tl.constexpr, PADDED: tl.constexpr, PADDED_V: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of N keys and values, and add to those of the queries that see them.

    Programs are (blocks of keys, heads of k, batches). Tiles of scores have keys along the rows, so
    that the operands of dK and dV stay in registers. Where there is memory for them, the sums of
    keys for the gradients of slopes are stored.
    """
    column, key_head, batch = tl.program_id(0) * N, tl.program_id(1), tl.program_id(2)
    SLOPES: tl.constexpr = slopes_ptr is not None
    DISTANCES: tl.constexpr = distances_ptr is not None
    MODIFIED: tl.constexpr = SOFTCAP or SLOPES or bias_ptr is not None
    # the weights of keys past the end may be infinite
    MASKED: tl.constexpr = LEFT or RIGHT or MASK is not None or not EVEN
    q_first, n_q = sequence(cu_q_ptr, batch, n_q)
    k_first, n_k = sequence(cu_k_ptr, batch, n_k)
    if cu_k_ptr is None:
        q_end = n_q
    else:
        q_end = total_q
        tl.assume(q_first >= 0)
    k_ptr = head_of(k_ptr, cu_k_ptr, batch, key_head, k_batch, k_head)
    v_ptr = head_of(v_ptr, cu_k_ptr, batch, key_head, v_batch, v_head)
    dk_ptr = head_of(dk_ptr, cu_k_ptr, batch, key_head, dk_batch, dk_head)
    dv_ptr = head_of(dv_ptr, cu_k_ptr, batch, key_head, dv_batch, dv_head)
    columns = column + tl.arange(0, N)
    k = load_block(k_ptr, k_first + column, k_row, k_first + n_k, N, D, PADDED)
    v = load_block(v_ptr, k_first + column, v_row, k_first + n_k, N, D_V, PADDED_V)
    lse_blocks = tl.make_tensor_descriptor(lse_blocks_ptr, [blocks_rows], [1], [M])
    delta_blocks = tl.make_tensor_descriptor(delta_blocks_ptr, [blocks_rows], [1], [M])
    dq_sums = tl.make_tensor_descriptor(
        dq_sums_ptr, [blocks_rows, PADDED], [PADDED, 1], [M, PADDED]
    )
    dk = tl.zeros([N, PADDED], tl.float32)
    dv = tl.zeros([N, PADDED_V], tl.float32)
    first, _, _, last = row_spans(column, n_q, n_k, left, right, LEFT, RIGHT, SQUARE, M, N)
    for member in tl.range(GROUP):
        head = key_head * GROUP + member
        slope, bias = 0.0, bias_ptr
        if SLOPES:
            slope = tl.load(slopes_ptr + batch * slopes_batch + head).to(tl.float32)
        if bias_ptr is not None:
            bias = head_of(bias_ptr, None, batch, head, bias_batch, bias_head)
        queries = head_of(q_ptr, cu_q_ptr, batch, head, q_batch, q_head)
        cotangents = head_of(dout_ptr, cu_q_ptr, batch, head, dout_batch, dout_head)
        begin = first_block_row(q_first, batch, head, blocks_batch, blocks_head, M)
        distances = tl.zeros([N], tl.float32)
        for start in tl.range(first, last, M, warp_specialize=True):
            tl.assume(q_first + start >= 0)
            q = load_block(queries, q_first + start, q_row, q_end, M, D, PADDED)
            dout = load_block(cotangents, q_first + start, dout_row, q_end, M, D_V, PADDED_V)
            lse = lse_blocks.load([begin + start])
            delta = delta_blocks.load([begin + start])
            products = tl.dot(k, tl.trans(q))
            # runs while weights are computed
            dweights = tl.dot(v, tl.trans(dout))
            rows = (start + tl.arange(0, M))[None, :]
            weights, derivative = recomputed_weights(
                products, lse[None, :], rows, columns[:, None], n_q, n_k, scale, softcap,
                left, right, batch, head, slope, bias, bias_row, bias_column,
                MASKED, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES,
            )  # fmt: skip
            dv = tl.dot(weights.to(dout.dtype), dout, dv)
            dscores = weights * (dweights - delta[None, :])
            if DISTANCES:
                distances += tl.sum(dscores * distance(rows, columns[:, None], n_q, n_k), 1)
            if MODIFIED:
                dscores = dscores * derivative
            rounded = dscores.to(q.dtype)
            dq = tl.dot(tl.trans(rounded), k)
            # runs while the gradient of queries is stored
            dk = tl.dot(rounded, q, dk)
            dq_sums.atomic_add([begin + start, 0], dq)
        if DISTANCES:
            at = batch.to(tl.int64) * distances_batch + head.to(tl.int64) * distances_head + k_first
            tl.store(distances_ptr + at + columns, distances, mask=columns < n_k)
    if not MODIFIED:
        dk = dk * scale
    store_block(dk_ptr, k_first + column, dk_row, k_first + n_k, dk, N, D, PADDED)
    store_block(dv_ptr, k_first + column, dv_row, k_first + n_k, dv, N, D_V, PADDED_V)


@tw.jit
def scaled_sums_kernel(
    sums_ptr, dq_ptr, cu_q_ptr, blocks_batch, blocks_head, dq_batch, dq_row, dq_head, n_q, scale,
    M: tl.constexpr, D: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Compute M rows of the gradient of queries from its sums.

    Programs are (blocks of rows, heads, batches); M is that of the blocks of the sums.
    """
    row, head, batch = tl.program_id(0) * M, tl.program_id(1), tl.program_id(2)
    first, n_q = sequence(cu_q_ptr, batch, n_q)
    begin = first_block_row(first, batch, head, blocks_batch, blocks_head, M)
    sums = load_block(sums_ptr, begin + row, PADDED, begin + n_q, M, PADDED, PADDED)
    dq_ptr = head_of(dq_ptr, cu_q_ptr, batch, head, dq_batch, dq_head)
    store_block(dq_ptr, first + row, dq_row, first + n_q, sums * scale, M, D, PADDED)
