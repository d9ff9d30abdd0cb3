"""Forward kernels of recurrences ``S[t] = exp(g[t]) S[t - 1] + k[t] v[t]'``, in chunks.

A chunk's rows are ``exp(a) q S + (causal exp(a[t] - a[s]) q k') v`` with the state ``S`` before it
and the prefix sums ``a`` of its log decays ``g``. States have keys along the rows and values along
the columns. Arrays of a number for each row and head have the heads outside.
"""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
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

#: A log decay whose exponential is 0 in float32, with digits to spare for its sums with others.
LOG_OF_NOTHING = tl.constexpr(-128.0)


@tw.jit
def softplus(x):
    """Return ``log(1 + exp(x))``, with the precision of the element type for small results."""
    small = tl.exp(-tl.abs(x))
    total = 1.0 + small
    rest = tl.where(total == 1.0, small, tl.log(total) * small / (total - 1.0))
    return tl.maximum(x, 0.0) + rest


@tw.jit
def log_decay_kernel(
    g_ptr, rate_ptr, bias_ptr, a_ptr, weight_ptr, cu_seqlens_ptr, seq_idx_ptr,
    g_batch, g_row, g_head, sequences, length, tokens, heads, lower, upper,
    SOFTPLUS: tl.constexpr, T: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Store prefix sums of log decays; with rates, those of steps, whose lengths it stores too.

    Where the index of sequences changes, the decay is one that leaves nothing of a state.
    """
    batch, row, end = rows_of_chunk(cu_seqlens_ptr, tl.program_id(0), sequences, length, T)
    rows, head = row + tl.arange(0, T), tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    inside = (rows < end)[:, None] & (head < heads)[None, :]
    at = batch.to(tl.int64) * g_batch + rows.to(tl.int64)[:, None] * g_row + head[None, :] * g_head
    g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float32)
    place = head.to(tl.int64)[None, :] * tokens + batch * length + rows[:, None]
    if rate_ptr is not None:
        if bias_ptr is not None:
            g += tl.load(bias_ptr + head, mask=head < heads, other=0.0).to(tl.float32)[None, :]
        if SOFTPLUS:
            g = softplus(g)
        g = tl.minimum(tl.maximum(g, lower), upper)
        tl.store(weight_ptr + place, g, mask=inside)
        rate = tl.load(rate_ptr + head, mask=head < heads, other=0.0).to(tl.float32)
        g = tl.where(inside, g * rate[None, :], 0.0)
    if seq_idx_ptr is not None:
        at = seq_idx_ptr + batch.to(tl.int64) * length + rows
        own = tl.load(at, mask=rows < end, other=0)
        before = tl.load(at - 1, mask=(rows > 0) & (rows < end), other=0)
        is_first = (rows > 0) & (rows < end) & (own != before)
        g = tl.where(is_first[:, None], g + LOG_OF_NOTHING, g)
    tl.store(a_ptr + place, tl.cumsum(g, 0), mask=inside)


@tw.jit
def chunk_state_kernel(
    k_ptr, v_ptr, w_ptr, a_ptr, weight_ptr, initial_ptr, states_ptr, u_ptr, final_ptr,
    cu_seqlens_ptr, k_batch, k_row, k_head, v_batch, v_row, v_head,
    initial_sequence, initial_head, initial_k, initial_v,
    final_sequence, final_head, final_k, final_v, length, tokens, heads,
    GROUP: tl.constexpr, T: tl.constexpr, D: tl.constexpr, D_V: tl.constexpr,
    PADDED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the states before all chunks of a sequence, and the last one.

    With ``w_ptr``, what a chunk adds is not ``v`` but ``u = v - w S``, which is stored.
    """
    sequence, head, dim = tl.program_id(0), tl.program_id(1), tl.program_id(2) * WIDTH
    batch, first, end, chunk = first_chunk(cu_seqlens_ptr, sequence, length, T)
    k_ptr += batch.to(tl.int64) * k_batch + (head // GROUP) * k_head
    v_ptr += batch.to(tl.int64) * v_batch + head * v_head
    own = batch.to(tl.int64) * length
    a_ptr += head.to(tl.int64) * tokens + own
    if weight_ptr is not None:
        weight_ptr += head.to(tl.int64) * tokens + own
    if w_ptr is not None:
        w_ptr += (own * heads + head) * D
        u_ptr += (own * heads + head) * D_V
    state = tl.zeros([PADDED, WIDTH], tl.float32)
    if initial_ptr is not None:
        initial_ptr += sequence.to(tl.int64) * initial_sequence + head * initial_head
        state += load_state(initial_ptr, dim, initial_k, initial_v, D, D_V, PADDED, WIDTH)
    states_ptr += (chunk.to(tl.int64) * heads + head) * D * D_V
    for row in range(first, end, T):
        store_state(states_ptr, dim, D_V, 1, state, D, D_V, PADDED, WIDTH)
        states_ptr += tl.cast(heads, tl.int64) * D * D_V
        k = load_tile(k_ptr, row, end, k_row, 0, T, D, PADDED)
        v = load_tile(v_ptr, row, end, v_row, dim, T, D_V, WIDTH).to(tl.float32)
        last, decay = decay_to_end(a_ptr, row, end, T)
        if weight_ptr is not None:
            rows = row + tl.arange(0, T)
            decay *= tl.load(weight_ptr + rows, mask=rows < end, other=0.0)
        if w_ptr is not None:
            w = load_tile(w_ptr, row, end, heads * D, 0, T, D, PADDED)
            v -= tl.dot(w, state.to(w.dtype), input_precision="ieee")
            store_tile(u_ptr, row, end, heads * D_V, dim, v, T, D_V, WIDTH)
        added = (v * decay[:, None]).to(k.dtype)
        state = tl.dot(tl.trans(k), added, state * tl.exp(last), input_precision="ieee")
    if final_ptr is not None:
        final_ptr += sequence.to(tl.int64) * final_sequence + head * final_head
        store_state(final_ptr, dim, final_k, final_v, state, D, D_V, PADDED, WIDTH)


@tw.jit
def chunk_output_kernel(
    q_ptr, k_ptr, v_ptr, a_ptr, weight_ptr, states_ptr, skip_ptr, z_ptr, out_ptr, ungated_ptr,
    cu_seqlens_ptr, q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
    z_batch, z_row, z_head, skip_head, skip_dim, sequences, length, tokens, heads, scale,
    MEMBERS: tl.constexpr, GROUP: tl.constexpr, T: tl.constexpr, D: tl.constexpr, D_V: tl.constexpr,
    PADDED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store a chunk's rows of MEMBERS heads of a group.

    They are of the state before the chunk, of its own steps, and of the skip connection.
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
    products = tl.dot(q, tl.trans(k), input_precision="ieee")
    is_causal = inside[:, None] & (tl.arange(0, T)[:, None] >= tl.arange(0, T)[None, :])
    for member in range(MEMBERS):
        head = first + member
        place = head.to(tl.int64) * tokens + own
        at = v_ptr + batch.to(tl.int64) * v_batch + head * v_head
        v = load_tile(at, row, end, v_row, dim, T, D_V, WIDTH)
        a = tl.load(a_ptr + place + rows, mask=inside, other=0.0)
        at = states_ptr + (chunk.to(tl.int64) * heads + head) * D * D_V
        state = load_state(at, dim, D_V, 1, D, D_V, PADDED, WIDTH)
        out = tl.dot(q, state, input_precision="ieee") * tl.exp(a)[:, None]
        scores = products * decay_between(a[:, None], a[None, :], is_causal)
        if weight_ptr is not None:
            scores *= tl.load(weight_ptr + place + rows, mask=inside, other=0.0)[None, :]
        out = tl.dot(scores.to(v.dtype), v, out, input_precision="ieee") * scale
        if skip_ptr is not None:
            dims = dim + tl.arange(0, WIDTH)
            at = skip_ptr + head * skip_head + dims * skip_dim
            skip = tl.load(at, mask=dims < D_V, other=0.0).to(tl.float32)
            out += skip[None, :] * v.to(tl.float32)
        place = (own * heads + head) * D_V
        if ungated_ptr is not None:
            store_tile(ungated_ptr + place, row, end, heads * D_V, dim, out, T, D_V, WIDTH)
        if z_ptr is not None:
            at = z_ptr + batch.to(tl.int64) * z_batch + head * z_head
            z = load_tile(at, row, end, z_row, dim, T, D_V, WIDTH).to(tl.float32)
            out *= z * tl.sigmoid(z)
        store_tile(out_ptr + place, row, end, heads * D_V, dim, out, T, D_V, WIDTH)
