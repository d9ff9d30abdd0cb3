"""Kernels of grouped matmuls: each group of rows has a matrix of its own."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.matmul_kernels import block_of


@tw.jit
def rows_of(
    tile, rows_ptr, n_groups, CAPACITY: tl.constexpr, BLOCK_M: tl.constexpr, GROUPS: tl.constexpr
):
    """Return the group of a tile of rows, its first row, and the ends of its loads and stores.

    ``rows_ptr`` has the first row of each group and the end; with a ``CAPACITY`` of rows for each
    group, it has the number of those that are used, and zeros are stored to the others. The group
    is ``n_groups`` where there is no such tile.
    """
    groups = tl.arange(0, GROUPS)
    inside = groups < n_groups
    if CAPACITY > 0:
        tiles = tl.cdiv(CAPACITY, BLOCK_M)
        group = tile // tiles
        start = group * CAPACITY
        used = tl.load(rows_ptr + group, mask=group < n_groups, other=0).to(tl.int32)
        return group, start + tile % tiles * BLOCK_M, start + used, start + CAPACITY
    starts = tl.load(rows_ptr + groups, mask=inside, other=0).to(tl.int32)
    ends = tl.load(rows_ptr + groups + 1, mask=inside, other=0).to(tl.int32)
    tiles = (ends - starts + (BLOCK_M - 1)) // BLOCK_M
    after = tl.cumsum(tiles, 0)
    group = tl.sum((inside & (after <= tile)).to(tl.int32), 0)
    chosen = groups == group
    start = tl.sum(tl.where(chosen, starts - (after - tiles) * BLOCK_M, 0), 0) + tile * BLOCK_M
    end = tl.sum(tl.where(chosen, ends, 0), 0)
    return group, start, end, end


@tw.jit
def grouped_matmul_kernel(
    a_ptr, b_ptr, c_ptr, rows_ptr, n_tiles, n_groups, N, K,
    stride_am, stride_ak, stride_bg, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    GROUPS: tl.constexpr, CAPACITY: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a block of ``c[rows of g] = a[rows of g] @ b[g]``."""
    tile, block_n = block_of(tl.program_id(0), n_tiles * BLOCK_M, N, BLOCK_M, BLOCK_N, GROUP_M)
    group, start, end, stored = rows_of(tile, rows_ptr, n_groups, CAPACITY, BLOCK_M, GROUPS)
    if group < n_groups:
        rows = start + tl.arange(0, BLOCK_M)
        columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
        k = tl.arange(0, BLOCK_K)
        a_ptrs = a_ptr + rows.to(tl.int64)[:, None] * stride_am + k[None, :] * stride_ak
        b_ptrs = b_ptr + group.to(tl.int64) * stride_bg
        b_ptrs += k[:, None] * stride_bk + columns[None, :] * stride_bn
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), SUM)
        for first in range(0, K if start < end else 0, BLOCK_K):
            inside = k < K - first
            a = tl.load(a_ptrs, mask=(rows < end)[:, None] & inside[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=inside[:, None] & (columns < N)[None, :], other=0.0)
            accumulator = tl.dot(a, b, accumulator, out_dtype=SUM, input_precision=PRECISION)
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        tl.store(
            c_ptr + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :] * stride_cn,
            accumulator.to(c_ptr.dtype.element_ty),
            mask=(rows < stored)[:, None] & (columns < N)[None, :],
        )


@tw.jit
def grouped_descriptor_kernel(
    a_ptr, b_ptr, c_ptr, rows_ptr, n_tiles, n_rows, n_groups, N, K,
    stride_a, stride_bg, stride_b, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    GROUPS: tl.constexpr, CAPACITY: tl.constexpr, B_IS_TRANSPOSED: tl.constexpr,
    PROGRAMS: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute blocks of :func:`grouped_matmul_kernel` with ``PROGRAMS`` programs, by descriptors.

    Rows of other groups are multiplied and not stored.
    """
    a = tl.make_tensor_descriptor(a_ptr, [n_rows, K], [stride_a, 1], [BLOCK_M, BLOCK_K])
    if B_IS_TRANSPOSED:
        b = tl.make_tensor_descriptor(
            b_ptr, [n_groups, N, K], [stride_bg, stride_b, 1], [1, BLOCK_N, BLOCK_K]
        )
    else:
        b = tl.make_tensor_descriptor(
            b_ptr, [n_groups, K, N], [stride_bg, stride_b, 1], [1, BLOCK_K, BLOCK_N]
        )
    for program in range(tl.program_id(0), n_tiles * tl.cdiv(N, BLOCK_N), PROGRAMS):
        tile, block_n = block_of(program, n_tiles * BLOCK_M, N, BLOCK_M, BLOCK_N, GROUP_M)
        group, start, end, stored = rows_of(tile, rows_ptr, n_groups, CAPACITY, BLOCK_M, GROUPS)
        column = block_n * BLOCK_N
        if group < n_groups:
            accumulator = tl.zeros((BLOCK_M, BLOCK_N), SUM)
            for k in tl.range(0, K if start < end else 0, BLOCK_K, warp_specialize=True):
                x = a.load([start, k])
                if B_IS_TRANSPOSED:
                    y = b.load([group, column, k]).reshape(BLOCK_N, BLOCK_K).T
                else:
                    y = b.load([group, k, column]).reshape(BLOCK_K, BLOCK_N)
                accumulator = tl.dot(x, y, accumulator, out_dtype=SUM, input_precision=PRECISION)
            rows, columns = start + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
            if CAPACITY > 0:
                accumulator = tl.where((rows < end)[:, None], accumulator, 0.0)
            tl.store(
                c_ptr + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :] * stride_cn,
                accumulator.to(c_ptr.dtype.element_ty),
                mask=(rows < stored)[:, None] & (columns < N)[None, :],
            )


@tw.jit
def k_grouped_matmul_kernel(
    a_ptr, b_ptr, c_ptr, rows_ptr, M, N,
    stride_ak, stride_am, stride_bk, stride_bn, stride_cg, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    CAPACITY: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a block of ``c[g] = a[rows of g].T @ b[rows of g]``."""
    blocks = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    group = tl.program_id(0) // blocks
    block_m, block_n = block_of(tl.program_id(0) % blocks, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    if CAPACITY > 0:
        start = group * CAPACITY
        end = start + tl.load(rows_ptr + group).to(tl.int32)
    else:
        start = tl.load(rows_ptr + group).to(tl.int32)
        end = tl.load(rows_ptr + group + 1).to(tl.int32)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for first in range(start, end, BLOCK_K):
        places = (first + k).to(tl.int64)
        inside = first + k < end
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + places[None, :] * stride_ak,
            mask=(rows < M)[:, None] & inside[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + places[:, None] * stride_bk + columns[None, :] * stride_bn,
            mask=inside[:, None] & (columns < N)[None, :],
            other=0.0,
        )
        accumulator = tl.dot(a, b, accumulator, out_dtype=SUM, input_precision=PRECISION)
    c_ptr += group.to(tl.int64) * stride_cg
    tl.store(
        c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn,
        accumulator.to(c_ptr.dtype.element_ty),
        mask=(rows < M)[:, None] & (columns < N)[None, :],
    )
