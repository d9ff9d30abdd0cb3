"""Kernels whose programs compute each row of a batch by itself, for invariant launches."""
# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.kernels.matrices import tile_of


@tw.jit
def matmul(
    x_ptr, w_ptr, out_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute ``out = x @ w.T`` for x [M, K] and w [N, K]."""
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), 8)
    rows, columns = (
        tile_m * BLOCK_M + tl.arange(0, BLOCK_M),
        tile_n * BLOCK_N + tl.arange(0, BLOCK_N),
    )
    k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + rows[:, None] * K + k[None, :]
    w_ptrs = w_ptr + columns[None, :] * K + k[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        inside = k < K - start
        x = tl.load(x_ptrs, mask=(rows[:, None] < M) & inside[None, :], other=0.0)
        w = tl.load(w_ptrs, mask=inside[:, None] & (columns[None, :] < N), other=0.0)
        total = tl.dot(x, w, total)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K
    fits = (rows[:, None] < M) & (columns[None, :] < N)
    out_ptrs = out_ptr + rows[:, None] * N + columns[None, :]
    tl.store(out_ptrs, total.to(out_ptr.dtype.element_ty), mask=fits)


@tw.jit
def persistent_matmul(
    x_ptr, w_ptr, out_ptr, M, N, K, PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute ``out = x @ w.T``, tile after tile in each program.

    It is the design of vLLM's batch-invariant matmul, which has one configuration for all sizes.
    """
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=True):
        tile_m, tile_n = tile_of(tile, tiles_m, tiles_n, 8)
        rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        read_rows = tl.where(rows < M, rows, 0)
        read_columns = tl.where(columns < N, columns, 0)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            at = step * BLOCK_K + k
            x_ptrs = x_ptr + read_rows[:, None] * K + at[None, :]
            w_ptrs = w_ptr + read_columns[None, :] * K + at[:, None]
            x = tl.load(x_ptrs, mask=at[None, :] < K, other=0.0)
            total = tl.dot(x, tl.load(w_ptrs, mask=at[:, None] < K, other=0.0), total)
        fits = (rows[:, None] < M) & (columns[None, :] < N)
        out_ptrs = out_ptr + rows[:, None] * N + columns[None, :]
        tl.store(out_ptrs, total.to(out_ptr.dtype.element_ty), mask=fits)


@tw.jit
def split_k_matmul(
    x_ptr, w_ptr, parts_ptr, M, N, K, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute SPLIT parts along K of ``x @ w.T``, [M, SPLIT, N]."""
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), 8)
    rows, columns = (
        tile_m * BLOCK_M + tl.arange(0, BLOCK_M),
        tile_n * BLOCK_N + tl.arange(0, BLOCK_N),
    )
    part, k = tl.program_id(1), tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(part * K // SPLIT, (part + 1) * K // SPLIT, BLOCK_K):
        x = tl.load(x_ptr + rows[:, None] * K + start + k[None, :], rows[:, None] < M, 0.0)
        w = tl.load(w_ptr + columns[None, :] * K + start + k[:, None], columns[None, :] < N, 0.0)
        total = tl.dot(x, w, total)
    places = (rows[:, None] * SPLIT + part) * N + columns[None, :]
    tl.store(parts_ptr + places, total, (rows[:, None] < M) & (columns[None, :] < N))


@tw.jit
def softmax(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    fits = (rows[:, None] < M) & (columns[None, :] < N)
    places = rows[:, None] * N + columns[None, :]
    x = tl.load(x_ptr + places, fits, -float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(out_ptr + places, (e / tl.sum(e, 1)[:, None]).to(out_ptr.dtype.element_ty), fits)


@tw.jit
def rms_norm(x_ptr, w_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    fits = (rows[:, None] < M) & (columns[None, :] < N)
    places = rows[:, None] * N + columns[None, :]
    x = tl.load(x_ptr + places, fits, 0.0).to(tl.float32)
    w = tl.load(w_ptr + columns, columns < N, 0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 1) / N + 1e-5)[:, None] * w[None, :]
    tl.store(out_ptr + places, y.to(out_ptr.dtype.element_ty), fits)


@tw.jit
def layer_norm(x_ptr, w_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    fits = (rows[:, None] < M) & (columns[None, :] < N)
    places = rows[:, None] * N + columns[None, :]
    x = tl.load(x_ptr + places, fits, 0.0).to(tl.float32)
    w = tl.load(w_ptr + columns, columns < N, 0.0).to(tl.float32)
    centred = tl.where(columns[None, :] < N, x - (tl.sum(x, 1) / N)[:, None], 0.0)
    y = centred * tl.rsqrt(tl.sum(centred * centred, 1) / N + 1e-5)[:, None] * w[None, :]
    tl.store(out_ptr + places, y.to(out_ptr.dtype.element_ty), fits)


@tw.jit
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, M, LENGTH, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute attention of M queries to LENGTH keys."""
    rows, dims = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, HEAD)
    own = rows[:, None] * HEAD + dims[None, :]
    q = tl.load(q_ptr + own, rows[:, None] < M, 0.0)
    highest = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total, acc = tl.zeros([BLOCK_M], tl.float32), tl.zeros([BLOCK_M, HEAD], tl.float32)
    for start in range(0, LENGTH, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        places, fits = columns[:, None] * HEAD + dims[None, :], columns[:, None] < LENGTH
        k, v = tl.load(k_ptr + places, fits, 0.0), tl.load(v_ptr + places, fits, 0.0)
        scores = tl.dot(q, tl.trans(k)) * (scale * 1.44269504)
        scores = tl.where(columns[None, :] < LENGTH, scores, -float("inf"))
        new = tl.maximum(highest, tl.max(scores, 1))
        correction, weights = tl.exp2(highest - new), tl.exp2(scores - new[:, None])
        total = total * correction + tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None])
        highest = new
    tl.store(out_ptr + own, (acc / total[:, None]).to(out_ptr.dtype.element_ty), rows[:, None] < M)
