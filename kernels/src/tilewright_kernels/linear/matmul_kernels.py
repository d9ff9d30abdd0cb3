"""Kernels of matmul: blocks by pointers, blocks by descriptors, one row, and parts along K."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.blocks import MIN_DOT_K
from tilewright_kernels.linear.epilogue import store_results, transformed

_MIN_DOT_K = tl.constexpr(MIN_DOT_K)


@tw.jit
def block_of(program, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Return the row and the column of blocks: column by column in groups of rows of blocks."""
    across = tl.cdiv(N, BLOCK_N)
    first = program // (GROUP_M * across) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    return first + program % (GROUP_M * across) % height, program % (GROUP_M * across) // height


@tw.jit(do_not_specialize=["M"])
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, z_ptr, bias_ptr, residual_ptr, array_0_ptr, array_1_ptr, array_2_ptr,
    M, N, K, stride_ab, stride_am, stride_ak, stride_bb, stride_bk, stride_bn,
    stride_cb, stride_cm, stride_cn, stride_rb, stride_rm, stride_rn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT: tl.constexpr, IS_BATCHED: tl.constexpr, IS_WIDE: tl.constexpr, EVEN_K: tl.constexpr,
    SUM: tl.constexpr, OPERAND: tl.constexpr, PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
    EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Compute a block of a result; of parts along K, the sums of one to ``c`` [SPLIT, M, N].

    A ``BLOCK_K`` below ``MIN_DOT_K`` is K itself: the kernel adds up rank-1 updates.
    """
    program = tl.program_id(0)
    if IS_BATCHED:
        blocks = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        batch = (program // blocks).to(tl.int64)
        program = program % blocks
        a_ptr += batch * stride_ab
        b_ptr += batch * stride_bb
        c_ptr += batch * stride_cb
        if z_ptr is not None:
            z_ptr += batch * M * N
        if residual_ptr is not None:
            residual_ptr += batch * stride_rb
    block_m, block_n = block_of(program, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if IS_WIDE:
        rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    start, end = 0, K
    if SPLIT > 1:
        part = tl.program_id(1)
        each = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K
        start, end = part * each, min(K, (part + 1) * each)
        c_ptr += part.to(tl.int64) * M * N
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=SUM)
    if BLOCK_K < _MIN_DOT_K:
        a_ptrs, b_ptrs = a_ptr + rows * stride_am, b_ptr + columns * stride_bn
        for _ in tl.static_range(BLOCK_K):
            a = tl.load(a_ptrs, mask=rows < M, other=0.0).to(OPERAND).to(SUM)
            b = tl.load(b_ptrs, mask=columns < N, other=0.0).to(OPERAND).to(SUM)
            accumulator += a[:, None] * b[None, :]
            a_ptrs += stride_ak
            b_ptrs += stride_bk
    else:
        k = tl.arange(0, BLOCK_K)
        if IS_WIDE:
            k = k.to(tl.int64)
        for first in range(start, end, BLOCK_K):
            a_places = rows[:, None] * stride_am + (first + k[None, :]) * stride_ak
            b_places = (first + k[:, None]) * stride_bk + columns[None, :] * stride_bn
            if EVEN_K:
                a = tl.load(a_ptr + a_places, mask=rows[:, None] < M, other=0.0)
                b = tl.load(b_ptr + b_places, mask=columns[None, :] < N, other=0.0)
            else:
                a_inside = (rows[:, None] < M) & (first + k[None, :] < K)
                b_inside = (first + k[:, None] < K) & (columns[None, :] < N)
                a = tl.load(a_ptr + a_places, mask=a_inside, other=0.0)
                b = tl.load(b_ptr + b_places, mask=b_inside, other=0.0)
            accumulator = tl.dot(
                a.to(OPERAND), b.to(OPERAND), accumulator, out_dtype=SUM, input_precision=PRECISION
            )
    store_results(
        accumulator, c_ptr, z_ptr, bias_ptr, residual_ptr, array_0_ptr, array_1_ptr, array_2_ptr,
        rows, columns, M, N, stride_cm, stride_cn, stride_rm, stride_rn, ACTIVATION, EPILOGUE,
    )  # fmt: skip


@tw.jit
def store_block(
    c, accumulator, z_ptr, bias_ptr, residual_ptr, array_0_ptr, array_1_ptr, array_2_ptr,
    row, column, M, N, stride_rm, stride_rn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STORED_N: tl.constexpr,
    ACTIVATION: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Store the transformed accumulator plus the residual by TMA, and the accumulator to ``z``."""
    rows, columns = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    if z_ptr is not None:
        places = rows.to(tl.int64)[:, None] * N + columns[None, :]
        tl.store(z_ptr + places, accumulator.to(z_ptr.dtype.element_ty), mask=inside)
    result = transformed(
        accumulator, bias_ptr, array_0_ptr, array_1_ptr, array_2_ptr, rows, columns, M, N,
        ACTIVATION, EPILOGUE,
    )  # fmt: skip
    if residual_ptr is not None:
        places = rows.to(tl.int64)[:, None] * stride_rm + columns[None, :] * stride_rn
        residual = tl.load(residual_ptr + places, mask=inside, other=0.0)
        result += residual.to(result.dtype)
    store_columns(c, result, row, column, BLOCK_M, BLOCK_N, STORED_N)


@tw.jit
def store_columns(
    c, tile, row, column, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STORED_N: tl.constexpr
):
    """Store a tile by descriptors of ``STORED_N`` columns."""
    if BLOCK_N == STORED_N:
        c.store([row, column], tile.to(c.dtype))
    else:
        half: tl.constexpr = BLOCK_N // 2
        left, right = tile.reshape(BLOCK_M, 2, half).permute(0, 2, 1).split()
        store_columns(c, left, row, column, BLOCK_M, half, STORED_N)
        store_columns(c, right, row, column + half, BLOCK_M, half, STORED_N)


@tw.jit
def matrix_descriptor(
    pointer, n_rows, n_columns, stride, IS_TRANSPOSED: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return the descriptor of a matrix, or of its transpose where that is what lies in memory."""
    if IS_TRANSPOSED:
        return tl.make_tensor_descriptor(pointer, [n_columns, n_rows], [stride, 1], [COLUMNS, ROWS])
    else:
        return tl.make_tensor_descriptor(pointer, [n_rows, n_columns], [stride, 1], [ROWS, COLUMNS])


@tw.jit
def load_block(matrix, row, column, IS_TRANSPOSED: tl.constexpr):
    """Load the block of a matrix by its :func:`matrix_descriptor`."""
    if IS_TRANSPOSED:
        return matrix.load([column, row]).T
    else:
        return matrix.load([row, column])


@tw.jit
def persistent_matmul_kernel(
    a_ptr, b_ptr, c_ptr, z_ptr, bias_ptr, residual_ptr, array_0_ptr, array_1_ptr, array_2_ptr,
    M, N, K, stride_a, stride_b, stride_c, stride_rm, stride_rn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, MORE_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, PROGRAMS: tl.constexpr, A_IS_TRANSPOSED: tl.constexpr,
    B_IS_TRANSPOSED: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
    ACTIVATION: tl.constexpr, EPILOGUE: tl.constexpr, DIVISOR_N: tl.constexpr = 1,
):  # fmt: skip
    """Compute blocks of a result with ``PROGRAMS`` programs, through descriptors.

    A block has ``BLOCK_N + MORE_N`` columns, in two accumulators where there are more. A transposed
    operand is one whose memory is [K, M], or [N, K]. ``DIVISOR_N`` divides N: TMA stores rows of
    multiples of 16 bytes.
    """
    N = tl.multiple_of(N, DIVISOR_N)
    WIDTH: tl.constexpr = BLOCK_N + MORE_N
    STORED_N: tl.constexpr = MORE_N if MORE_N > 0 else BLOCK_N
    a = matrix_descriptor(a_ptr, M, K, stride_a, A_IS_TRANSPOSED, BLOCK_M, BLOCK_K)
    b = matrix_descriptor(b_ptr, K, N, stride_b, B_IS_TRANSPOSED, BLOCK_K, BLOCK_N)
    if MORE_N > 0:
        more = matrix_descriptor(b_ptr, K, N, stride_b, B_IS_TRANSPOSED, BLOCK_K, MORE_N)
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_c, 1], [BLOCK_M, STORED_N])
    for block in tl.range(
        tl.program_id(0),
        tl.cdiv(M, BLOCK_M) * tl.cdiv(N, WIDTH),
        PROGRAMS,
        flatten=True,
        warp_specialize=True,
    ):
        block_m, block_n = block_of(block, M, N, BLOCK_M, WIDTH, GROUP_M)
        row, column = block_m * BLOCK_M, block_n * WIDTH
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=SUM)
        if MORE_N > 0:
            second = tl.zeros((BLOCK_M, MORE_N), dtype=SUM)
        for k in range(0, K, BLOCK_K):
            x = load_block(a, row, k, A_IS_TRANSPOSED)
            y = load_block(b, k, column, B_IS_TRANSPOSED)
            accumulator = tl.dot(x, y, accumulator, out_dtype=SUM, input_precision=PRECISION)
            if MORE_N > 0:
                y = load_block(more, k, column + BLOCK_N, B_IS_TRANSPOSED)
                second = tl.dot(x, y, second, out_dtype=SUM, input_precision=PRECISION)
        store_block(
            c, accumulator, z_ptr, bias_ptr, residual_ptr, array_0_ptr, array_1_ptr, array_2_ptr,
            row, column, M, N, stride_rm, stride_rn, BLOCK_M, BLOCK_N, STORED_N,
            ACTIVATION, EPILOGUE,
        )  # fmt: skip
        if MORE_N > 0:
            store_block(
                c, second, z_ptr, bias_ptr, residual_ptr, array_0_ptr, array_1_ptr, array_2_ptr,
                row, column + BLOCK_N, M, N, stride_rm, stride_rn, BLOCK_M, MORE_N, STORED_N,
                ACTIVATION, EPILOGUE,
            )  # fmt: skip


@tw.jit
def vector_matmul_kernel(
    a_ptr, b_ptr, c_ptr, z_ptr, bias_ptr, residual_ptr, array_0_ptr, array_1_ptr, array_2_ptr,
    N, K, stride_bn, stride_cn, stride_rn,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, ACTIVATION: tl.constexpr,
    EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Multiply one row by a matrix whose memory is [N, K]; a program reads BLOCK_N rows of it."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = columns < N
    b_ptrs = b_ptr + columns.to(tl.int64)[:, None] * stride_bn
    total = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        if EVEN_K:
            a = tl.load(a_ptr + k)
            b = tl.load(b_ptrs + k[None, :], mask=inside[:, None], other=0.0)
        else:
            a = tl.load(a_ptr + k, mask=k < K, other=0.0)
            b = tl.load(b_ptrs + k[None, :], mask=inside[:, None] & (k < K)[None, :], other=0.0)
        total += b.to(tl.float32) * a.to(tl.float32)[None, :]
    store_results(
        tl.sum(total, 1)[None, :], c_ptr, z_ptr, bias_ptr, residual_ptr,
        array_0_ptr, array_1_ptr, array_2_ptr, tl.arange(0, 1), columns, 1, N,
        0, stride_cn, 0, stride_rn, ACTIVATION, EPILOGUE,
    )  # fmt: skip


@tw.jit
def add_parts_kernel(
    parts_ptr, c_ptr, z_ptr, bias_ptr, residual_ptr, M, N, stride_part,
    stride_cm, stride_cn, stride_rm, stride_rn,
    SPLIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SUM: tl.constexpr,
    ACTIVATION: tl.constexpr, EPILOGUE: tl.constexpr = None,
    array_0_ptr=None, array_1_ptr=None, array_2_ptr=None,
):  # fmt: skip
    """Add the sums of parts along K in their order, and apply the epilogue."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    places = rows[:, None] * N + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for _ in tl.static_range(SPLIT):
        total += tl.load(parts_ptr + places, mask=inside, other=0)
        places += stride_part
    store_results(
        total, c_ptr, z_ptr, bias_ptr, residual_ptr, array_0_ptr, array_1_ptr, array_2_ptr,
        rows, columns, M, N, stride_cm, stride_cn, stride_rm, stride_rn, ACTIVATION, EPILOGUE,
    )  # fmt: skip
