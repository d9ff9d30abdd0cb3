"""Everyday kernels in the part of the language that Triton shares.

The benchmarks for GPUs load this file twice: as it is, and with Triton's module names for Triton.
"""
# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

import tilewright as tw
import tilewright.language as tl


@tw.jit
def ten(a, b, c, d, e, n, m, k, s, t):
    if t == 12345:
        tl.store(a, n.to(tl.float32))


@tw.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(
        z + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask
    )


@tw.jit
def softmax(x, z, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(
        z + row * columns + offsets,
        (values / tl.sum(values, axis=0)).to(z.dtype.element_ty),
        mask=mask,
    )


@tw.jit
def layer_norm(x, w, b, z, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(mask, values - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    scaled = centred * rstd * tl.load(w + offsets, mask=mask) + tl.load(b + offsets, mask=mask)
    tl.store(z + row * columns + offsets, scaled.to(z.dtype.element_ty), mask=mask)


@tw.jit
def rms_norm(x, w, z, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(values * values, axis=0) / columns + eps)
    tl.store(
        z + row * columns + offsets,
        (values * rstd * tl.load(w + offsets, mask=mask)).to(z.dtype.element_ty),
        mask=mask,
    )


@tw.jit
def dropout(x, z, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    keep = tl.rand(seed, offsets) > p
    tl.store(z + offsets, tl.where(keep, tl.load(x + offsets, mask=mask) / (1 - p), 0.0), mask=mask)


@tw.jit
def cross_entropy(logits, labels, losses, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(
        logits + row * columns + offsets, mask=offsets < columns, other=-float("inf")
    ).to(tl.float32)
    highest = tl.max(values, axis=0)
    total = tl.log(tl.sum(tl.exp(values - highest), axis=0)) + highest
    label = tl.load(labels + row)
    tl.store(losses + row, total - tl.load(logits + row * columns + label).to(tl.float32))


@tw.jit
def matmul(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    program, rows, columns = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = program // (GROUP * columns)
    height = tl.minimum(rows - group * GROUP, GROUP)
    pm = group * GROUP + (program % (GROUP * columns)) % height
    pn = (program % (GROUP * columns)) // height
    rm = tl.max_contiguous(tl.multiple_of((pm * BM + tl.arange(0, BM)) % M, BM), BM)
    rn = tl.max_contiguous(tl.multiple_of((pn * BN + tl.arange(0, BN)) % N, BN), BN)
    rk = tl.arange(0, BK)
    a_pointers = a + rm[:, None] * K + rk[None, :]
    b_pointers = b + rk[:, None] * N + rn[None, :]
    accumulator = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(a_pointers, mask=rk[None, :] < K - k * BK, other=0.0)
        right = tl.load(b_pointers, mask=rk[:, None] < K - k * BK, other=0.0)
        accumulator = tl.dot(left, right, accumulator)
        a_pointers += BK
        b_pointers += BK * N
    om, on = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    tl.store(
        c + om[:, None] * N + on[None, :],
        accumulator.to(c.dtype.element_ty),
        mask=(om[:, None] < M) & (on[None, :] < N),
    )


@tw.jit
def attention_span(
    accumulator,
    total,
    highest,
    queries,
    k,
    v,
    rows,
    first,
    last,
    scale,
    D: tl.constexpr,
    BN: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Update the running softmax with the keys from ``first`` to ``last``.

    ``scale`` is in units of log2.
    """
    lanes = tl.arange(0, D)
    for start in range(first, last, BN):
        columns = start + tl.arange(0, BN)
        keys = tl.load(k + columns[None, :] * D + lanes[:, None])
        scores = tl.dot(queries, keys)
        if MASKED:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, -float("inf"))
        new = tl.maximum(highest, tl.max(scores, axis=1) * scale)
        weights = tl.exp2(scores * scale - new[:, None])
        shrink = tl.exp2(highest - new)
        total = total * shrink + tl.sum(weights, axis=1)
        values = tl.load(v + columns[:, None] * D + lanes[None, :])
        accumulator = tl.dot(weights.to(values.dtype), values, accumulator * shrink[:, None])
        highest = new
    return accumulator, total, highest


@tw.jit
def attention(
    q,
    k,
    v,
    out,
    n,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Compute attention forward; ``n`` is a multiple of BM, and BM is a multiple of BN."""
    block, head = tl.program_id(0), tl.program_id(1)
    base = head.to(tl.int64) * n * D
    rows, lanes = block * BM + tl.arange(0, BM), tl.arange(0, D)
    queries = tl.load(q + base + rows[:, None] * D + lanes[None, :])
    highest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    accumulator = tl.zeros((BM, D), tl.float32)
    k += base
    v += base
    if CAUSAL:
        accumulator, total, highest = attention_span(
            accumulator, total, highest, queries, k, v, rows, 0, block * BM, scale, D, BN, False
        )
        accumulator, total, highest = attention_span(
            accumulator,
            total,
            highest,
            queries,
            k,
            v,
            rows,
            block * BM,
            (block + 1) * BM,
            scale,
            D,
            BN,
            True,
        )
    else:
        accumulator, total, highest = attention_span(
            accumulator, total, highest, queries, k, v, rows, 0, n, scale, D, BN, False
        )
    tl.store(
        out + base + rows[:, None] * D + lanes[None, :],
        (accumulator / total[:, None]).to(out.dtype.element_ty),
    )


@tw.jit
def attention_blocks_span(
    accumulator,
    total,
    highest,
    queries,
    k,
    v,
    base,
    rows,
    first,
    last,
    scale,
    BN: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Update the running softmax with the keys from ``first`` to ``last``.

    The keys are rows of descriptors, from ``base`` on; ``scale`` is in units of log2.
    """
    for start in range(first, last, BN):
        scores = tl.dot(queries, k.load([base + start, 0]).T)
        if MASKED:
            mask = rows[:, None] >= (start + tl.arange(0, BN))[None, :]
            scores = scores * scale + tl.where(mask, 0, -1.0e6)
            new = tl.maximum(highest, tl.max(scores, 1))
            scores -= new[:, None]
        else:
            new = tl.maximum(highest, tl.max(scores, 1) * scale)
            scores = scores * scale - new[:, None]
        weights = tl.math.exp2(scores)
        shrink = tl.math.exp2(highest - new)
        accumulator = accumulator * shrink[:, None]
        values = v.load([base + start, 0])
        accumulator = tl.dot(weights.to(values.dtype), values, accumulator)
        total = total * shrink + tl.sum(weights, 1)
        highest = new
    return accumulator, total, highest


@tw.jit
def attention_blocks(
    q,
    k,
    v,
    out,
    lse,
    n,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Compute attention forward through host-side descriptors of all heads' concatenated rows.

    ``lse`` receives the logarithms of the softmax sums, in units of log2.
    """
    row, head = tl.program_id(0) * BM, tl.program_id(1)
    base = head * n
    rows = row + tl.arange(0, BM)
    highest = tl.zeros([BM], dtype=tl.float32) - float("inf")
    total = tl.zeros([BM], dtype=tl.float32)
    accumulator = tl.zeros([BM, D], dtype=tl.float32)
    queries = q.load([base + row, 0])
    if CAUSAL:
        accumulator, total, highest = attention_blocks_span(
            accumulator, total, highest, queries, k, v, base, rows, 0, row, scale, BN, False
        )
        accumulator, total, highest = attention_blocks_span(
            accumulator, total, highest, queries, k, v, base, rows, row, row + BM, scale, BN, True
        )
    else:
        accumulator, total, highest = attention_blocks_span(
            accumulator, total, highest, queries, k, v, base, rows, 0, n, scale, BN, False
        )
    tl.store(lse + base + rows, highest + tl.math.log2(total))
    accumulator = accumulator / total[:, None]
    out.store([base + row, 0], accumulator.to(out.dtype))
