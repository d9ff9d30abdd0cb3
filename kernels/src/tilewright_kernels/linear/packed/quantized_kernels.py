"""Kernels of matmuls by packed weights."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.matmul_kernels import block_of


@tw.jit
def load_words(
    words_ptr, rows, first, N, K, BITS: tl.constexpr, RUN: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Load the words [rows, BLOCK_K * BITS / 32] from element ``first``, a multiple of BLOCK_K.

    In memory they are [K / RUN, N, RUN * BITS / 32], so that the words of a block are next to each
    other. They are zeros beyond N and K.
    """
    per_run: tl.constexpr = RUN * BITS // 32
    words = tl.arange(0, BLOCK_K * BITS // 32)
    if BLOCK_K <= RUN:
        run = (first // RUN).to(tl.int64) * N * per_run + first % RUN * BITS // 32
        places = run + rows[:, None] * per_run + words[None, :]
        packed = tl.load(words_ptr + places, mask=(rows < N)[:, None], other=0)
    else:
        runs = first // RUN + words // per_run
        places = (runs.to(tl.int64)[None, :] * N + rows[:, None]) * per_run
        inside = (rows < N)[:, None] & (runs * RUN < K)[None, :]
        packed = tl.load(words_ptr + places + (words % per_run)[None, :], mask=inside, other=0)
    return packed


@tw.jit
def unpack_words(packed, zero, BITS: tl.constexpr, GRANULE: tl.constexpr, TYPE: tl.constexpr):
    """Return the elements [rows, granules, GRANULE] of words less their zeros, in ``TYPE``.

    ``zero`` is [rows, granules], or None for ``2 ** (BITS - 1)``. Neighbours in K are 16 bits apart
    in a word, so that one instruction masks both.
    """
    per_word: tl.constexpr = 32 // BITS
    granules: tl.constexpr = packed.shape[1] * per_word // GRANULE
    element = tl.arange(0, per_word)
    shifts = BITS * (element // 2) + 16 * (element % 2)
    q = (packed[:, :, None] >> shifts[None, None, :]) & ((1 << BITS) - 1)
    if zero is None:
        return (q - (1 << (BITS - 1))).to(TYPE).reshape(packed.shape[0], granules, GRANULE)
    w = q.to(TYPE).reshape(packed.shape[0], granules, GRANULE)
    return w - zero.to(TYPE)[:, :, None]


@tw.jit
def load_granules(ptr, rows, k, N, K, stride_n, stride_g, GROUP: tl.constexpr):
    """Load the scales or zeros [rows, k] of the groups at k; zeros beyond N and K, or None.

    The first k is less than K.
    """
    if ptr is None:
        return None
    places = rows.to(tl.int64)[:, None] * stride_n + (k // GROUP)[None, :] * stride_g
    inside = (rows < N)[:, None]
    if k.shape[0] > 1:
        inside = inside & (k < K)[None, :]
    return tl.load(ptr + places, mask=inside, other=0.0)


@tw.jit
def unpack_block(
    words_ptr, scale_ptr, zero_ptr, rows, first, N, K, stride_sn, stride_sg, stride_zn, stride_zg,
    GROUP: tl.constexpr, BITS: tl.constexpr, RUN: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TYPE: tl.constexpr,
):  # fmt: skip
    """Return weights [rows, BLOCK_K] from element ``first`` along K, in ``TYPE``."""
    k = first + GRANULE * tl.arange(0, BLOCK_K // GRANULE)
    packed = load_words(words_ptr, rows, first, N, K, BITS, RUN, BLOCK_K)
    scale = load_granules(scale_ptr, rows, k, N, K, stride_sn, stride_sg, GROUP)
    zero = load_granules(zero_ptr, rows, k, N, K, stride_zn, stride_zg, GROUP)
    arithmetic: tl.constexpr = TYPE if scale.dtype == TYPE else tl.float32
    w = unpack_words(packed, zero, BITS, GRANULE, arithmetic) * scale.to(arithmetic)[:, :, None]
    return w.to(TYPE).reshape(rows.shape[0], BLOCK_K)


@tw.jit
def in_lane_order(tile, BITS: tl.constexpr):
    """Permute K of a tile [rows, K] so that a lane of ``mma.sync`` has all elements of a word.

    Of 16 elements along K a lane has two neighbours, and the two 8 elements behind them.
    """
    runs: tl.constexpr = tile.shape[1] * BITS // 128
    parts = tile.reshape(tile.shape[0], runs, 4, 16 // BITS, 2)
    return parts.permute(0, 1, 3, 2, 4).reshape(tile.shape[0], tile.shape[1])


@tw.jit
def quantized_matmul_kernel(
    a_ptr, words_ptr, scale_ptr, zero_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_cm, stride_cn, stride_sn, stride_sg, stride_zn, stride_zg,
    GROUP: tl.constexpr, BITS: tl.constexpr, RUN: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT: tl.constexpr,
    OPERAND: tl.constexpr,
):  # fmt: skip
    """Compute a block of ``a @ w.T``; of parts along K, the sums of one to ``c`` [SPLIT, M, N]."""
    block_m, block_n = block_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    start, end = 0, K
    if SPLIT > 1:
        part = tl.program_id(1)
        each = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K
        start, end = part * each, min(K, (part + 1) * each)
        c_ptr += part.to(tl.int64) * M * N
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(start, end, BLOCK_K):
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + (first + k[None, :]) * stride_ak,
            mask=(rows < M)[:, None] & (first + k < K)[None, :],
            other=0.0,
        )
        w = unpack_block(
            words_ptr, scale_ptr, zero_ptr, columns, first, N, K, stride_sn, stride_sg, stride_zn,
            stride_zg, GROUP, BITS, RUN, GRANULE, BLOCK_K, OPERAND,
        )  # fmt: skip
        accumulator = tl.dot(a, w.T, accumulator)
    tl.store(
        c_ptr + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :] * stride_cn,
        accumulator.to(c_ptr.dtype.element_ty),
        mask=(rows < M)[:, None] & (columns < N)[None, :],
    )


@tw.jit
def persistent_quantized_kernel(
    a_ptr, words_ptr, scale_ptr, zero_ptr, c_ptr, M, N, K,
    stride_am, stride_cm, stride_sn, stride_sg, stride_zn, stride_zg,
    GROUP: tl.constexpr, BITS: tl.constexpr, RUN: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr, OPERAND: tl.constexpr, DIVISOR_N: tl.constexpr,
):  # fmt: skip
    """Compute blocks of ``a @ w.T`` as the transpose of ``w @ a.T`` with ``PROGRAMS`` programs.

    Weights are the left operand, of which a warp group unpacks its own rows alone. A block along K
    is within a run of words, and within a group; ``DIVISOR_N`` divides N.
    """
    N = tl.multiple_of(N, DIVISOR_N)
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [stride_am, 1], [BLOCK_M, BLOCK_K])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_cm, 1], [BLOCK_M, BLOCK_N])
    for block in tl.range(
        tl.program_id(0),
        tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N),
        PROGRAMS,
        flatten=True,
        warp_specialize=True,
    ):
        block_m, block_n = block_of(block, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, column = block_m * BLOCK_M, block_n * BLOCK_N
        columns = column + tl.arange(0, BLOCK_N)
        accumulator = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
        for first in range(0, K, BLOCK_K):
            x = a.load([row, first])
            w = unpack_block(
                words_ptr, scale_ptr, zero_ptr, columns, first, N, K, stride_sn, stride_sg,
                stride_zn, stride_zg, GROUP, BITS, RUN, GRANULE, BLOCK_K, OPERAND,
            )  # fmt: skip
            accumulator = tl.dot(w, x.T, accumulator)
        c.store([row, column], accumulator.T.to(c.dtype))


@tw.jit
def quantized_few_rows_kernel(
    a_ptr, words_ptr, scale_ptr, zero_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_cm, stride_cn, stride_sn, stride_sg, stride_zn, stride_zg,
    GROUP: tl.constexpr, BITS: tl.constexpr, RUN: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """Compute ``a @ w.T`` of at most BLOCK_M rows as the transpose of ``w @ a.T``.

    K of both is permuted so that the words' elements are operands of ``mma.sync`` where they are
    unpacked. Where a block of K is within a group, its sums are scaled, and not the weights.
    """
    rows, columns = tl.arange(0, BLOCK_M), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    part = tl.program_id(1)
    each = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K
    accumulator = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for first in range(part * each, min(K, (part + 1) * each), BLOCK_K):
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + (first + k[None, :]) * stride_ak,
            mask=(rows < M)[:, None] & (first + k < K)[None, :],
            other=0.0,
        )
        a = in_lane_order(a, BITS).T
        if GRANULE == BLOCK_K:
            one = first + tl.arange(0, 1)
            packed = load_words(words_ptr, columns, first, N, K, BITS, RUN, BLOCK_K)
            scale = load_granules(scale_ptr, columns, one, N, K, stride_sn, stride_sg, GROUP)
            zero = load_granules(zero_ptr, columns, one, N, K, stride_zn, stride_zg, GROUP)
            w = unpack_words(packed, zero, BITS, GRANULE, OPERAND)
            w = in_lane_order(w.reshape(BLOCK_N, BLOCK_K), BITS)
            accumulator += tl.dot(w, a) * scale.to(tl.float32)
        else:
            w = unpack_block(
                words_ptr, scale_ptr, zero_ptr, columns, first, N, K, stride_sn, stride_sg,
                stride_zn, stride_zg, GROUP, BITS, RUN, GRANULE, BLOCK_K, OPERAND,
            )  # fmt: skip
            accumulator = tl.dot(in_lane_order(w, BITS), a, accumulator)
    places = part.to(tl.int64) * M * N + rows[None, :] * stride_cm + columns[:, None] * stride_cn
    tl.store(
        c_ptr + places,
        accumulator.to(c_ptr.dtype.element_ty),
        mask=(rows < M)[None, :] & (columns < N)[:, None],
    )


@tw.jit
def quantized_vector_kernel(
    a_ptr, words_ptr, scale_ptr, zero_ptr, c_ptr, N, K, stride_ak, stride_cn,
    stride_sn, stride_sg, stride_zn, stride_zg,
    GROUP: tl.constexpr, BITS: tl.constexpr, RUN: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute ``c[n] = sum(a[k] * w[n, k])``; each program reads BLOCK_N rows of the weights."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    granules: tl.constexpr = BLOCK_K // GRANULE
    total = tl.zeros((BLOCK_N, granules), tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + k * stride_ak, mask=k < K, other=0.0).to(tl.float32)
        one = first + GRANULE * tl.arange(0, granules)
        packed = load_words(words_ptr, columns, first, N, K, BITS, RUN, BLOCK_K)
        scale = load_granules(scale_ptr, columns, one, N, K, stride_sn, stride_sg, GROUP)
        zero = load_granules(zero_ptr, columns, one, N, K, stride_zn, stride_zg, GROUP)
        w = unpack_words(packed, zero, BITS, GRANULE, tl.float32)
        partial = tl.sum(w * a.reshape(granules, GRANULE)[None, :, :], 2)
        total += partial * scale.to(tl.float32)
    result = tl.sum(total, 1).to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + columns * stride_cn, result, mask=columns < N)


@tw.jit
def quantized_words_kernel(
    a_ptr, words_ptr, scale_ptr, zero_ptr, c_ptr, N, K, stride_ak, stride_cn,
    stride_sn, stride_sg, stride_zn, stride_zg,
    GROUP: tl.constexpr, BITS: tl.constexpr, RUN: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute ``c[n] = sum(a[k] * w[n, k])`` by vectors of words, one element of each at a time.

    So no element changes its place in a vector, which costs a CPU more than to multiply it.
    """
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    per_word: tl.constexpr = 32 // BITS
    total = tl.zeros((BLOCK_N, BLOCK_K // per_word), tl.float32)
    for first in range(0, K, BLOCK_K):
        packed = load_words(words_ptr, columns, first, N, K, BITS, RUN, BLOCK_K)
        k = first + per_word * tl.arange(0, BLOCK_K // per_word)
        granules = k if GRANULE < BLOCK_K else first + tl.arange(0, 1)
        scale = load_granules(scale_ptr, columns, granules, N, K, stride_sn, stride_sg, GROUP)
        zero = load_granules(zero_ptr, columns, granules, N, K, stride_zn, stride_zg, GROUP)
        a_total = tl.zeros((BLOCK_K // per_word,), tl.float32)
        partial = tl.zeros((BLOCK_N, BLOCK_K // per_word), tl.float32)
        for element in tl.static_range(per_word):
            a = tl.load(a_ptr + (k + element) * stride_ak, mask=k < K, other=0.0).to(tl.float32)
            shift: tl.constexpr = BITS * (element // 2) + 16 * (element % 2)
            q = (packed >> shift) & ((1 << BITS) - 1)
            partial += q.to(tl.float32) * a[None, :]
            a_total += a
        if zero is None:
            partial -= (1 << (BITS - 1)) * a_total[None, :]
        else:
            partial -= zero.to(tl.float32) * a_total[None, :]
        total += partial * scale.to(tl.float32)
    result = tl.sum(total, 1).to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + columns * stride_cn, result, mask=columns < N)


@tw.jit
def unpack_weights_kernel(
    words_ptr, scale_ptr, zero_ptr, w_ptr, N, K, stride_wn, stride_wk,
    stride_sn, stride_sg, stride_zn, stride_zg,
    GROUP: tl.constexpr, BITS: tl.constexpr, RUN: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Store the weights ``w`` [N, K] in their type."""
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = tl.program_id(0) * BLOCK_K
    k = first + tl.arange(0, BLOCK_K)
    w = unpack_block(
        words_ptr, scale_ptr, zero_ptr, rows, first, N, K, stride_sn, stride_sg, stride_zn,
        stride_zg, GROUP, BITS, RUN, GRANULE, BLOCK_K, w_ptr.dtype.element_ty,
    )  # fmt: skip
    places = rows.to(tl.int64)[:, None] * stride_wn + k.to(tl.int64)[None, :] * stride_wk
    tl.store(w_ptr + places, w, mask=(rows < N)[:, None] & (k < K)[None, :])


@tw.jit
def quantized_transpose_kernel(
    a_ptr, words_ptr, scale_ptr, zero_ptr, c_ptr, M, N, K,
    stride_am, stride_an, stride_cm, stride_ck, stride_sn, stride_sg, stride_zn, stride_zg,
    GROUP: tl.constexpr, BITS: tl.constexpr, RUN: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """Compute a block [BLOCK_M, BLOCK_K] of ``a @ w``, the gradient of the rows."""
    block_m, block_k = block_of(tl.program_id(0), M, K, BLOCK_M, BLOCK_K, GROUP_M)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    k = block_k * BLOCK_K + tl.arange(0, BLOCK_K)
    accumulator = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)
    for first in range(0, N, BLOCK_N):
        columns = first + tl.arange(0, BLOCK_N)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + columns[None, :] * stride_an,
            mask=(rows < M)[:, None] & (columns < N)[None, :],
            other=0.0,
        )
        w = unpack_block(
            words_ptr, scale_ptr, zero_ptr, columns, block_k * BLOCK_K, N, K, stride_sn, stride_sg,
            stride_zn, stride_zg, GROUP, BITS, RUN, GRANULE, BLOCK_K, OPERAND,
        )  # fmt: skip
        accumulator = tl.dot(a.to(OPERAND), w, accumulator)
    tl.store(
        c_ptr + rows.to(tl.int64)[:, None] * stride_cm + k[None, :] * stride_ck,
        accumulator.to(c_ptr.dtype.element_ty),
        mask=(rows < M)[:, None] & (k < K)[None, :],
    )
