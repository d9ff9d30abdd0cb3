"""Kernels of matmuls of scaled operands, and of quantization."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.matmul_kernels import block_of

#: Elements along K, and columns of B, of a block with a scale of its own.
SCALED = tl.constexpr(128)


@tw.jit
def multiply_block(
    a, b, accumulator, a_scale_ptr, b_scale_ptr, rows, columns, first, M, N,
    stride_am, stride_ak, stride_bk, stride_bn,
    A_SCALES: tl.constexpr, B_SCALES: tl.constexpr, SUM: tl.constexpr,
    IS_UNIFORM: tl.constexpr,
):  # fmt: skip
    """Add ``a @ b`` to the accumulator, with the scales of blocks of 128 elements along K."""
    if A_SCALES != "block" and B_SCALES != "block":
        return tl.dot(a, b, accumulator, out_dtype=SUM)
    block = first // SCALED
    if B_SCALES == "block":
        if IS_UNIFORM:
            # blocks of powers of two up to 128 columns lie in one block of scales
            column = tl.min(columns, 0)
            scale = tl.load(b_scale_ptr + block * stride_bk + column // SCALED * stride_bn)
        else:
            places = b_scale_ptr + block * stride_bk + columns // SCALED * stride_bn
            scale = tl.load(places, mask=columns < N, other=0.0)[None, :]
    if A_SCALES == "block":
        places = a_scale_ptr + rows * stride_am + block * stride_ak
        a_scale = tl.load(places, mask=rows < M, other=0.0)[:, None]
        scale = a_scale * scale if B_SCALES == "block" else a_scale
    total = tl.dot(a, b, out_dtype=SUM).to(tl.float32)
    return accumulator + total * scale


@tw.jit
def scaled_result(
    accumulator, a_scale_ptr, b_scale_ptr, bias_ptr, rows, columns, M, N, stride_am, stride_bn,
    A_SCALES: tl.constexpr, B_SCALES: tl.constexpr,
):  # fmt: skip
    """Return the accumulator times the scales of the tensor, of rows and of columns, and a bias."""
    result = accumulator.to(tl.float32)
    if A_SCALES == "tensor":
        result *= tl.load(a_scale_ptr)
    elif A_SCALES == "row":
        result *= tl.load(a_scale_ptr + rows * stride_am, mask=rows < M, other=0.0)[:, None]
    if B_SCALES == "tensor":
        result *= tl.load(b_scale_ptr)
    elif B_SCALES == "row":
        result *= tl.load(b_scale_ptr + columns * stride_bn, mask=columns < N, other=0.0)[None, :]
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0)
        result += bias.to(tl.float32)[None, :]
    return result


@tw.jit
def scaled_matmul_kernel(
    a_ptr, b_ptr, c_ptr, a_scale_ptr, b_scale_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    stride_asm, stride_ask, stride_bsk, stride_bsn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT: tl.constexpr, STEPS: tl.constexpr, EVEN_K: tl.constexpr,
    A_SCALES: tl.constexpr, B_SCALES: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Compute a block of a result; of parts along K, the sums of one to ``c`` [SPLIT, M, N].

    K is a multiple of ``STEPS`` blocks, which an iteration multiplies, or there is one of them.
    """
    block_m, block_n = block_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    start, end = 0, K
    if SPLIT > 1:
        part = tl.program_id(1)
        each = tl.cdiv(tl.cdiv(K, STEPS * BLOCK_K), SPLIT) * (STEPS * BLOCK_K)
        start, end = part * each, min(K, (part + 1) * each)
        c_ptr += part.to(tl.int64) * M * N
    has_blocks: tl.constexpr = A_SCALES == "block" or B_SCALES == "block"
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32 if has_blocks else SUM)
    for first in range(start, end, STEPS * BLOCK_K):
        for step in tl.static_range(STEPS):
            at = first + step * BLOCK_K
            a_places = rows[:, None] * stride_am + (at + k[None, :]) * stride_ak
            b_places = (at + k[:, None]) * stride_bk + columns[None, :] * stride_bn
            if EVEN_K:
                a = tl.load(a_ptr + a_places, mask=rows[:, None] < M, other=0.0)
                b = tl.load(b_ptr + b_places, mask=columns[None, :] < N, other=0.0)
            else:
                a_inside = (rows[:, None] < M) & (at + k[None, :] < K)
                b_inside = (at + k[:, None] < K) & (columns[None, :] < N)
                a = tl.load(a_ptr + a_places, mask=a_inside, other=0.0)
                b = tl.load(b_ptr + b_places, mask=b_inside, other=0.0)
            accumulator = multiply_block(
                a, b, accumulator, a_scale_ptr, b_scale_ptr, rows, columns, at, M, N,
                stride_asm, stride_ask, stride_bsk, stride_bsn, A_SCALES, B_SCALES, SUM,
                BLOCK_N <= SCALED and BLOCK_M >= 64,
            )  # fmt: skip
    result = scaled_result(
        accumulator, a_scale_ptr, b_scale_ptr, bias_ptr, rows, columns, M, N,
        stride_asm, stride_bsn, A_SCALES, B_SCALES,
    )  # fmt: skip
    tl.store(
        c_ptr + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :] * stride_cn,
        result.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@tw.jit
def persistent_scaled_kernel(
    a_ptr, b_ptr, c_ptr, a_scale_ptr, b_scale_ptr, bias_ptr, M, N, K,
    stride_a, stride_b, stride_c, stride_asm, stride_ask, stride_bsk, stride_bsn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr, A_SCALES: tl.constexpr, B_SCALES: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Compute blocks of a result with ``PROGRAMS`` programs, of A [M, K] and B [N, K] in memory."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [stride_a, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [stride_b, 1], [BLOCK_N, BLOCK_K])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_c, 1], [BLOCK_M, BLOCK_N])
    has_blocks: tl.constexpr = A_SCALES == "block" or B_SCALES == "block"
    for block in tl.range(
        tl.program_id(0),
        tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N),
        PROGRAMS,
        flatten=True,
        warp_specialize=True,
    ):
        block_m, block_n = block_of(block, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, column = block_m * BLOCK_M, block_n * BLOCK_N
        rows, columns = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32 if has_blocks else SUM)
        for first in range(0, K, BLOCK_K):
            accumulator = multiply_block(
                a.load([row, first]), b.load([column, first]).T, accumulator,
                a_scale_ptr, b_scale_ptr, rows, columns, first, M, N,
                stride_asm, stride_ask, stride_bsk, stride_bsn, A_SCALES, B_SCALES, SUM,
                BLOCK_N <= SCALED,
            )  # fmt: skip
        result = scaled_result(
            accumulator, a_scale_ptr, b_scale_ptr, bias_ptr, rows, columns, M, N,
            stride_asm, stride_bsn, A_SCALES, B_SCALES,
        )  # fmt: skip
        c.store([row, column], result.to(c.dtype))


@tw.jit
def scaled_vector_kernel(
    a_ptr, b_ptr, c_ptr, a_scale_ptr, b_scale_ptr, bias_ptr, N, K,
    stride_b, stride_c, stride_ask, stride_bsk, stride_bsn,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr,
    A_SCALES: tl.constexpr, B_SCALES: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Multiply one row by a matrix whose memory is [N, K]; a program reads BLOCK_N rows of it.

    The row is multiplied by the scales of blocks first; BLOCK_N divides the columns of a block.
    """
    first = tl.program_id(0) * BLOCK_N
    columns = first + tl.arange(0, BLOCK_N)
    inside = columns < N
    b_ptrs = b_ptr + columns.to(tl.int64)[:, None] * stride_b
    has_blocks: tl.constexpr = A_SCALES == "block" or B_SCALES == "block"
    TYPE: tl.constexpr = tl.float32 if has_blocks else SUM
    total = tl.zeros((BLOCK_N, BLOCK_K), TYPE)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        if EVEN_K:
            a = tl.load(a_ptr + k).to(TYPE)
            b = tl.load(b_ptrs + k[None, :], mask=inside[:, None], other=0.0)
        else:
            a = tl.load(a_ptr + k, mask=k < K, other=0.0).to(TYPE)
            b = tl.load(b_ptrs + k[None, :], mask=inside[:, None] & (k < K)[None, :], other=0.0)
        if has_blocks:
            block = start // SCALED + tl.arange(0, BLOCK_K // SCALED)
            scale = tl.full((BLOCK_K // SCALED,), 1.0, tl.float32)
            if A_SCALES == "block":
                places = a_scale_ptr + block * stride_ask
                scale *= tl.load(places, mask=block * SCALED < K, other=0.0)
            if B_SCALES == "block":
                places = b_scale_ptr + first // SCALED * stride_bsn + block * stride_bsk
                scale *= tl.load(places, mask=block * SCALED < K, other=0.0)
            a = (a.reshape(BLOCK_K // SCALED, SCALED) * scale[:, None]).reshape(BLOCK_K)
        total += b.to(TYPE) * a[None, :]
    row = tl.arange(0, 1)
    result = scaled_result(
        tl.sum(total, 1)[None, :], a_scale_ptr, b_scale_ptr, bias_ptr, row, columns, 1, N,
        0, stride_bsn, A_SCALES, B_SCALES,
    )  # fmt: skip
    places = c_ptr + row[:, None] + columns.to(tl.int64)[None, :] * stride_c
    tl.store(places, result.to(c_ptr.dtype.element_ty), mask=inside[None, :])


@tw.jit
def quantize_kernel(
    x_ptr, q_ptr, scale_ptr, M, N, stride_m, stride_n, stride_qm, stride_qn, stride_sm, stride_sn,
    maximum, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUPS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, IS_INTEGER: tl.constexpr,
):  # fmt: skip
    """Divide each block by its scale, so that its largest magnitude becomes ``maximum``.

    A program has GROUPS blocks of ROWS x COLUMNS elements, one below the other.
    """
    groups = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    row, column = tl.arange(0, GROUPS * BLOCK_M), tl.arange(0, BLOCK_N)
    if ROWS == BLOCK_M:
        rows = tl.program_id(0).to(tl.int64) * (GROUPS * ROWS) + row
        inside = (rows < M)[:, None]
    else:
        group = tl.program_id(0).to(tl.int64) * GROUPS + row // BLOCK_M
        rows = group * ROWS + row % BLOCK_M
        inside = ((row % BLOCK_M < ROWS) & (rows < M))[:, None]
    columns = tl.program_id(1).to(tl.int64) * COLUMNS + column
    inside = inside & ((column < COLUMNS) & (columns < N))[None, :]
    places = rows[:, None] * stride_m + columns[None, :] * stride_n
    x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
    x = tl.reshape(x, (GROUPS, BLOCK_M * BLOCK_N))
    largest = tl.max(tl.abs(x), 1)
    scale = tl.where(largest > 0.0, largest / maximum, 1.0)
    q = tl.clamp(x / scale[:, None], -maximum, maximum)
    if IS_INTEGER:
        q = tl.where(q < 0.0, tl.ceil(q - 0.5), tl.floor(q + 0.5))
    tl.store(
        q_ptr + rows[:, None] * stride_qm + columns[None, :] * stride_qn,
        tl.reshape(q, (GROUPS * BLOCK_M, BLOCK_N)).to(q_ptr.dtype.element_ty),
        mask=inside,
    )
    tl.store(
        scale_ptr + groups * stride_sm + tl.program_id(1) * stride_sn,
        scale,
        mask=groups < tl.cdiv(M, ROWS),
    )
