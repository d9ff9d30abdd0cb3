"""Backward kernels of the recurrences of ``chunk_kernels``, without atomic additions.

Gradients of states run from the last chunk to the first; all others are of chunks on their own.
The gradient of a prefix sum of log decays is a difference of row sums, since each decay multiplies
a term of an output by ``exp(a[t] - a[s])``.
"""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.sequence.chunk_kernels import softplus
from tilewright_kernels.sequence.chunks import (
    decay_between,
    decay_to_end,
    first_chunk,
    load_state,
    load_tile,
    rows_of_chunk,
    store_state,
    store_tile,
)


@tw.jit
def state_gradient_kernel(
    q_ptr, k_ptr, dout_ptr, w_ptr, du_ptr, a_ptr, dfinal_ptr, dstates_ptr, dinitial_ptr,
    cu_seqlens_ptr, q_batch, q_row, q_head, k_batch, k_row, k_head,
    dout_batch, dout_row, dout_head, dfinal_sequence, dfinal_head, dfinal_k, dfinal_v,
    dinitial_sequence, dinitial_head, dinitial_k, dinitial_v, length, tokens, heads, scale,
    GROUP: tl.constexpr, T: tl.constexpr, D: tl.constexpr, D_V: tl.constexpr,
    PADDED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the gradients of the states after all chunks of a sequence, and of the initial one.

    With ``w_ptr``, adds to the gradients ``du`` those through the states.
    """
    sequence, head, dim = tl.program_id(0), tl.program_id(1), tl.program_id(2) * WIDTH
    batch, first, end, chunk = first_chunk(cu_seqlens_ptr, sequence, length, T)
    q_ptr += batch.to(tl.int64) * q_batch + (head // GROUP) * q_head
    dout_ptr += batch.to(tl.int64) * dout_batch + head * dout_head
    own = batch.to(tl.int64) * length
    a_ptr += head.to(tl.int64) * tokens + own
    if w_ptr is not None:
        k_ptr += batch.to(tl.int64) * k_batch + (head // GROUP) * k_head
        w_ptr += (own * heads + head) * D
        du_ptr += (own * heads + head) * D_V
    gradient = tl.zeros([PADDED, WIDTH], tl.float32)
    if dfinal_ptr is not None:
        dfinal_ptr += sequence.to(tl.int64) * dfinal_sequence + head * dfinal_head
        gradient += load_state(dfinal_ptr, dim, dfinal_k, dfinal_v, D, D_V, PADDED, WIDTH)
    chunks = tl.cdiv(end - first, T)
    size = tl.cast(heads, tl.int64) * D * D_V
    dstates_ptr += (chunk.to(tl.int64) * heads + head) * D * D_V + (chunks - 1) * size
    for number in range(chunks):
        row = first + (chunks - 1 - number) * T
        store_state(dstates_ptr, dim, D_V, 1, gradient, D, D_V, PADDED, WIDTH)
        dstates_ptr -= size
        q = load_tile(q_ptr, row, end, q_row, 0, T, D, PADDED)
        dout = load_tile(dout_ptr, row, end, dout_row, dim, T, D_V, WIDTH).to(tl.float32)
        rows = row + tl.arange(0, T)
        a = tl.load(a_ptr + rows, mask=rows < end, other=0.0)
        last, to_end = decay_to_end(a_ptr, row, end, T)
        scaled = (dout * (tl.exp(a) * scale)[:, None]).to(q.dtype)
        before = tl.dot(tl.trans(q), scaled, gradient * tl.exp(last), input_precision="ieee")
        if w_ptr is not None:
            k = load_tile(k_ptr, row, end, k_row, 0, T, D, PADDED)
            w = load_tile(w_ptr, row, end, heads * D, 0, T, D, PADDED)
            du = load_tile(du_ptr, row, end, heads * D_V, dim, T, D_V, WIDTH).to(tl.float32)
            through = tl.dot(k, gradient.to(k.dtype), input_precision="ieee")
            du += through * to_end[:, None]
            store_tile(du_ptr, row, end, heads * D_V, dim, du, T, D_V, WIDTH)
            before = tl.dot(tl.trans(w), (-du).to(w.dtype), before, input_precision="ieee")
        gradient = before
    if dinitial_ptr is not None:
        dinitial_ptr += sequence.to(tl.int64) * dinitial_sequence + head * dinitial_head
        store_state(dinitial_ptr, dim, dinitial_k, dinitial_v, gradient, D, D_V, PADDED, WIDTH)


@tw.jit
def value_gradient_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, a_ptr, weight_ptr, dstates_ptr, skip_ptr, dv_ptr,
    dweight_ptr, dskip_ptr, cu_seqlens_ptr, q_batch, q_row, q_head, k_batch, k_row, k_head,
    v_batch, v_row, v_head, dout_batch, dout_row, dout_head, skip_head, skip_dim,
    sequences, length, tokens, heads, scale,
    MEMBERS: tl.constexpr, GROUP: tl.constexpr, T: tl.constexpr, D: tl.constexpr, D_V: tl.constexpr,
    PADDED: tl.constexpr, WIDTH: tl.constexpr, SKIPS: tl.constexpr,
):  # fmt: skip
    """Store the gradients of what MEMBERS heads of a group add to states in a chunk.

    They come from within the chunk, and with ``dstates_ptr`` through the states after it. With
    ``weight_ptr`` they are those of ``v``, times weights, and those of the weights follow.
    """
    chunk, first, dim = tl.program_id(0), tl.program_id(1) * MEMBERS, tl.program_id(2) * WIDTH
    batch, row, end = rows_of_chunk(cu_seqlens_ptr, chunk, sequences, length, T)
    q_ptr += batch.to(tl.int64) * q_batch + (first // GROUP) * q_head
    k_ptr += batch.to(tl.int64) * k_batch + (first // GROUP) * k_head
    own = batch.to(tl.int64) * length
    rows = row + tl.arange(0, T)
    inside = rows < end
    q = load_tile(q_ptr, row, end, q_row, 0, T, D, PADDED)
    k = load_tile(k_ptr, row, end, k_row, 0, T, D, PADDED)
    products = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    is_later = inside[None, :] & (tl.arange(0, T)[:, None] <= tl.arange(0, T)[None, :])
    for member in range(MEMBERS):
        head = first + member
        at = dout_ptr + batch.to(tl.int64) * dout_batch + head * dout_head
        dout = load_tile(at, row, end, dout_row, dim, T, D_V, WIDTH)
        place = head.to(tl.int64) * tokens + own
        a = tl.load(a_ptr + place + rows, mask=inside, other=0.0)
        du = tl.zeros([T, WIDTH], tl.float32)
        number = chunk.to(tl.int64) * heads + head
        if dstates_ptr is not None:
            at = dstates_ptr + number * D * D_V
            dstate = load_state(at, dim, D_V, 1, D, D_V, PADDED, WIDTH)
            _, to_end = decay_to_end(a_ptr + place, row, end, T)
            du += tl.dot(k, dstate, input_precision="ieee") * to_end[:, None]
        scores = products * decay_between(a[None, :], a[:, None], is_later)
        du = tl.dot(scores.to(dout.dtype), dout, du, input_precision="ieee")
        if weight_ptr is not None:
            at = v_ptr + batch.to(tl.int64) * v_batch + head * v_head
            v = load_tile(at, row, end, v_row, dim, T, D_V, WIDTH).to(tl.float32)
            tl.store(dweight_ptr + place + rows, tl.sum(du * v, 1), mask=inside)
            du *= tl.load(weight_ptr + place + rows, mask=inside, other=0.0)[:, None]
            if skip_ptr is not None:
                dims = dim + tl.arange(0, WIDTH)
                at = skip_ptr + head * skip_head + dims * skip_dim
                skip = tl.load(at, mask=dims < D_V, other=0.0).to(tl.float32)
                dout = dout.to(tl.float32)
                du += skip[None, :] * dout
                if SKIPS:
                    dskip = tl.sum(dout * v, 0)
                    tl.store(dskip_ptr + number * D_V + dims, dskip, mask=dims < D_V)
                else:
                    tl.store(dskip_ptr + number, tl.sum(tl.sum(dout * v, 1), 0))
        at = dv_ptr + (own * heads + head) * D_V
        store_tile(at, row, end, heads * D_V, dim, du, T, D_V, WIDTH)


@tw.jit
def query_gradient_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, a_ptr, weight_ptr, states_ptr, dq_ptr, row_sums_ptr,
    cu_seqlens_ptr, q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
    dout_batch, dout_row, dout_head, sequences, length, tokens, groups, scale,
    MEMBERS: tl.constexpr, GROUP: tl.constexpr, T: tl.constexpr, D: tl.constexpr,
    D_V: tl.constexpr, PADDED: tl.constexpr, PADDED_V: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the gradients of queries, summed over MEMBERS of a group's heads, and row sums."""
    chunk, group, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    batch, row, end = rows_of_chunk(cu_seqlens_ptr, chunk, sequences, length, T)
    q_ptr += batch.to(tl.int64) * q_batch + group * q_head
    k_ptr += batch.to(tl.int64) * k_batch + group * k_head
    v_ptr += batch.to(tl.int64) * v_batch
    dout_ptr += batch.to(tl.int64) * dout_batch
    own = batch.to(tl.int64) * length
    rows = row + tl.arange(0, T)
    inside = rows < end
    q = load_tile(q_ptr, row, end, q_row, 0, T, D, PADDED)
    k = load_tile(k_ptr, row, end, k_row, 0, T, D, PADDED)
    is_causal = inside[:, None] & (tl.arange(0, T)[:, None] >= tl.arange(0, T)[None, :])
    dq = tl.zeros([T, PADDED], tl.float32)
    heads = groups * GROUP
    for member in range(MEMBERS):
        head = group * GROUP + part * MEMBERS + member
        place = head.to(tl.int64) * tokens + own
        a = tl.load(a_ptr + place + rows, mask=inside, other=0.0)
        state_ptr = states_ptr + (chunk.to(tl.int64) * heads + head) * D * D_V
        scores = tl.zeros([T, T], tl.float32)
        own_dq = tl.zeros([T, PADDED], tl.float32)
        for dim in tl.static_range(0, PADDED_V, WIDTH):
            dout = load_tile(dout_ptr + head * dout_head, row, end, dout_row, dim, T, D_V, WIDTH)
            v = load_tile(v_ptr + head * v_head, row, end, v_row, dim, T, D_V, WIDTH)
            state = load_state(state_ptr, dim, D_V, 1, D, D_V, PADDED, WIDTH)
            scores = tl.dot(dout, tl.trans(v), scores, input_precision="ieee")
            own_dq = tl.dot(dout, tl.trans(state), own_dq, input_precision="ieee")
        if weight_ptr is not None:
            scores *= tl.load(weight_ptr + place + rows, mask=inside, other=0.0)[None, :]
        scores *= decay_between(a[:, None], a[None, :], is_causal) * scale
        own_dq *= (tl.exp(a) * scale)[:, None]
        own_dq = tl.dot(scores.to(k.dtype), k, own_dq, input_precision="ieee")
        tl.store(row_sums_ptr + place + rows, tl.sum(own_dq * q.to(tl.float32), 1), mask=inside)
        dq += own_dq
    at = dq_ptr + ((part.to(tl.int64) * tokens + own) * groups + group) * D
    store_tile(at, row, end, groups * D, 0, dq, T, D, PADDED)


@tw.jit
def key_gradient_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr, a_ptr, weight_ptr, states_ptr, dstates_ptr, through_ptr, dk_ptr,
    inner_sums_ptr, outer_sums_ptr, end_sums_ptr,
    cu_seqlens_ptr, q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
    dout_batch, dout_row, dout_head, sequences, length, tokens, groups, scale,
    MEMBERS: tl.constexpr, GROUP: tl.constexpr, T: tl.constexpr, D: tl.constexpr,
    D_V: tl.constexpr, PADDED: tl.constexpr, PADDED_V: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the gradients of keys, summed over MEMBERS of a group's heads, and sums for decays.

    ``through_ptr`` has what else each head adds to the gradients of keys.
    """
    chunk, group, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    batch, row, end = rows_of_chunk(cu_seqlens_ptr, chunk, sequences, length, T)
    q_ptr += batch.to(tl.int64) * q_batch + group * q_head
    k_ptr += batch.to(tl.int64) * k_batch + group * k_head
    v_ptr += batch.to(tl.int64) * v_batch
    dout_ptr += batch.to(tl.int64) * dout_batch
    own = batch.to(tl.int64) * length
    rows = row + tl.arange(0, T)
    inside = rows < end
    q = load_tile(q_ptr, row, end, q_row, 0, T, D, PADDED)
    k = load_tile(k_ptr, row, end, k_row, 0, T, D, PADDED)
    is_later = inside[None, :] & (tl.arange(0, T)[:, None] <= tl.arange(0, T)[None, :])
    dk = tl.zeros([T, PADDED], tl.float32)
    heads = groups * GROUP
    for member in range(MEMBERS):
        head = group * GROUP + part * MEMBERS + member
        place = head.to(tl.int64) * tokens + own
        a = tl.load(a_ptr + place + rows, mask=inside, other=0.0)
        last, to_end = decay_to_end(a_ptr + place, row, end, T)
        number = chunk.to(tl.int64) * heads + head
        scores = tl.zeros([T, T], tl.float32)
        outer = tl.zeros([T, PADDED], tl.float32)
        change = tl.zeros([PADDED], tl.float32)
        for dim in tl.static_range(0, PADDED_V, WIDTH):
            dout = load_tile(dout_ptr + head * dout_head, row, end, dout_row, dim, T, D_V, WIDTH)
            v = load_tile(v_ptr + head * v_head, row, end, v_row, dim, T, D_V, WIDTH)
            at = number * D * D_V
            state = load_state(states_ptr + at, dim, D_V, 1, D, D_V, PADDED, WIDTH)
            dstate = load_state(dstates_ptr + at, dim, D_V, 1, D, D_V, PADDED, WIDTH)
            scores = tl.dot(v, tl.trans(dout), scores, input_precision="ieee")
            outer = tl.dot(v, tl.trans(dstate), outer, input_precision="ieee")
            change += tl.sum(state.to(tl.float32) * dstate.to(tl.float32), 1)
        if weight_ptr is not None:
            weight = tl.load(weight_ptr + place + rows, mask=inside, other=0.0)
            scores *= weight[:, None]
            to_end *= weight
        scores *= decay_between(a[None, :], a[:, None], is_later) * scale
        outer *= to_end[:, None]
        inner = tl.dot(scores.to(q.dtype), q, input_precision="ieee")
        key = k.to(tl.float32)
        tl.store(inner_sums_ptr + place + rows, tl.sum(inner * key, 1), mask=inside)
        tl.store(outer_sums_ptr + place + rows, tl.sum(outer * key, 1), mask=inside)
        tl.store(end_sums_ptr + number, tl.sum(change, 0) * tl.exp(last))
        dk += inner + outer
        if through_ptr is not None:
            at = through_ptr + (own * heads + head) * D
            dk += load_tile(at, row, end, heads * D, 0, T, D, PADDED)
    at = dk_ptr + ((part.to(tl.int64) * tokens + own) * groups + group) * D
    store_tile(at, row, end, groups * D, 0, dk, T, D, PADDED)


@tw.jit
def decay_gradient_kernel(
    row_sums_ptr, inner_sums_ptr, outer_sums_ptr, end_sums_ptr, through_ptr,
    g_ptr, rate_ptr, bias_ptr, weight_ptr, dweight_ptr, dg_ptr, drate_ptr, dbias_ptr,
    cu_seqlens_ptr, g_batch, g_row, g_head, sequences, length, tokens, heads, lower, upper,
    SOFTPLUS: tl.constexpr, T: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Store the gradients of log decays; with rates, of steps, and each chunk's of rates."""
    chunk = tl.program_id(0)
    batch, row, end = rows_of_chunk(cu_seqlens_ptr, chunk, sequences, length, T)
    rows, head = row + tl.arange(0, T), tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    is_head = head < heads
    inside = (rows < end)[:, None] & is_head[None, :]
    place = head.to(tl.int64)[None, :] * tokens + batch * length + rows[:, None]
    within = tl.load(row_sums_ptr + place, mask=inside, other=0.0)
    within -= tl.load(inner_sums_ptr + place, mask=inside, other=0.0)
    if through_ptr is not None:
        within += tl.load(through_ptr + place, mask=inside, other=0.0)
    outer = tl.load(outer_sums_ptr + place, mask=inside, other=0.0)
    number = chunk.to(tl.int64) * heads + head
    dg = tl.cumsum(within, 0, reverse=True) + tl.cumsum(outer, 0) - outer
    dg += tl.load(end_sums_ptr + number, mask=is_head, other=0.0)[None, :]
    if rate_ptr is not None:
        at = batch.to(tl.int64) * g_batch + rows.to(tl.int64)[:, None] * g_row
        raw = tl.load(g_ptr + at + head[None, :] * g_head, mask=inside, other=0.0).to(tl.float32)
        if bias_ptr is not None:
            raw += tl.load(bias_ptr + head, mask=is_head, other=0.0).to(tl.float32)[None, :]
        weight = tl.load(weight_ptr + place, mask=inside, other=0.0)
        drate = tl.where(inside, dg * weight, 0.0)
        tl.store(drate_ptr + number, tl.sum(drate, 0), mask=is_head)
        rate = tl.load(rate_ptr + head, mask=is_head, other=0.0).to(tl.float32)
        dg = dg * rate[None, :] + tl.load(dweight_ptr + place, mask=inside, other=0.0)
        free = softplus(raw) if SOFTPLUS else raw
        dg = tl.where((free >= lower) & (free <= upper), dg, 0.0)
        if SOFTPLUS:
            dg *= tl.sigmoid(raw)
        if dbias_ptr is not None:
            tl.store(dbias_ptr + number, tl.sum(tl.where(inside, dg, 0.0), 0), mask=is_head)
    at = (batch.to(tl.int64) * length + rows)[:, None] * heads + head[None, :]
    tl.store(dg_ptr + at, dg, mask=inside)


@tw.jit
def part_sums_kernel(
    parts_ptr, total_ptr, n_parts, n_columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Store the sums of the columns of partial results, in a fixed order."""
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, n_parts, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < n_parts)[:, None] & (column < n_columns)[None, :]
        at = parts_ptr + row.to(tl.int64)[:, None] * n_columns + column[None, :]
        total += tl.load(at, mask=inside, other=0.0)
    tl.store(total_ptr + column, tl.sum(total, 0), mask=column < n_columns)
