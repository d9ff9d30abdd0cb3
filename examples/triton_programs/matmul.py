"""Matmul with blocks grouped for cache reuse, autotuning, and a selectable activation."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from comparison import compare, device


def configurations() -> list[triton.Config]:
    """Return (rows, columns, depth) of blocks, then warps and stages.

    Blocks are large for large matmuls, and small for those that would leave processors idle.
    """
    shapes = [
        (128, 256, 64, 8, 3),
        (128, 128, 32, 4, 4),
        (64, 128, 32, 4, 4),
        (64, 64, 64, 4, 4),
        (32, 64, 32, 2, 5),
    ]
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8}, num_warps=w, num_stages=s
        )
        for m, n, k, w, s in shapes
    ]


@triton.jit
def leaky_relu(x):
    return tl.where(x > 0, x, 0.01 * x)


@triton.jit
def grouped_block(pid, blocks_m, blocks_n, GROUP: tl.constexpr):
    """The block that program ``pid`` takes: down ``GROUP`` block rows before going one block column
    on.
    """
    per_group = GROUP * blocks_n
    group = pid // per_group
    height = min(blocks_m - group * GROUP, GROUP)  # the last group may be lower
    within = pid % per_group
    return group * GROUP + within % height, within // height


@triton.autotune(configs=configurations(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    a_row, a_column, b_row, b_column, c_row, c_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    tl.assume(a_row > 0)
    tl.assume(b_column > 0)
    block_m, block_n = grouped_block(
        tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP
    )
    m = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    # rows past the end come round again: their products are never stored, and the loads need no
    # mask of theirs
    a_ptrs = a_ptr + (m % M)[:, None] * a_row + k[None, :] * a_column
    b_ptrs = b_ptr + k[:, None] * b_row + (n % N)[None, :] * b_column

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = tl.load(a_ptrs, mask=k[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=k[:, None] < left, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK_K * a_column
        b_ptrs += BLOCK_K * b_row
    if ACTIVATION == "leaky_relu":
        total = leaky_relu(total)

    c_ptrs = c_ptr + m[:, None] * c_row + n[None, :] * c_column
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str = "") -> torch.Tensor:
    """``activation(a @ b)`` for matrices of any strides; fp8 operands give fp16, others their own
    type.
    """
    (m, k), (other_k, n) = a.shape, b.shape
    assert k == other_k and a.dtype == b.dtype
    c = torch.empty(
        (m, n), device=a.device, dtype=torch.float16 if a.dtype.itemsize == 1 else a.dtype
    )
    grid = lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), ACTIVATION=activation
    )
    return c


def main() -> None:
    size = 512 if device().type == "cpu" else 4096
    a, b = (torch.randn(size, size, device=device(), dtype=torch.float16) for _ in range(2))
    exact = a.double() @ b.double()
    compare(f"matmul of {size} fp16", lambda: matmul(a, b), lambda: a @ b, exact)
    leaky = torch.nn.functional.leaky_relu
    compare(
        f"matmul of {size} fp16, leaky ReLU",
        lambda: matmul(a, b, "leaky_relu"),
        lambda: leaky(a @ b),
        leaky(exact),
    )
    # fp8 matmuls run on matrix units that read the right operand by columns
    a8, b8 = a.to(torch.float8_e5m2), b.T.to(torch.float8_e5m2).T
    compare(
        f"matmul of {size} fp8 (torch: as fp16)",
        lambda: matmul(a8, b8),
        lambda: a8.half() @ b8.half(),
        a8.double() @ b8.double(),
    )


if __name__ == "__main__":
    main()
