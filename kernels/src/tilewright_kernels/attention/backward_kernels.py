"""The deterministic backward pass of attention, in three kernels without atomic additions.

Weights are recomputed from the logarithms of the row sums. The kernel of keys and values keeps
its tiles transposed, with keys along the rows, so that no matmul transposes weights.
"""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.attention.scores import (
    LOG2_E,
    distance,
    first_block_row,
    head_of,
    key_spans,
    load_block,
    recomputed_weights,
    row_spans,
    sequence,
    store_block,
)


@tw.jit
def row_products_kernel(
    out_ptr, dout_ptr, lse_ptr, dlse_ptr, delta_ptr, lse_blocks_ptr, delta_blocks_ptr, cu_q_ptr,
    out_batch, out_row, out_head, dout_batch, dout_row, dout_head,
    lse_batch, lse_head, dlse_batch, dlse_head, blocks_batch, blocks_head, n_q,
    M: tl.constexpr, D: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Compute ``sum(out * dout) - dlse`` of each row, and store it in whole blocks of rows too.

    With it go the logarithms of row sums, in units of log2; rows past the end have inf.
    """
    row, head, batch = tl.program_id(0) * M, tl.program_id(1), tl.program_id(2)
    first, n_q = sequence(cu_q_ptr, batch, n_q)
    out_ptr = head_of(out_ptr, cu_q_ptr, batch, head, out_batch, out_head)
    dout_ptr = head_of(dout_ptr, cu_q_ptr, batch, head, dout_batch, dout_head)
    out = load_block(out_ptr, first + row, out_row, first + n_q, M, D, PADDED).to(tl.float32)
    dout = load_block(dout_ptr, first + row, dout_row, first + n_q, M, D, PADDED).to(tl.float32)
    delta = tl.sum(out * dout, 1)
    rows = row + tl.arange(0, M)
    if dlse_ptr is not None:
        at = head_of(dlse_ptr, None, batch, head, dlse_batch, dlse_head) + first
        delta -= tl.load(at + rows, mask=rows < n_q, other=0.0)
    at = head_of(delta_ptr, None, batch, head, lse_batch, lse_head) + first
    tl.store(at + rows, delta, mask=rows < n_q)
    if lse_blocks_ptr is not None:
        at = head_of(lse_ptr, None, batch, head, lse_batch, lse_head) + first
        lse = tl.load(at + rows, mask=rows < n_q, other=float("inf"))
        at = first_block_row(first, batch, head, blocks_batch, blocks_head, M) + rows
        inside = rows < tl.cdiv(n_q, M) * M
        tl.store(lse_blocks_ptr + at, lse * LOG2_E, mask=inside)
        tl.store(delta_blocks_ptr + at, delta, mask=inside)


@tw.jit
def sinks_gradient_kernel(
    sinks_ptr, lse_ptr, delta_ptr, dsinks_ptr, heads, n_rows, lse_batch, lse_head, batches,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a head's sink: minus its weights times the row products."""
    head = tl.program_id(0)
    sink = tl.load(sinks_ptr + head).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for batch in range(batches):
        base = batch.to(tl.int64) * lse_batch + head.to(tl.int64) * lse_head
        for start in range(0, n_rows, BLOCK):
            rows = start + tl.arange(0, BLOCK)
            lse = tl.load(lse_ptr + base + rows, mask=rows < n_rows, other=float("inf"))
            delta = tl.load(delta_ptr + base + rows, mask=rows < n_rows, other=0.0)
            total -= tl.math.exp2((sink - lse) * LOG2_E) * delta
    tl.store(dsinks_ptr + head, tl.sum(total, 0))


@tw.jit
def key_span(
    dk, dv, k, v, q_ptr, dout_ptr, lse_ptr, delta_ptr, q_row, dout_row, q_first, q_end,
    columns, first, last, n_q, n_k, scale, softcap, left, right,
    batch, head, slope, bias_ptr, bias_row, bias_column,
    MASKED: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr,
    MASK: tl.constexpr, SOFTCAP: tl.constexpr, SLOPES: tl.constexpr, M: tl.constexpr,
    D: tl.constexpr, D_V: tl.constexpr, PADDED: tl.constexpr, PADDED_V: tl.constexpr,
):  # fmt: skip
    """Add the terms of the rows from ``first`` to ``last`` to the gradients of a block of keys."""
    BENT: tl.constexpr = SOFTCAP or SLOPES or bias_ptr is not None
    for start in range(first, last, M):
        tl.assume(q_first + start >= 0)
        rows = start + tl.arange(0, M)
        inside = rows < n_q
        q = load_block(q_ptr, q_first + start, q_row, q_end, M, D, PADDED)
        dout = load_block(dout_ptr, q_first + start, dout_row, q_end, M, D_V, PADDED_V)
        # rows past the end weigh nothing
        lse = tl.load(lse_ptr + rows, mask=inside, other=float("inf")) * LOG2_E
        delta = tl.load(delta_ptr + rows, mask=inside, other=0.0)
        products = tl.dot(k, tl.trans(q))
        row, column = rows[None, :], columns[:, None]
        weights, derivative = recomputed_weights(
            products, lse[None, :], row, column, n_q, n_k, scale, softcap, left, right,
            batch, head, slope, bias_ptr, bias_row, bias_column,
            MASKED, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES,
        )  # fmt: skip
        dv = tl.dot(weights.to(dout.dtype), dout, dv)
        dscores = weights * (tl.dot(v, tl.trans(dout)) - delta[None, :])
        if BENT:
            dscores = dscores * derivative
        dk = tl.dot(dscores.to(q.dtype), q, dk)
    return dk, dv


@tw.jit
def keys_gradient_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr,
    slopes_ptr, bias_ptr, cu_q_ptr, cu_k_ptr,
    q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
    dout_batch, dout_row, dout_head, dk_batch, dk_row, dk_head, dv_batch, dv_row, dv_head,
    lse_batch, lse_head, slopes_batch, bias_batch, bias_head, bias_row, bias_column,
    n_q, n_k, total_q, scale, softcap, left, right,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr,
    MASK: tl.constexpr, SOFTCAP: tl.constexpr, GROUP: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr, D_V: tl.constexpr, PADDED: tl.constexpr, PADDED_V: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of N keys and values: programs are (blocks of keys, heads, batches)."""
    column, key_head, batch = tl.program_id(0) * N, tl.program_id(1), tl.program_id(2)
    SLOPES: tl.constexpr = slopes_ptr is not None
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
    dk = tl.zeros([N, PADDED], tl.float32)
    dv = tl.zeros([N, PADDED_V], tl.float32)
    first, full, masked, last = row_spans(column, n_q, n_k, left, right, LEFT, RIGHT, SQUARE, M, N)
    for member in tl.range(GROUP):
        head = key_head * GROUP + member
        slope, bias = 0.0, bias_ptr
        if SLOPES:
            slope = tl.load(slopes_ptr + batch * slopes_batch + head).to(tl.float32)
        if bias_ptr is not None:
            bias = head_of(bias_ptr, None, batch, head, bias_batch, bias_head)
        queries = head_of(q_ptr, cu_q_ptr, batch, head, q_batch, q_head)
        cotangents = head_of(dout_ptr, cu_q_ptr, batch, head, dout_batch, dout_head)
        at = batch.to(tl.int64) * lse_batch + head.to(tl.int64) * lse_head + q_first
        if RIGHT:
            dk, dv = key_span(
                dk, dv, k, v, queries, cotangents, lse_ptr + at, delta_ptr + at, q_row, dout_row,
                q_first, q_end, columns, first, full, n_q, n_k, scale, softcap, left, right,
                batch, head, slope, bias, bias_row, bias_column,
                True, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES, M, D, D_V, PADDED, PADDED_V,
            )  # fmt: skip
        dk, dv = key_span(
            dk, dv, k, v, queries, cotangents, lse_ptr + at, delta_ptr + at, q_row, dout_row,
            q_first, q_end, columns, full, masked, n_q, n_k, scale, softcap, left, right,
            batch, head, slope, bias, bias_row, bias_column,
            MASK is not None, False, False, False, MASK, SOFTCAP, SLOPES,
            M, D, D_V, PADDED, PADDED_V,
        )  # fmt: skip
        if LEFT:
            dk, dv = key_span(
                dk, dv, k, v, queries, cotangents, lse_ptr + at, delta_ptr + at, q_row, dout_row,
                q_first, q_end, columns, masked, last, n_q, n_k, scale, softcap, left, right,
                batch, head, slope, bias, bias_row, bias_column,
                True, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES, M, D, D_V, PADDED, PADDED_V,
            )  # fmt: skip
    if not (SOFTCAP or SLOPES or bias_ptr is not None):
        dk = dk * scale
    store_block(dk_ptr, k_first + column, dk_row, k_first + n_k, dk, N, D, PADDED)
    store_block(dv_ptr, k_first + column, dv_row, k_first + n_k, dv, N, D_V, PADDED_V)


@tw.jit
def query_span(
    dq, distances, q, dout, lse, delta, k_ptr, v_ptr, k_row, v_row, k_first, k_end,
    rows, first, last, n_q, n_k, scale, softcap, left, right,
    batch, head, slope, bias_ptr, bias_row, bias_column,
    MASKED: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr,
    MASK: tl.constexpr, SOFTCAP: tl.constexpr, SLOPES: tl.constexpr, DISTANCES: tl.constexpr,
    N: tl.constexpr, D: tl.constexpr, D_V: tl.constexpr, PADDED: tl.constexpr,
    PADDED_V: tl.constexpr,
):  # fmt: skip
    """Add the terms of the keys from ``first`` to ``last`` to the gradient of a block of rows.

    With DISTANCES, the gradients of scores times their distances are added, too.
    """
    BENT: tl.constexpr = SOFTCAP or SLOPES or bias_ptr is not None
    for start in range(first, last, N):
        tl.assume(k_first + start >= 0)
        k = load_block(k_ptr, k_first + start, k_row, k_end, N, D, PADDED)
        v = load_block(v_ptr, k_first + start, v_row, k_end, N, D_V, PADDED_V)
        products = tl.dot(q, tl.trans(k))
        row, column = rows[:, None], (start + tl.arange(0, N))[None, :]
        weights, derivative = recomputed_weights(
            products, lse[:, None], row, column, n_q, n_k, scale, softcap, left, right,
            batch, head, slope, bias_ptr, bias_row, bias_column,
            MASKED, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES,
        )  # fmt: skip
        dscores = weights * (tl.dot(dout, tl.trans(v)) - delta[:, None])
        if DISTANCES:
            distances += tl.sum(dscores * distance(row, column, n_q, n_k), 1)
        if BENT:
            dscores = dscores * derivative
        dq = tl.dot(dscores.to(k.dtype), k, dq)
    return dq, distances


@tw.jit
def queries_gradient_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dq_ptr, distances_ptr,
    slopes_ptr, bias_ptr, cu_q_ptr, cu_k_ptr,
    q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
    dout_batch, dout_row, dout_head, dq_batch, dq_row, dq_head,
    lse_batch, lse_head, slopes_batch, bias_batch, bias_head, bias_row, bias_column,
    n_q, n_k, total_k, scale, softcap, left, right,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr, EVEN: tl.constexpr,
    MASK: tl.constexpr, SOFTCAP: tl.constexpr, GROUP: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr, D_V: tl.constexpr, PADDED: tl.constexpr, PADDED_V: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of M queries: programs are (blocks of rows, heads, batches).

    Where there is memory for them, the sums of rows for the gradients of slopes are stored.
    """
    block, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if RIGHT:
        block = tl.num_programs(0) - 1 - block  # the longest first
    row = block * M
    SLOPES: tl.constexpr = slopes_ptr is not None
    DISTANCES: tl.constexpr = distances_ptr is not None
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
    dout_ptr = head_of(dout_ptr, cu_q_ptr, batch, head, dout_batch, dout_head)
    dq_ptr = head_of(dq_ptr, cu_q_ptr, batch, head, dq_batch, dq_head)
    rows = row + tl.arange(0, M)
    slope, bias = 0.0, bias_ptr
    if SLOPES:
        slope = tl.load(slopes_ptr + batch * slopes_batch + head).to(tl.float32)
    if bias_ptr is not None:
        bias = head_of(bias_ptr, None, batch, head, bias_batch, bias_head)
    q = load_block(q_ptr, q_first + row, q_row, q_first + n_q, M, D, PADDED)
    dout = load_block(dout_ptr, q_first + row, dout_row, q_first + n_q, M, D_V, PADDED_V)
    at = batch.to(tl.int64) * lse_batch + head.to(tl.int64) * lse_head + q_first
    lse = tl.load(lse_ptr + at + rows, mask=rows < n_q, other=float("inf")) * LOG2_E
    delta = tl.load(delta_ptr + at + rows, mask=rows < n_q, other=0.0)
    dq = tl.zeros([M, PADDED], tl.float32)
    distances = tl.zeros([M], tl.float32)
    first, full, masked, last = key_spans(row, n_q, n_k, left, right, LEFT, RIGHT, SQUARE, M, N)
    if LEFT:
        dq, distances = query_span(
            dq, distances, q, dout, lse, delta, k_ptr, v_ptr, k_row, v_row, k_first, k_first + n_k,
            rows, first, full, n_q, n_k, scale, softcap, left, right,
            batch, head, slope, bias, bias_row, bias_column,
            True, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES, DISTANCES,
            N, D, D_V, PADDED, PADDED_V,
        )  # fmt: skip
    dq, distances = query_span(
        dq, distances, q, dout, lse, delta, k_ptr, v_ptr, k_row, v_row, k_first, k_end,
        rows, full, masked, n_q, n_k, scale, softcap, left, right,
        batch, head, slope, bias, bias_row, bias_column,
        MASK is not None, False, False, False, MASK, SOFTCAP, SLOPES, DISTANCES,
        N, D, D_V, PADDED, PADDED_V,
    )  # fmt: skip
    if RIGHT or not EVEN:
        dq, distances = query_span(
            dq, distances, q, dout, lse, delta, k_ptr, v_ptr, k_row, v_row, k_first, k_first + n_k,
            rows, masked, last, n_q, n_k, scale, softcap, left, right,
            batch, head, slope, bias, bias_row, bias_column,
            True, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES, DISTANCES,
            N, D, D_V, PADDED, PADDED_V,
        )  # fmt: skip
    if DISTANCES:
        tl.store(distances_ptr + at + rows, distances, mask=rows < n_q)
    if not (SOFTCAP or SLOPES or bias_ptr is not None):
        dq = dq * scale
    store_block(dq_ptr, q_first + row, dq_row, q_first + n_q, dq, M, D, PADDED)
