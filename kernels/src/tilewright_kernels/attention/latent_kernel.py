"""Decoding over a cache of latent rows by TMA: rows are keys and, but for their ends, values.

A program has a block of heads, which read a block of rows once. The blocks that are full come by
one descriptor of the cache. A sequence that ends within a block has a descriptor of its last rows:
those behind them may be NaN, and come as zeros.
"""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.attention.scores import LN_2, LOG2_E


@tw.jit
def latent_span(
    accumulator, total, highest, q, q_rope, values, ropes, table_ptr, batch, first, last, end,
    log2_scale, LAST: tl.constexpr, PAGE: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
    ROPE: tl.constexpr,
):  # fmt: skip
    """Update the running softmax with the rows from ``first`` to ``last``, by blocks of N.

    With LAST, the descriptors begin at ``first``.
    """
    for start in tl.range(first, last, N, warp_specialize=True):
        if LAST:
            page, row = 0, 0
        elif table_ptr is None:
            page, row = batch, start
        else:
            page, row = tl.load(table_ptr + start // PAGE), start % PAGE
        v = values.load([page, row, 0]).reshape(N, D)
        rope = ropes.load([page, row, D]).reshape(N, ROPE)
        scores = tl.dot(q, tl.trans(v))
        scores = tl.dot(q_rope, tl.trans(rope), scores) * log2_scale
        if LAST:
            scores = tl.where((start + tl.arange(0, N) < end)[None, :], scores, -float("inf"))
        new = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.math.exp2(scores - new[:, None])
        shrink = tl.math.exp2(highest - new)
        accumulator = accumulator * shrink[:, None]
        accumulator = tl.dot(weights.to(v.dtype), v, accumulator)
        total = total * shrink + tl.sum(weights, 1)
        highest = new
    return accumulator, total, highest


@tw.jit(do_not_specialize=["parts", "pages", "heads", "n_k"])
def latent_attention_kernel(
    q_ptr, cache_ptr, out_ptr, lse_ptr, table_ptr, lengths_ptr,
    q_batch, q_head, cache_page, cache_row, out_part, out_batch, out_head,
    lse_part, lse_batch, lse_head, table_batch, pages, page_rows, parts, heads, n_k,
    scale, PAGE: tl.constexpr, EVEN: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    """Compute a part of the rows for M heads of one query: programs are (parts of blocks, batches).

    With EVEN, all sequences have full blocks alone.
    """
    part, batch = tl.program_id(0) % parts, tl.program_id(1)
    head = tl.program_id(0) // parts * M + tl.arange(0, M)
    values = tl.make_tensor_descriptor(
        cache_ptr, [pages, page_rows, D + ROPE], [cache_page, cache_row, 1], [1, N, D]
    )
    ropes = tl.make_tensor_descriptor(
        cache_ptr, [pages, page_rows, D + ROPE], [cache_page, cache_row, 1], [1, N, ROPE]
    )
    if lengths_ptr is not None:
        n_k = tl.load(lengths_ptr + batch)
    if table_ptr is not None:
        table_ptr += batch.to(tl.int64) * table_batch
    dims, rope_dims = tl.arange(0, D), tl.arange(0, ROPE)
    queries = q_ptr + batch.to(tl.int64) * q_batch + head[:, None] * q_head
    inside = (head < heads)[:, None]
    q = tl.load(queries + dims[None, :], mask=inside, other=0.0)
    q_rope = tl.load(queries + D + rope_dims[None, :], mask=inside, other=0.0)
    share = tl.cdiv(tl.cdiv(n_k, N), parts) * N
    first = part * share
    last = tl.maximum(tl.minimum(first + share, n_k), first)
    highest = tl.full([M], -float("inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    accumulator = tl.zeros([M, D], tl.float32)
    full = last // N * N
    accumulator, total, highest = latent_span(
        accumulator, total, highest, q, q_rope, values, ropes, table_ptr, batch, first, full, n_k,
        scale * LOG2_E, False, PAGE, N, D, ROPE,
    )  # fmt: skip
    if not EVEN:
        page, row = batch, full
        if table_ptr is not None:
            page = tl.load(table_ptr + full // PAGE, mask=full < last, other=0)
            row = full % PAGE
        end_ptr = cache_ptr + page.to(tl.int64) * cache_page + row.to(tl.int64) * cache_row
        count = tl.maximum(last - full, 1)
        values = tl.make_tensor_descriptor(
            end_ptr, [1, count, D + ROPE], [cache_page, cache_row, 1], [1, N, D]
        )
        ropes = tl.make_tensor_descriptor(
            end_ptr, [1, count, D + ROPE], [cache_page, cache_row, 1], [1, N, ROPE]
        )
        accumulator, total, highest = latent_span(
            accumulator, total, highest, q, q_rope, values, ropes, table_ptr, batch, full, last,
            n_k, scale * LOG2_E, True, PAGE, N, D, ROPE,
        )  # fmt: skip
    if lse_ptr is not None:
        at = lse_ptr + part.to(tl.int64) * lse_part + batch.to(tl.int64) * lse_batch
        lse = (highest + tl.math.log2(total)) * LN_2
        tl.store(at + head * lse_head, lse, mask=head < heads)
    accumulator = accumulator / tl.where(total == 0.0, 1.0, total)[:, None]
    at = (
        out_ptr + part.to(tl.int64) * out_part + batch.to(tl.int64) * out_batch
        + head[:, None] * out_head + dims[None, :]
    )  # fmt: skip
    tl.store(at, accumulator.to(out_ptr.dtype.element_ty), mask=inside)
