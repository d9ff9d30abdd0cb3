"""Forward passes of training: gates, losses, rotations, grouped norms and attention, pooling."""
# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright.language.extra import libdevice


@tw.jit
def log_softmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=-float("inf"))
    shifted = x - tl.max(x, axis=0)
    tl.store(out_ptr + row * n + at, shifted - tl.log(tl.sum(tl.exp(shifted))), mask=at < n)


@tw.jit
def group_norm(x_ptr, w_ptr, b_ptr, out_ptr, channels, size, eps, GROUP: tl.constexpr,
               BLOCK: tl.constexpr):  # fmt: skip
    """Normalize ``GROUP`` channels of ``size`` elements together, a group of an image a program."""
    group, image = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    fits = at < GROUP * size
    channel = group * GROUP + at // size
    base = (image * channels + group * GROUP) * size
    x = tl.load(x_ptr + base + at, mask=fits, other=0.0)
    mean = tl.sum(x, axis=0) / (GROUP * size)
    centred = tl.where(fits, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / (GROUP * size) + eps)
    w, b = tl.load(w_ptr + channel, mask=fits), tl.load(b_ptr + channel, mask=fits)
    tl.store(out_ptr + base + at, centred * rstd * w + b, mask=fits)


@tw.jit
def gated(gate_ptr, up_ptr, out_ptr, n, FORM: tl.constexpr, BLOCK: tl.constexpr):
    """SwiGLU, and GeGLU by the hyperbolic tangent."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate, up = tl.load(gate_ptr + at, mask=at < n), tl.load(up_ptr + at, mask=at < n)
    if FORM == "silu":
        gate = gate * tl.sigmoid(gate)
    else:
        cubic = 0.7978845608028654 * gate * (1 + 0.044715 * gate * gate)
        gate = 0.5 * gate * (1 + libdevice.tanh(cubic))
    tl.store(out_ptr + at, gate * up, mask=at < n)


@tw.jit
def rotated(x_ptr, cos_ptr, sin_ptr, out_ptr, heads, half, HEADS: tl.constexpr,
            HALF: tl.constexpr):  # fmt: skip
    position = tl.program_id(0)
    head, column = tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None, :]
    cos = tl.load(cos_ptr + position * half + column, mask=column < half, other=0.0)
    sin = tl.load(sin_ptr + position * half + column, mask=column < half, other=0.0)
    first = position * heads * 2 * half + head * (2 * half) + column
    fits = (head < heads) & (column < half)
    a = tl.load(x_ptr + first, mask=fits, other=0.0)
    b = tl.load(x_ptr + first + half, mask=fits, other=0.0)
    tl.store(out_ptr + first, a * cos - b * sin, mask=fits)
    tl.store(out_ptr + first + half, b * cos + a * sin, mask=fits)


@tw.jit
def divergence(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Kullback-Leibler divergence of each row: ``sum y (log y - x)``."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
        y = tl.load(y_ptr + row * n + at, mask=at < n, other=1.0)
        total += tl.where(at < n, y * (tl.log(y) - x), 0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


@tw.jit
def top_values(x_ptr, out_ptr, n, K: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=-float("inf"))
    tl.store(out_ptr + row * K + tl.arange(0, K), tl.topk(x, K))


@tw.jit
def max_pool(x_ptr, out_ptr, n, WINDOW: tl.constexpr, BLOCK: tl.constexpr):
    """The maximum of each window of ``WINDOW`` elements, windows side by side."""
    window = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = window[:, None] * WINDOW + tl.arange(0, WINDOW)[None, :]
    x = tl.load(x_ptr + at, mask=at < n * WINDOW, other=-float("inf"))
    tl.store(out_ptr + window, tl.max(x, axis=1), mask=window < n)


@tw.jit
def batched_matmul(a_ptr, b_ptr, bias_ptr, out_ptr, M, N, K, GELU: tl.constexpr, BM: tl.constexpr,
                   BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """``a @ b + bias`` of a batch of matrices, and GELU of it."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    batch, inner = tl.program_id(2), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + inner
        a = tl.load(
            a_ptr + batch * M * K + rows[:, None] * K + k[None, :],
            mask=(rows[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + batch * K * N + k[:, None] * N + columns[None, :],
            mask=(k[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    acc += tl.load(bias_ptr + columns, mask=columns < N, other=0.0)[None, :]
    if GELU:
        acc = 0.5 * acc * (1 + tl.erf(acc * 0.7071067811865476))
    tl.store(
        out_ptr + batch * M * N + rows[:, None] * N + columns[None, :],
        acc,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@tw.jit
def grouped_query_attention(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, scale, length, QUERIES, BM:
                            tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr):  # fmt: skip
    """Causal attention; ``QUERIES`` heads of queries share a head of keys and values."""
    start_m, head = tl.program_id(0) * BM, tl.program_id(1)
    shared = head // QUERIES * length * HEAD
    rows, dims = start_m + tl.arange(0, BM), tl.arange(0, HEAD)
    own, row_fits = head * length * HEAD + rows[:, None] * HEAD + dims[None, :], rows < length
    q = tl.load(q_ptr + own, row_fits[:, None], 0.0)
    highest = tl.full([BM], -float("inf"), dtype=tl.float32)
    total, acc = tl.zeros([BM], tl.float32), tl.zeros([BM, HEAD], tl.float32)
    for start in range(0, tl.minimum(start_m + BM, length), BN):
        columns = start + tl.arange(0, BN)
        places, fits = shared + columns[:, None] * HEAD + dims[None, :], columns[:, None] < length
        k, v = tl.load(k_ptr + places, fits, 0.0), tl.load(v_ptr + places, fits, 0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * 1.44269504)
        keep = (columns[None, :] < length) & (rows[:, None] >= columns[None, :])
        scores = tl.where(keep, scores, -float("inf"))
        new = tl.maximum(highest, tl.max(scores, axis=1))
        correction, weights = tl.exp2(highest - new), tl.exp2(scores - new[:, None])
        total = total * correction + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None], input_precision="ieee")
        highest = new
    tl.store(lse_ptr + head * length + rows, highest + tl.log2(total), mask=row_fits)
    tl.store(out_ptr + own, acc / total[:, None], row_fits[:, None])


@tw.jit
def scaled_blocks(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """``x * y`` of matrices by descriptors."""
    at = [tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS]
    out.store(at, x.load(at) * y.load(at))


@tw.jit
def dynamic_tanh(x_ptr, alpha_ptr, w_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """``tanh(alpha x) w`` of rows, where all elements share ``alpha``."""
    column = tl.arange(0, BLOCK)
    inside, start = column < n, tl.program_id(0) * n
    x = tl.load(x_ptr + start + column, mask=inside, other=0.0)
    w = tl.load(w_ptr + column, mask=inside, other=0.0)
    y = 2 * tl.sigmoid(2 * tl.load(alpha_ptr) * x) - 1
    tl.store(out_ptr + start + column, y * w, mask=inside)


@tw.jit
def lower_triangle(x_ptr, w_ptr, out_ptr, n, B: tl.constexpr, S: tl.constexpr):
    """Sums of sines of ``x w`` left of the diagonal's block, then of those in it."""
    start = tl.program_id(0) * B
    row = start + tl.arange(0, B)
    x = tl.load(x_ptr + row, mask=row < n, other=0.0)[:, None]
    total = tl.zeros([B], tl.float32)
    for low in range(0, start, S):
        column = low + tl.arange(0, S)
        w = tl.load(w_ptr + column, mask=column < n, other=0.0)
        total += tl.sum(tl.sin(x * w[None, :]), axis=1)
    for low in range(start, tl.minimum(start + B, n), S):
        column = low + tl.arange(0, S)
        w = tl.load(w_ptr + column, mask=column < n, other=0.0)
        sines = tl.sin(x * w[None, :])
        total += tl.sum(tl.where(column[None, :] <= row[:, None], sines, 0.0), axis=1)
    tl.store(out_ptr + row, total, mask=row < n)


@tw.jit
def gathered_rows(x, index_ptr, out_ptr, n, R: tl.constexpr, C: tl.constexpr):
    """Sines of rows of a matrix, which a descriptor gathers."""
    place = tl.program_id(0) * R + tl.arange(0, R)
    index = tl.load(index_ptr + place, mask=place < n, other=0)
    value = tl.sin(x.gather(index, 0))
    tl.store(out_ptr + place[:, None] * C + tl.arange(0, C), value, mask=place[:, None] < n)
