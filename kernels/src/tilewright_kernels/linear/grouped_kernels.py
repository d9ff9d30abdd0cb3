"""Kernels of grouped matmuls: each group of rows has a matrix of its own."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.matmul_kernels import block_of, store_columns


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
def matrices_descriptor(
    pointer, n_groups, n_rows, n_columns, group_stride, stride, IS_TRANSPOSED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return the descriptor of a matrix for each group, or of their transposes in memory."""
    if IS_TRANSPOSED:
        return tl.make_tensor_descriptor(
            pointer, [n_groups, n_columns, n_rows], [group_stride, stride, 1], [1, COLUMNS, ROWS]
        )
    else:
        return tl.make_tensor_descriptor(
            pointer, [n_groups, n_rows, n_columns], [group_stride, stride, 1], [1, ROWS, COLUMNS]
        )


@tw.jit
def load_block_of(
    matrices, group, row, column, IS_TRANSPOSED: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Load a block of a group's matrix by the :func:`matrices_descriptor`."""
    if IS_TRANSPOSED:
        return matrices.load([group, column, row]).reshape(COLUMNS, ROWS).T
    else:
        return matrices.load([group, row, column]).reshape(ROWS, COLUMNS)


@tw.jit
def grouped_descriptor_kernel(
    a_ptr, b_ptr, c_ptr, rows_ptr, n_groups, N, K, stride_a, stride_bg, stride_b, stride_c,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, MORE_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, CAPACITY: tl.constexpr, B_IS_TRANSPOSED: tl.constexpr,
    PROGRAMS: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
    DIVISOR_N: tl.constexpr = 1,
):  # fmt: skip
    """Compute blocks of :func:`grouped_matmul_kernel` with ``PROGRAMS`` programs, by descriptors.

    A block has ``BLOCK_N + MORE_N`` columns, in two accumulators where there are more. Programs go
    from group to group in scalars, so that warps which only load know their blocks. Descriptors of
    rows end with the group: those of other groups are not loaded, and not stored. ``DIVISOR_N``
    divides N: TMA stores rows of multiples of 16 bytes.
    """
    N = tl.multiple_of(N, DIVISOR_N)
    WIDTH: tl.constexpr = BLOCK_N + MORE_N
    STORED_N: tl.constexpr = MORE_N if MORE_N > 0 else BLOCK_N
    b = matrices_descriptor(
        b_ptr, n_groups, K, N, stride_bg, stride_b, B_IS_TRANSPOSED, BLOCK_K, BLOCK_N
    )
    if MORE_N > 0:
        more = matrices_descriptor(
            b_ptr, n_groups, K, N, stride_bg, stride_b, B_IS_TRANSPOSED, BLOCK_K, MORE_N
        )
    first = tl.program_id(0)
    for group in range(n_groups):
        if CAPACITY > 0:
            start, stored = group * CAPACITY, (group + 1) * CAPACITY
            end = start + tl.load(rows_ptr + group).to(tl.int32)
        else:
            start = tl.load(rows_ptr + group).to(tl.int32)
            end = tl.load(rows_ptr + group + 1).to(tl.int32)
            stored = end
        a = tl.make_tensor_descriptor(a_ptr, [end, K], [stride_a, 1], [BLOCK_M, BLOCK_K])
        c = tl.make_tensor_descriptor(c_ptr, [stored, N], [stride_c, 1], [BLOCK_M, STORED_N])
        blocks = tl.cdiv(stored - start, BLOCK_M) * tl.cdiv(N, WIDTH)
        for block in range(first, blocks, PROGRAMS):
            block_m, block_n = block_of(block, stored - start, N, BLOCK_M, WIDTH, GROUP_M)
            row, column = start + block_m * BLOCK_M, block_n * WIDTH
            tl.assume(row >= 0)
            accumulator = tl.zeros((BLOCK_M, BLOCK_N), SUM)
            if MORE_N > 0:
                second = tl.zeros((BLOCK_M, MORE_N), SUM)
            for k in tl.range(0, K if row < end else 0, BLOCK_K, warp_specialize=True):
                x = a.load([row, k])
                y = load_block_of(b, group, k, column, B_IS_TRANSPOSED, BLOCK_K, BLOCK_N)
                accumulator = tl.dot(x, y, accumulator, out_dtype=SUM, input_precision=PRECISION)
                if MORE_N > 0:
                    y = load_block_of(
                        more, group, k, column + BLOCK_N, B_IS_TRANSPOSED, BLOCK_K, MORE_N
                    )
                    second = tl.dot(x, y, second, out_dtype=SUM, input_precision=PRECISION)
            if CAPACITY > 0:
                used = (row + tl.arange(0, BLOCK_M) < end)[:, None]
                accumulator = tl.where(used, accumulator, 0.0)
                if MORE_N > 0:
                    second = tl.where(used, second, 0.0)
            store_columns(c, accumulator, row, column, BLOCK_M, BLOCK_N, STORED_N)
            if MORE_N > 0:
                store_columns(c, second, row, column + BLOCK_N, BLOCK_M, MORE_N, STORED_N)
        # the program's first block among those of the next group
        first += tl.cdiv(tl.maximum(blocks - first, 0), PROGRAMS) * PROGRAMS - blocks


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


@tw.jit
def k_grouped_descriptor_kernel(
    a_ptr, b_ptr, c_ptr, rows_ptr, n_groups, M, N, stride_a, stride_b, stride_cg, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    CAPACITY: tl.constexpr, PROGRAMS: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
    DIVISOR_N: tl.constexpr = 1,
):  # fmt: skip
    """Compute blocks of :func:`k_grouped_matmul_kernel` with ``PROGRAMS`` programs, by descriptors.

    The operands' descriptors end with the group: what is behind it is zero. ``DIVISOR_N`` divides
    N: TMA stores rows of multiples of 16 bytes.
    """
    N = tl.multiple_of(N, DIVISOR_N)
    c = tl.make_tensor_descriptor(
        c_ptr, [n_groups, M, N], [stride_cg, stride_cm, 1], [1, BLOCK_M, BLOCK_N]
    )
    blocks = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for program in range(tl.program_id(0), n_groups * blocks, PROGRAMS):
        group = program // blocks
        if CAPACITY > 0:
            start = group * CAPACITY
            end = start + tl.load(rows_ptr + group).to(tl.int32)
        else:
            start = tl.load(rows_ptr + group).to(tl.int32)
            end = tl.load(rows_ptr + group + 1).to(tl.int32)
        tl.assume(start >= 0)
        a = tl.make_tensor_descriptor(a_ptr, [end, M], [stride_a, 1], [BLOCK_K, BLOCK_M])
        b = tl.make_tensor_descriptor(b_ptr, [end, N], [stride_b, 1], [BLOCK_K, BLOCK_N])
        block_m, block_n = block_of(program % blocks, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, column = block_m * BLOCK_M, block_n * BLOCK_N
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), SUM)
        for k in tl.range(start, end, BLOCK_K, warp_specialize=True):
            x, y = a.load([k, row]).T, b.load([k, column])
            accumulator = tl.dot(x, y, accumulator, out_dtype=SUM, input_precision=PRECISION)
        result = accumulator.to(c.dtype).reshape(1, BLOCK_M, BLOCK_N)
        c.store([group, row, column], result)
