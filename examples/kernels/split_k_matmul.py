"""Split-K matmul for few blocks and a long K: several programs share a block of the result.

Each program computes a part of K, so that all processors have work. A second kernel adds the parts
in a fixed order, so that the result is deterministic.
"""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl

#: Steps along K whose time a program takes beside its own: starting, writing its part, and that
#: part's sum.
_OVERHEAD = 8


@tw.jit
def part_kernel(
    a_ptr, b_ptr, parts_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    blocks_n = tl.cdiv(N, BLOCK_N)
    rows = tl.program_id(0) // blocks_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % blocks_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    row_inside, column_inside = rows[:, None] < M, columns[None, :] < N
    part = tl.program_id(1)
    each = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(part * each, min(K, (part + 1) * each), BLOCK_K):
        a = tl.load(
            a_ptr + rows[:, None] * K + start + k[None, :],
            mask=row_inside & (start + k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + (start + k[:, None]) * N + columns[None, :],
            mask=(start + k[:, None] < K) & column_inside,
            other=0.0,
        )
        accumulator = tl.dot(a, b, accumulator)
    places = part.to(tl.int64) * M * N + rows[:, None] * N + columns[None, :]
    tl.store(
        parts_ptr + places,
        accumulator.to(parts_ptr.dtype.element_ty),
        mask=row_inside & column_inside,
    )


@tw.jit
def sum_kernel(parts_ptr, c_ptr, size, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts_ptr + part * size + offsets, mask=inside, other=0.0)
    tl.store(c_ptr + offsets, total.to(c_ptr.dtype.element_ty), mask=inside)


def parts_of(
    m: int,
    n: int,
    k: int,
    processors: int,
    block: tuple[int, int, int] = (128, 128, 64),
    most: int = 16,
) -> int:
    """Return the number of splits of K for a number of processors.

    It is the number up to ``most`` that minimizes the steps of the busiest processor.
    """
    block_m, block_n, block_k = block
    blocks, steps = tw.cdiv(m, block_m) * tw.cdiv(n, block_n), tw.cdiv(k, block_k)

    def busiest(split: int) -> int:
        return tw.cdiv(blocks * split, processors) * (
            tw.cdiv(steps, split) + (_OVERHEAD if split > 1 else 0)
        )

    return min(range(1, min(most, steps) + 1), key=busiest)


def split_k_matmul(
    a: Any, b: Any, c: Any, parts: Any, block: tuple[int, int, int] = (128, 128, 64)
) -> Any:
    """``c = a @ b`` for C-contiguous matrices ``a`` [M, K], ``b`` [K, N], ``c`` [M, N].

    ``parts`` is scratch memory, float32 [number of parts, M, N]; see :func:`parts_of`. With one
    part it is not used.
    """
    (m, k), n, split = a.shape, b.shape[1], parts.shape[0]
    block_m, block_n, block_k = block
    grid = (tw.cdiv(m, block_m) * tw.cdiv(n, block_n), split)
    part_kernel[grid](
        a,
        b,
        parts if split > 1 else c,
        m,
        n,
        k,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        SPLIT=split,
    )
    if split > 1:
        sum_kernel[(tw.cdiv(m * n, 1024),)](parts, c, m * n, SPLIT=split, BLOCK=1024)
    return c
