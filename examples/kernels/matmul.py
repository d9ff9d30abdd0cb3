"""Matmul with a fused activation, whose programs are grouped for reuse of operands in the cache."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl


@tw.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@tw.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    blocks_m = tl.cdiv(M, BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    blocks_in_group = GROUP_M * blocks_n
    first_m = (pid // blocks_in_group) * GROUP_M
    group_m = min(blocks_m - first_m, GROUP_M)
    pid_m = first_m + (pid % blocks_in_group) % group_m
    pid_n = (pid % blocks_in_group) // group_m

    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + k[None, :] * stride_ak
    b_ptrs = b_ptr + k[:, None] * stride_bk + columns[None, :] * stride_bn
    row_inside = rows[:, None] < M
    column_inside = columns[None, :] < N

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_inside & (k[None, :] < K - start), other=0.0)
        b = tl.load(b_ptrs, mask=(k[:, None] < K - start) & column_inside, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)

    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty), mask=row_inside & column_inside)


def matmul(
    a: Any,
    b: Any,
    c: Any,
    activation: str = "",
    block: tuple[int, int, int] = (128, 128, 64),
    group: int = 8,
) -> Any:
    """``c = activation(a @ b)`` of C-contiguous ``a`` [M, K], ``b`` [K, N] and ``c`` [M, N]."""
    (m, k), n = a.shape, b.shape[1]
    block_m, block_n, block_k = block
    grid = (tw.cdiv(m, block_m) * tw.cdiv(n, block_n),)
    matmul_kernel[grid](
        a, b, c, m, n, k, k, 1, n, 1, n, 1,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=group, ACTIVATION=activation,
    )  # fmt: skip
    return c
