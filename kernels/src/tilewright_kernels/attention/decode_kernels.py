"""Attention over caches of keys and values: parts of the keys, and their merge."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.attention.scores import LN_2, LOG2_E


@tw.jit
def cached_block(
    ptr, table_ptr, start, end, page, row, N: tl.constexpr, PAGE: tl.constexpr, D: tl.constexpr,
    PADDED: tl.constexpr,
):  # fmt: skip
    """Load N rows of a cache, of a batch or of pages, with zeros from row ``end`` on."""
    rows, dims = start + tl.arange(0, N), tl.arange(0, PADDED)
    inside = (rows < end)[:, None]
    if D != PADDED:
        inside = inside & (dims < D)[None, :]
    if table_ptr is None:
        at = ptr + start.to(tl.int64) * row + tl.arange(0, N)[:, None] * row
    elif PAGE % N == 0:
        number = tl.load(table_ptr + start // PAGE).to(tl.int64)
        at = ptr + number * page + (start % PAGE + tl.arange(0, N))[:, None] * row
    else:
        number = tl.load(table_ptr + rows // PAGE, mask=rows < end, other=0).to(tl.int64)
        at = ptr + number[:, None] * page + (rows % PAGE)[:, None] * row
    return tl.load(at + dims[None, :], mask=inside, other=0.0)


@tw.jit
def cached_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, table_ptr, lengths_ptr, sinks_ptr,
    k_scale_ptr, v_scale_ptr,
    q_batch, q_row, q_head, k_page, k_row, k_head, v_page, v_row, v_head,
    out_part, out_batch, out_row, out_head, lse_part, lse_batch, lse_head,
    table_batch, n_q, n_k, scale, softcap, left, right,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SOFTCAP: tl.constexpr, GROUP: tl.constexpr,
    PAGE: tl.constexpr, PARTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr, D_V: tl.constexpr, ROPE: tl.constexpr,
    PADDED: tl.constexpr, PADDED_V: tl.constexpr,
):  # fmt: skip
    """Compute a part of the keys for M pairs of a row and a head that shares the keys.

    Programs are (parts of blocks of pairs, heads of k, batches). With ROPE, keys have ROPE
    elements after the D that are also the values.
    """
    part, key_head, batch = tl.program_id(0) % PARTS, tl.program_id(1), tl.program_id(2)
    pairs = tl.program_id(0) // PARTS * M + tl.arange(0, M)
    rows, heads = pairs // GROUP, key_head * GROUP + pairs % GROUP
    dims = tl.arange(0, PADDED)
    if lengths_ptr is not None:
        n_k = tl.load(lengths_ptr + batch)
    if table_ptr is None:
        table = table_ptr
        k_ptr += batch.to(tl.int64) * k_page
        if v_ptr is not None:
            v_ptr += batch.to(tl.int64) * v_page
    else:
        table = table_ptr + batch.to(tl.int64) * table_batch
    k_ptr += key_head.to(tl.int64) * k_head
    if v_ptr is not None:
        v_ptr += key_head.to(tl.int64) * v_head
    queries = (
        q_ptr + batch.to(tl.int64) * q_batch + rows.to(tl.int64)[:, None] * q_row
        + heads[:, None] * q_head
    )  # fmt: skip
    inside = (rows < n_q)[:, None]
    q = tl.load(queries + dims[None, :], mask=inside & (dims < D)[None, :], other=0.0)
    if ROPE:
        q_rope = tl.load(queries + D + tl.arange(0, ROPE)[None, :], mask=inside, other=0.0)
    if k_scale_ptr is not None:
        scale *= tl.load(k_scale_ptr + batch * tl.num_programs(1) + key_head)
    log2_scale = scale * LOG2_E
    shift = n_k - n_q
    begin, end = 0, n_k
    if RIGHT:
        end = tl.minimum(n_k, tl.maximum(tl.max(rows, 0) + 1 + shift + right, 0))
    if LEFT:
        begin = tl.maximum(tl.min(rows, 0) + shift - left, 0) // N * N
    share = tl.cdiv(tl.cdiv(tl.maximum(end - begin, 0), N), PARTS) * N
    first = begin + part * share
    last = tl.minimum(first + share, end)
    highest = tl.full([M], -float("inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    accumulator = tl.zeros([M, PADDED_V], tl.float32)
    for start in range(first, last, N):
        columns = start + tl.arange(0, N)
        k = cached_block(k_ptr, table, start, last, k_page, k_row, N, PAGE, D, PADDED)
        k = k.to(q.dtype)
        scores = tl.dot(q, tl.trans(k))
        if ROPE:
            rope = cached_block(k_ptr + D, table, start, last, k_page, k_row, N, PAGE, ROPE, ROPE)
            scores = tl.dot(q_rope, tl.trans(rope.to(q.dtype)), scores)
        if SOFTCAP:
            # softcap times the hyperbolic tangent
            raised = tl.math.exp2(scores * (2.0 * log2_scale / softcap))
            scores = (softcap * LOG2_E) * (1.0 - 2.0 / (raised + 1.0))
        else:
            scores = scores * log2_scale
        kept = (columns < last)[None, :]
        if RIGHT:
            kept = kept & (columns[None, :] <= rows[:, None] + (shift + right))
        if LEFT:
            kept = kept & (columns[None, :] >= rows[:, None] + (shift - left))
        scores = tl.where(kept, scores, -float("inf"))
        new = tl.maximum(highest, tl.max(scores, 1))
        # rows without keys so far subtract 0
        base = tl.where(new == -float("inf"), 0.0, new)
        weights = tl.math.exp2(scores - base[:, None])
        shrink = tl.math.exp2(highest - base)
        accumulator = accumulator * shrink[:, None]
        if v_ptr is None:
            v = k
        else:
            v = cached_block(v_ptr, table, start, last, v_page, v_row, N, PAGE, D_V, PADDED_V)
            v = v.to(q.dtype)
        accumulator = tl.dot(weights.to(v.dtype), v, accumulator)
        total = total * shrink + tl.sum(weights, 1)
        highest = new
    # parts beside the first have no sink
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + heads, mask=rows < n_q, other=0.0).to(tl.float32) * LOG2_E
        sink = tl.where(part == 0, sink, -float("inf"))
        new = tl.maximum(highest, sink)
        base = tl.where(new == -float("inf"), 0.0, new)
        shrink = tl.math.exp2(highest - base)
        accumulator = accumulator * shrink[:, None]
        total = total * shrink + tl.math.exp2(sink - base)
        highest = new
    accumulator = accumulator / tl.where(total == 0.0, 1.0, total)[:, None]
    if v_scale_ptr is not None:
        accumulator *= tl.load(v_scale_ptr + batch * tl.num_programs(1) + key_head)
    if lse_ptr is not None:
        at = lse_ptr + part.to(tl.int64) * lse_part + batch.to(tl.int64) * lse_batch
        lse = (highest + tl.log2(total)) * LN_2
        tl.store(at + heads * lse_head + rows, lse, mask=rows < n_q)
    value_dims = tl.arange(0, PADDED_V)
    at = (
        out_ptr + part.to(tl.int64) * out_part + batch.to(tl.int64) * out_batch
        + rows.to(tl.int64)[:, None] * out_row + heads[:, None] * out_head + value_dims[None, :]
    )  # fmt: skip
    tl.store(
        at, accumulator.to(out_ptr.dtype.element_ty), mask=inside & (value_dims < D_V)[None, :]
    )


@tw.jit
def merge_kernel(
    parts_ptr, part_lse_ptr, out_ptr, lse_ptr, part, part_batch, part_row, part_head,
    lse_part, lse_part_batch, lse_part_head, out_batch, out_row, out_head, lse_batch, lse_head,
    parts, PARTS: tl.constexpr, D: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Merge the parts of one row of a head: programs are (rows, heads, batches)."""
    row, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    numbers, dims = tl.arange(0, PARTS), tl.arange(0, PADDED)
    at = part_lse_ptr + batch * lse_part_batch + head * lse_part_head + row
    lse = tl.load(at + numbers * lse_part, mask=numbers < parts, other=-float("inf"))
    highest = tl.max(lse, 0)
    highest = tl.where(highest == -float("inf"), 0.0, highest)
    weights = tl.math.exp2((lse - highest) * LOG2_E)
    total = tl.sum(weights, 0)
    at = parts_ptr + batch * part_batch + row.to(tl.int64) * part_row + head * part_head
    values = tl.load(
        at + numbers.to(tl.int64)[:, None] * part + dims[None, :],
        mask=(numbers < parts)[:, None] & (dims < D)[None, :],
        other=0.0,
    ).to(tl.float32)
    out = tl.sum(values * weights[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    at = out_ptr + batch * out_batch + row.to(tl.int64) * out_row + head * out_head
    tl.store(at + dims, out.to(out_ptr.dtype.element_ty), mask=dims < D)
    if lse_ptr is not None:
        tl.store(lse_ptr + batch * lse_batch + head * lse_head + row, highest + tl.log(total))
