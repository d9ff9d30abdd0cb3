"""Matmuls of a few rows by an [N, K] weight matrix, as in the decoding of language models.

The weights are read once, and reading them bounds the time.
"""
# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

import tilewright as tw
import tilewright.language as tl


@tw.jit
def vector_matmul(x_ptr, w_ptr, out_ptr, N, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Compute ``out[n] = sum(x[k] * w[n, k])``; each program reads BLOCK_N rows of the weights."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(x_ptr + start + k).to(tl.float32)
        w = tl.load(w_ptr + n[:, None] * K + start + k[None, :]).to(tl.float32)
        total += w * x[None, :]
    tl.store(out_ptr + n, tl.sum(total, 1).to(out_ptr.dtype.element_ty))


@tw.jit
def packed_vector_matmul(
    x_ptr,
    q_ptr,
    scale_ptr,
    out_ptr,
    N,
    K,
    GROUP: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute ``out[n] = sum(x[k] * (q[n, k] - 8) * scale[n, k // GROUP])`` for 4-bit weights.

    A 32-bit word holds eight consecutive weights.
    """
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    word = tl.arange(0, BLOCK_K // 8)
    shifts = 4 * tl.arange(0, 8)
    k = word[:, None] * 8 + tl.arange(0, 8)[None, :]
    total = tl.zeros((BLOCK_N, BLOCK_K // 8), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(x_ptr + start + k).to(tl.float32)
        packed = tl.load(q_ptr + n[:, None] * (K // 8) + start // 8 + word[None, :])
        scale = tl.load(
            scale_ptr + n[:, None] * (K // GROUP) + (start + word[None, :] * 8) // GROUP
        ).to(tl.float32)
        q = ((packed[:, :, None] >> shifts[None, None, :]) & 15) - 8
        total += tl.sum(q.to(tl.float32) * x[None, :, :], 2) * scale
    tl.store(out_ptr + n, tl.sum(total, 1).to(out_ptr.dtype.element_ty))


@tw.jit
def few_rows_matmul(
    x_ptr,
    w_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute ``out = x @ w.T`` for at most BLOCK_M rows; each program computes BLOCK_N columns."""
    m = tl.arange(0, BLOCK_M)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(x_ptr + m[:, None] * K + start + k[None, :], mask=m[:, None] < M, other=0)
        w = tl.load(w_ptr + n[None, :] * K + start + k[:, None])
        total = tl.dot(x, w, total)
    tl.store(
        out_ptr + m[:, None] * N + n[None, :],
        total.to(out_ptr.dtype.element_ty),
        mask=m[:, None] < M,
    )
