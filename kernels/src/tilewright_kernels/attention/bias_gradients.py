"""Gradients of what attention adds to its scores: biases, and slopes of ALiBi.

Neither adds atomically. A program computes a block of the gradient of a bias from all scores that
share it, in order, or from those of its rows if none are shared. The passes of queries or keys
leave the sums of each of their rows for slopes.
"""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.attention.scores import (
    LOG2_E,
    head_of,
    key_spans,
    load_block,
    recomputed_weights,
    row_spans,
    sequence,
)


@tw.jit
def bias_gradient_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dbias_ptr, slopes_ptr, bias_ptr,
    q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
    dout_batch, dout_row, dout_head, lse_batch, lse_head, slopes_batch,
    bias_batch, bias_head, bias_row, bias_column, dbias_batch, dbias_head, dbias_row, dbias_column,
    n_q, n_k, batches, heads, scale, softcap, left, right,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr, MASK: tl.constexpr,
    SOFTCAP: tl.constexpr, GROUP: tl.constexpr,
    ALL_ROWS: tl.constexpr, ALL_COLUMNS: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr, D_V: tl.constexpr, PADDED: tl.constexpr, PADDED_V: tl.constexpr,
):  # fmt: skip
    """Compute a block of the gradient of a bias: programs are (blocks, heads, batches) of it.

    ``batches`` and ``heads`` are how many of the scores share an element, and with ALL_ROWS and
    ALL_COLUMNS all rows and columns do.
    """
    SLOPES: tl.constexpr = slopes_ptr is not None
    row_blocks = 1 if ALL_ROWS else tl.cdiv(n_q, M)
    block, bias_of_head, bias_of_batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_row, first_column = block % row_blocks * M, block // row_blocks * N
    last_row = n_q if ALL_ROWS else first_row + M
    last_column = n_k if ALL_COLUMNS else first_column + N
    if not ALL_COLUMNS:
        first, _, _, last = row_spans(
            first_column, n_q, n_k, left, right, LEFT, RIGHT, SQUARE, M, N
        )
        if ALL_ROWS:
            first_row, last_row = first, last
        elif first_row + M <= first or first_row >= last:
            last_row = first_row
    elif not ALL_ROWS:
        first_column, _, _, last_column = key_spans(
            first_row, n_q, n_k, left, right, LEFT, RIGHT, SQUARE, M, N
        )
    row_steps = tl.cdiv(tl.maximum(last_row - first_row, 0), M)
    column_steps = tl.cdiv(tl.maximum(last_column - first_column, 0), N)
    total = tl.zeros([M, N], tl.float32)
    for step in range(batches * heads * row_steps * column_steps):
        column = first_column + step % column_steps * N
        rest = step // column_steps
        row = first_row + rest % row_steps * M
        rest = rest // row_steps
        head, batch = bias_of_head + rest % heads, bias_of_batch + rest // heads
        slope, bias = 0.0, bias_ptr
        if SLOPES:
            slope = tl.load(slopes_ptr + batch * slopes_batch + head).to(tl.float32)
        bias = bias_ptr + batch.to(tl.int64) * bias_batch + head.to(tl.int64) * bias_head
        queries = q_ptr + batch.to(tl.int64) * q_batch + head.to(tl.int64) * q_head
        cotangents = dout_ptr + batch.to(tl.int64) * dout_batch + head.to(tl.int64) * dout_head
        key_head = (head // GROUP).to(tl.int64)
        keys = k_ptr + batch.to(tl.int64) * k_batch + key_head * k_head
        values = v_ptr + batch.to(tl.int64) * v_batch + key_head * v_head
        q = load_block(queries, row, q_row, n_q, M, D, PADDED)
        dout = load_block(cotangents, row, dout_row, n_q, M, D_V, PADDED_V)
        k = load_block(keys, column, k_row, n_k, N, D, PADDED)
        v = load_block(values, column, v_row, n_k, N, D_V, PADDED_V)
        rows, columns = row + tl.arange(0, M), column + tl.arange(0, N)
        at = batch.to(tl.int64) * lse_batch + head.to(tl.int64) * lse_head
        # rows past the end weigh nothing
        lse = tl.load(lse_ptr + at + rows, mask=rows < n_q, other=float("inf")) * LOG2_E
        delta = tl.load(delta_ptr + at + rows, mask=rows < n_q, other=0.0)
        weights, _ = recomputed_weights(
            tl.dot(q, tl.trans(k)), lse[:, None], rows[:, None], columns[None, :],
            n_q, n_k, scale, softcap, left, right,
            batch, head, slope, bias, bias_row, bias_column,
            True, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES,
        )  # fmt: skip
        total += weights * (tl.dot(dout, tl.trans(v)) - delta[:, None])
    at = dbias_ptr + bias_of_batch.to(tl.int64) * dbias_batch
    at += bias_of_head.to(tl.int64) * dbias_head
    rows = block % row_blocks * M + tl.arange(0, M)[:, None]
    columns = block // row_blocks * N + tl.arange(0, N)[None, :]
    inside = (rows < n_q) & (columns < n_k)
    if ALL_ROWS:
        total = tl.sum(total, 0, keep_dims=True)
        rows, inside = tl.zeros([1, 1], tl.int32), columns < n_k
    if ALL_COLUMNS:
        total = tl.sum(total, 1, keep_dims=True)
        columns, inside = tl.zeros([1, 1], tl.int32), rows < (1 if ALL_ROWS else n_q)
    at += rows.to(tl.int64) * dbias_row + columns * dbias_column
    tl.store(at, total.to(dbias_ptr.dtype.element_ty), mask=inside)


@tw.jit
def scores_gradient_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, dbias_ptr, slopes_ptr, bias_ptr,
    q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
    dout_batch, dout_row, dout_head, lse_batch, lse_head, slopes_batch,
    bias_batch, bias_head, bias_row, bias_column, dbias_batch, dbias_head, dbias_row, dbias_column,
    n_q, n_k, columns_each, scale, softcap, left, right,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SQUARE: tl.constexpr, MASK: tl.constexpr,
    SOFTCAP: tl.constexpr, GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr, D_V: tl.constexpr, PADDED: tl.constexpr, PADDED_V: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a bias that has an element for each score.

    Programs are (blocks, heads, batches). A block has M rows and ``columns_each`` columns, which is
    a multiple of N.
    """
    SLOPES: tl.constexpr = slopes_ptr is not None
    MASKED: tl.constexpr = LEFT or RIGHT or MASK is not None
    row_blocks = tl.cdiv(n_q, M)
    block, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row, begin = block % row_blocks * M, block // row_blocks * columns_each
    end = tl.minimum(begin + columns_each, n_k)
    slope = 0.0
    if SLOPES:
        slope = tl.load(slopes_ptr + batch * slopes_batch + head).to(tl.float32)
    bias = head_of(bias_ptr, None, batch, head, bias_batch, bias_head)
    queries = head_of(q_ptr, None, batch, head, q_batch, q_head)
    cotangents = head_of(dout_ptr, None, batch, head, dout_batch, dout_head)
    keys = head_of(k_ptr, None, batch, head // GROUP, k_batch, k_head)
    values = head_of(v_ptr, None, batch, head // GROUP, v_batch, v_head)
    target = head_of(dbias_ptr, None, batch, head, dbias_batch, dbias_head)
    rows = row + tl.arange(0, M)
    q = load_block(queries, row, q_row, n_q, M, D, PADDED)
    dout = load_block(cotangents, row, dout_row, n_q, M, D_V, PADDED_V)
    at = batch.to(tl.int64) * lse_batch + head.to(tl.int64) * lse_head
    # rows past the end weigh nothing
    lse = tl.load(lse_ptr + at + rows, mask=rows < n_q, other=float("inf")) * LOG2_E
    delta = tl.load(delta_ptr + at + rows, mask=rows < n_q, other=0.0)
    first, _, _, last = key_spans(row, n_q, n_k, left, right, LEFT, RIGHT, SQUARE, M, N)
    first = tl.minimum(tl.maximum(first, begin), end)
    last = tl.maximum(tl.minimum(last, end), first)
    for start in range(first, last, N):
        columns = start + tl.arange(0, N)
        k = load_block(keys, start, k_row, n_k, N, D, PADDED)
        v = load_block(values, start, v_row, n_k, N, D_V, PADDED_V)
        weights, _ = recomputed_weights(
            tl.dot(q, tl.trans(k)), lse[:, None], rows[:, None], columns[None, :],
            n_q, n_k, scale, softcap, left, right,
            batch, head, slope, bias, bias_row, bias_column,
            MASKED, LEFT, RIGHT, SQUARE, MASK, SOFTCAP, SLOPES,
        )  # fmt: skip
        gradient = weights * (tl.dot(dout, tl.trans(v)) - delta[:, None])
        store_scores(target, rows, columns, dbias_row, dbias_column, n_q, n_k, gradient)
    if MASKED:
        zero = tl.zeros([M, N], tl.float32)
        for start in range(begin, first, N):
            columns = start + tl.arange(0, N)
            store_scores(target, rows, columns, dbias_row, dbias_column, n_q, n_k, zero)
        for start in range(tl.cdiv(last, N) * N, end, N):
            columns = start + tl.arange(0, N)
            store_scores(target, rows, columns, dbias_row, dbias_column, n_q, n_k, zero)


@tw.jit
def store_scores(ptr, rows, columns, stride_row, stride_column, n_q, n_k, scores):
    """Store a block of scores, but those past the ends."""
    inside = (rows < n_q)[:, None] & (columns < n_k)[None, :]
    at = rows.to(tl.int64)[:, None] * stride_row + columns[None, :] * stride_column
    tl.store(ptr + at, scores.to(ptr.dtype.element_ty), mask=inside)


@tw.jit
def slopes_gradient_kernel(
    sums_ptr, dslopes_ptr, cu_seqlens_ptr, batches, n_rows, sums_batch, sums_head, dslopes_batch,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a slope, minus the sum of rows: programs are (heads, batches) of it.

    ``batches`` is how many share a slope.
    """
    head, slopes_batch = tl.program_id(0), tl.program_id(1)
    total = tl.zeros([BLOCK], tl.float32)
    for batch in range(slopes_batch, slopes_batch + batches):
        first, length = sequence(cu_seqlens_ptr, batch, n_rows)
        base = batch.to(tl.int64) * sums_batch + head.to(tl.int64) * sums_head + first
        for start in range(0, length, BLOCK):
            rows = start + tl.arange(0, BLOCK)
            total += tl.load(sums_ptr + base + rows, mask=rows < length, other=0.0)
    tl.store(dslopes_ptr + slopes_batch * dslopes_batch + head, -tl.sum(total, 0))
