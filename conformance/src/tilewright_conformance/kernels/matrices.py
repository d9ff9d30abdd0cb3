"""Kernels around matmuls, as people write them: grouped, split, quantized, attention, convolution.

The kernels that go with those are here, too.
"""
# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def tile_of(index, tiles_m, tiles_n, GROUP: tl.constexpr):
    width = GROUP * tiles_n
    group = index // width
    size = min(tiles_m - group * GROUP, GROUP)
    return group * GROUP + (index % width) % size, (index % width) // size


@tw.jit
def grouped_matmul(
    a_ptrs,
    b_ptrs,
    c_ptrs,
    sizes,
    problems,
    GROUP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    tile = tl.program_id(0)
    done = 0
    for problem in range(problems):
        M, N, K = (
            tl.load(sizes + 3 * problem),
            tl.load(sizes + 3 * problem + 1),
            tl.load(sizes + 3 * problem + 2),
        )
        tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
        count = tiles_m * tiles_n
        a = tl.load(a_ptrs + problem).to(tl.pointer_type(tl.float32))
        b = tl.load(b_ptrs + problem).to(tl.pointer_type(tl.float32))
        c = tl.load(c_ptrs + problem).to(tl.pointer_type(tl.float32))
        while tile >= done and tile < done + count:
            pid_m, pid_n = tile_of(tile - done, tiles_m, tiles_n, GROUP)
            rows, columns, inner = (
                pid_m * BM + tl.arange(0, BM),
                pid_n * BN + tl.arange(0, BN),
                tl.arange(0, BK),
            )
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for k in tl.range(0, K, BK, num_stages=3, loop_unroll_factor=2):
                x = tl.load(
                    a + rows[:, None] * K + (k + inner)[None, :],
                    mask=(rows[:, None] < M) & (k + inner[None, :] < K),
                    other=0.0,
                )
                y = tl.load(
                    b + (k + inner)[:, None] * N + columns[None, :],
                    mask=(k + inner[:, None] < K) & (columns[None, :] < N),
                    other=0.0,
                )
                acc = tl.dot(x, y, acc, input_precision="ieee")
            tl.store(
                c + rows[:, None] * N + columns[None, :],
                acc,
                mask=(rows[:, None] < M) & (columns[None, :] < N),
            )
            tile += tl.num_programs(0)
        done += count


@tw.jit
def split_k(
    a,
    b,
    c,
    M,
    N,
    K,
    sam,
    sak,
    sbk,
    sbn,
    scm,
    scn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
):
    pid, part = tl.program_id(0), tl.program_id(1)
    pid_m, pid_n = pid // tl.cdiv(N, BN), pid % tl.cdiv(N, BN)
    rows, columns = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    inner = part * BK + tl.arange(0, BK)
    rows_in = tl.max_contiguous(tl.multiple_of(rows % M, BM), BM)
    columns_in = tl.max_contiguous(tl.multiple_of(columns % N, BN), BN)
    a += rows_in[:, None] * sam + inner[None, :] * sak
    b += inner[:, None] * sbk + columns_in[None, :] * sbn
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK * SPLIT)):
        left = K - k * (BK * SPLIT)
        x = tl.load(a, mask=inner[None, :] < left, other=0.0)
        y = tl.load(b, mask=inner[:, None] < left, other=0.0)
        acc += tl.dot(x, y, allow_tf32=False)
        a += BK * SPLIT * sak
        b += BK * SPLIT * sbk
    c += rows[:, None] * scm + columns[None, :] * scn
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    if SPLIT == 1:
        tl.store(c, acc, mask=mask)
    else:
        tl.atomic_add(c, acc, mask=mask, sem="relaxed")


@tw.jit
def int4_matmul(
    x,
    packed,
    scales,
    zeros,
    y,
    M,
    N,
    K,
    GROUP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    shift = (inner % 8) * 4
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + inner
        a = tl.load(
            x + rows[:, None] * K + k[None, :],
            mask=(rows[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        words = tl.load(
            packed + (k // 8)[:, None] * N + columns[None, :],
            mask=(k[:, None] < K) & (columns[None, :] < N),
            other=0,
        )
        group = (k // GROUP)[:, None]
        inside = (k[:, None] < K) & (columns[None, :] < N)
        scale = tl.load(scales + group * N + columns[None, :], mask=inside, other=0.0)
        zero = tl.load(zeros + group * (N // 8) + (columns // 8)[None, :], mask=inside, other=0)
        zero = (zero >> ((columns % 8) * 4)[None, :]) & 0xF
        nibbles = (words >> shift[:, None]) & 0xF
        b = ((nibbles - zero).to(tl.float32) * scale).to(a.dtype)
        acc += tl.dot(a, b)
    tl.store(
        y + rows[:, None] * N + columns[None, :],
        acc.to(y.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@tw.jit
def attention_block(
    acc, total, top, q, k_ptr, v_ptr, rows, start, stop, length, scale,
    D: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, D)
    for first in range(start, stop, BN):
        at = first + tl.arange(0, BN)
        k = tl.load(k_ptr + at[:, None] * D + column[None, :], mask=at[:, None] < length, other=0.0)
        scores = tl.dot(q, k.T) * scale
        if MASKED:
            kept = at[None, :] < length
            if CAUSAL:
                kept = kept & (rows[:, None] >= at[None, :])
            scores = tl.where(kept, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2((scores - new_top[:, None]) * 1.4426950408889634)
        shrink = tl.exp2((top - new_top) * 1.4426950408889634)
        v = tl.load(v_ptr + at[:, None] * D + column[None, :], mask=at[:, None] < length, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        total = total * shrink + tl.sum(p, 1)
        top = new_top
    return acc, total, top


@tw.jit
def attention_forward(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, length, scale, D: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, CAUSAL: tl.constexpr = True
):  # fmt: skip
    """Softmax(q kᵀ scale) v, a block of rows a program; blocks of keys without a mask go first."""
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * length * D
    rows, column = block * BM + tl.arange(0, BM), tl.arange(0, D)
    mask = rows[:, None] < length
    q = tl.load(q_ptr + base + rows[:, None] * D + column[None, :], mask=mask, other=0.0)
    state = (
        tl.zeros((BM, D), tl.float32),
        tl.zeros((BM,), tl.float32),
        tl.full((BM,), float("-inf"), tl.float32),
    )
    if CAUSAL:
        plain, stop = block * BM, min((block + 1) * BM, length)
    else:
        plain, stop = length // BN * BN, length
    state = attention_block(
        *state,
        q,
        k_ptr + base,
        v_ptr + base,
        rows,
        0,
        plain,
        length,
        scale,
        D,
        BN,
        MASKED=False,
        CAUSAL=CAUSAL,
    )
    acc, total, top = attention_block(
        *state,
        q,
        k_ptr + base,
        v_ptr + base,
        rows,
        plain,
        stop,
        length,
        scale,
        D,
        BN,
        MASKED=True,
        CAUSAL=CAUSAL,
    )
    tl.store(
        o_ptr + base + rows[:, None] * D + column[None, :],
        (acc / total[:, None]).to(o_ptr.dtype.element_ty),
        mask=mask,
    )
    tl.store(lse_ptr + head * length + rows, top + tl.log(total), mask=rows < length)


@tw.jit
def attention_backward(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, dk_ptr, dv_ptr, length, scale,
    D: tl.constexpr, B: tl.constexpr, CAUSAL: tl.constexpr = True
):  # fmt: skip
    """Gradients of a block of keys against all queries, then of queries against all keys."""
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * length * D
    lse_ptr += head * length
    delta_ptr += head * length
    column = tl.arange(0, D)[None, :]
    mine = block * B + tl.arange(0, B)
    inside = mine < length
    tile = base + mine[:, None] * D + column
    k = tl.load(k_ptr + tile, mask=inside[:, None], other=0.0)
    v = tl.load(v_ptr + tile, mask=inside[:, None], other=0.0)
    dk, dv = tl.zeros((B, D), tl.float32), tl.zeros((B, D), tl.float32)
    for first in range(block * B if CAUSAL else 0, length, B):
        at = first + tl.arange(0, B)
        q = tl.load(q_ptr + base + at[:, None] * D + column, mask=at[:, None] < length, other=0.0)
        do = tl.load(do_ptr + base + at[:, None] * D + column, mask=at[:, None] < length, other=0.0)
        lse = tl.load(lse_ptr + at, mask=at < length, other=float("inf"))
        delta = tl.load(delta_ptr + at, mask=at < length, other=0.0)
        p = tl.exp(tl.dot(k, tl.trans(q)) * scale - lse[None, :])
        if CAUSAL:
            p = tl.where(at[None, :] >= mine[:, None], p, 0.0)
        dv += tl.dot(p.to(do.dtype), do)
        ds = p * (tl.dot(v, tl.trans(do)) - delta[None, :])
        dk += tl.dot(ds.to(q.dtype), q)
    tl.store(dk_ptr + tile, dk * scale, mask=inside[:, None])
    tl.store(dv_ptr + tile, dv, mask=inside[:, None])
    q = tl.load(q_ptr + tile, mask=inside[:, None], other=0.0)
    do = tl.load(do_ptr + tile, mask=inside[:, None], other=0.0)
    lse = tl.load(lse_ptr + mine, mask=inside, other=float("inf"))
    delta = tl.load(delta_ptr + mine, mask=inside, other=0.0)
    dq = tl.zeros((B, D), tl.float32)
    for first in range(0, (block + 1) * B if CAUSAL else length, B):
        at = first + tl.arange(0, B)
        k = tl.load(k_ptr + base + at[:, None] * D + column, mask=at[:, None] < length, other=0.0)
        v = tl.load(v_ptr + base + at[:, None] * D + column, mask=at[:, None] < length, other=0.0)
        kept = at[None, :] < length
        if CAUSAL:
            kept = kept & (mine[:, None] >= at[None, :])
        p = tl.where(kept, tl.exp(tl.dot(q, k.T) * scale - lse[:, None]), 0.0)
        dq = tl.dot((p * (tl.dot(do, v.T) - delta[:, None])).to(k.dtype), k, dq)
    tl.store(dq_ptr + tile, dq * scale, mask=inside[:, None])


@tw.jit
def paged_decode(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lengths,
    o_ptr,
    scale,
    heads,
    kv_heads,
    pages,
    PAGE: tl.constexpr,
    D: tl.constexpr,
):
    sequence, head = tl.program_id(0), tl.program_id(1)
    kv_head = head // (heads // kv_heads)
    column, slot = tl.arange(0, D), tl.arange(0, PAGE)
    q = tl.load(q_ptr + (sequence * heads + head) * D + column) * scale
    length = tl.load(lengths + sequence)
    acc = tl.zeros((D,), tl.float32)
    top, total = float("-inf"), 0.0
    for page in range(tl.cdiv(length, PAGE)):
        physical = tl.load(table_ptr + sequence * pages + page).to(tl.int64)
        at = ((physical * PAGE + slot) * kv_heads + kv_head)[:, None] * D + column[None, :]
        mask = page * PAGE + slot < length
        scores = tl.sum(tl.load(k_ptr + at, mask=mask[:, None], other=0.0) * q[None, :], axis=1)
        scores = tl.where(mask, scores, float("-inf"))
        new_top = tl.maximum(tl.max(scores, axis=0), top)
        p, shrink = tl.exp(scores - new_top), tl.exp(top - new_top)
        acc = acc * shrink + tl.sum(
            p[:, None] * tl.load(v_ptr + at, mask=mask[:, None], other=0.0), axis=0
        )
        total = total * shrink + tl.sum(p, axis=0)
        top = new_top
    tl.store(o_ptr + (sequence * heads + head) * D + column, acc / total)


@tw.jit
def convolution(
    x,
    w,
    bias,
    y,
    H,
    W,
    OH,
    OW,
    stride,
    pad,
    C: tl.constexpr,
    OUT: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
):
    image = tl.program_id(1)
    pixel = tl.program_id(0) * BM + tl.arange(0, BM)
    top, left = pixel // OW * stride - pad, pixel % OW * stride - pad
    out = tl.arange(0, OUT)
    acc = tl.zeros((BM, OUT), tl.float32) + tl.load(bias + out)[None, :]
    for first in tl.static_range(0, C * KH * KW, BK):
        k = first + tl.arange(0, BK)
        channel, dy, dx = k // (KH * KW), k // KW % KH, k % KW
        row, column = top[:, None] + dy[None, :], left[:, None] + dx[None, :]
        mask = (row >= 0) & (row < H) & (column >= 0) & (column < W) & (k < C * KH * KW)[None, :]
        patches = tl.load(
            x + ((image * C + channel)[None, :] * H + row) * W + column, mask=mask, other=0.0
        )
        weights = tl.load(
            w + out[None, :] * (C * KH * KW) + k[:, None],
            mask=(k < C * KH * KW)[:, None],
            other=0.0,
        )
        acc = tl.dot(patches, weights, acc)
    at = (image * OUT + out)[None, :] * (OH * OW) + pixel[:, None]
    tl.store(y + at, tl.maximum(acc, 0.0), mask=pixel[:, None] < OH * OW)


@tw.jit
def route(choices, ranks, counts, starts, tokens, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    expert = tl.arange(0, EXPERTS)
    seen = tl.zeros((EXPERTS,), tl.int32)
    for first in range(0, tokens, BLOCK):
        at = first + tl.arange(0, BLOCK)
        choice = tl.load(choices + at, mask=at < tokens, other=-1)
        chosen = (choice[:, None] == expert[None, :]).to(tl.int32)
        before = tl.cumsum(chosen, axis=0) - chosen + seen[None, :]
        tl.store(ranks + at, tl.sum(before * chosen, axis=1), mask=at < tokens)
        seen += tl.sum(chosen, axis=0)
    tl.store(counts + expert, seen)
    tl.store(starts + expert, tl.cumsum(seen, 0) - seen)


@tw.jit
def dispatch(x, choices, ranks, starts, gathered, order, tokens, width, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    expert = tl.load(choices + token)
    if expert < 0:
        return
    place = tl.load(starts + expert) + tl.load(ranks + token)
    tl.store(order + place, token)
    for first in range(0, width, BLOCK):
        at = first + tl.arange(0, BLOCK)
        tl.store(
            gathered + place * width + at,
            tl.load(x + token * width + at, mask=at < width),
            mask=at < width,
        )


@tw.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@tw.jit
def blocked_matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, PROGRAMS: tl.constexpr, GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute blocks of the result in groups.

    PROGRAMS programs walk all blocks, or each has its own where it is 0.
    """
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    inner = tl.arange(0, BK)
    for tile in range(
        tl.program_id(0), tiles_m * tiles_n, PROGRAMS if PROGRAMS > 0 else tiles_m * tiles_n
    ):
        pid_m, pid_n = tile_of(tile, tiles_m, tiles_n, GROUP)
        rows, columns = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            k = start + inner
            a = tl.load(
                a_ptr + rows[:, None] * K + k[None, :],
                mask=(rows[:, None] < M) & (k[None, :] < K),
                other=0.0,
            )
            b = tl.load(
                b_ptr + k[:, None] * N + columns[None, :],
                mask=(k[:, None] < K) & (columns[None, :] < N),
                other=0.0,
            )
            acc = tl.dot(a, b, acc)
        if ACTIVATION is not None:
            acc = ACTIVATION(acc)
        tl.store(
            c_ptr + rows[:, None] * N + columns[None, :],
            acc.to(c_ptr.dtype.element_ty),
            mask=(rows[:, None] < M) & (columns[None, :] < N),
        )


@tw.jit
def int8_matmul(
    a_ptr,
    b_ptr,
    a_scale,
    b_scale,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Rows of ``a`` and columns of ``b`` [N, K] were quantised, each with its own scale."""
    rows, columns = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.program_id(1) * BN + tl.arange(0, BN),
    )
    acc = tl.zeros((BM, BN), tl.int32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(
            a_ptr + rows[:, None] * K + k[None, :],
            mask=(rows[:, None] < M) & (k[None, :] < K),
            other=0,
        )
        b = tl.load(
            b_ptr + columns[:, None] * K + k[None, :],
            mask=(columns[:, None] < N) & (k[None, :] < K),
            other=0,
        )
        acc = tl.dot(a, tl.trans(b), acc)
    left = tl.load(a_scale + rows, mask=rows < M, other=0.0)
    right = tl.load(b_scale + columns, mask=columns < N, other=0.0)
    tl.store(
        c_ptr + rows[:, None] * N + columns[None, :],
        acc.to(tl.float32) * left[:, None] * right[None, :],
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@tw.jit
def gated_mlp(
    x_ptr, gate_ptr, up_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """silu(x @ gate) * (x @ up), two matmuls in one loop."""
    rows, columns = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.program_id(1) * BN + tl.arange(0, BN),
    )
    gate, up = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        weights = (k[:, None] < K) & (columns[None, :] < N)
        x = tl.load(
            x_ptr + rows[:, None] * K + k[None, :],
            mask=(rows[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        gate = tl.dot(
            x, tl.load(gate_ptr + k[:, None] * N + columns[None, :], mask=weights, other=0.0), gate
        )
        up = tl.dot(
            x, tl.load(up_ptr + k[:, None] * N + columns[None, :], mask=weights, other=0.0), up
        )
    y = gate / (1 + tl.exp(-gate)) * up
    tl.store(
        y_ptr + rows[:, None] * N + columns[None, :],
        y.to(y_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@tw.jit
def described_matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Batched matmul through descriptors ``a`` [B, M, K], ``b`` [B, K, N] and ``c``.

    Each program of the third axis has a batch.
    """
    m, n, batch = tl.program_id(0) * BM, tl.program_id(1) * BN, tl.program_id(2)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        acc = tl.dot(
            a.load([batch, m, start]).reshape(BM, BK),
            b.load([batch, start, n]).reshape(BK, BN),
            acc,
        )
    c.store([batch, m, n], acc.to(c.dtype).reshape(1, BM, BN))


@tw.jit
def describing_matmul(
    a_ptr, b_ptr, c_ptr, B, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """The same with descriptors made in the kernel."""
    a = tl.make_tensor_descriptor(
        a_ptr, shape=[B, M, K], strides=[M * K, K, 1], block_shape=[1, BM, BK]
    )
    b = tl.make_tensor_descriptor(
        b_ptr, shape=[B, K, N], strides=[K * N, N, 1], block_shape=[1, BK, BN]
    )
    c = tl.make_tensor_descriptor(
        c_ptr, shape=[B, M, N], strides=[M * N, N, 1], block_shape=[1, BM, BN]
    )
    described_matmul(a, b, c, K, BM, BN, BK)
