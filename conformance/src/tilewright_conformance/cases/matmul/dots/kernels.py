"""Kernels around one matmul: the plain one, the loop over K, and other operations around it.

Operands come from other operations, and results go to them.
"""
# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.constexpr_function
def count(batches: Any, rows: Any, columns: Any) -> Any:
    return int(np.prod(batches, initial=1)) * rows * columns


@tw.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    out,
    BATCHES: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    OUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """``a @ b + c``, and the same without ``c`` behind it; BATCHES is a list of leading extents."""
    a_at = tl.arange(0, count(BATCHES, M, K)).reshape(BATCHES + [M, K])  # noqa: RUF005
    b_at = tl.arange(0, count(BATCHES, K, N)).reshape(BATCHES + [K, N])  # noqa: RUF005
    a, b = tl.load(a_ptr + a_at), tl.load(b_ptr + b_at)
    size: tl.constexpr = count(BATCHES, M, N)
    at = tl.arange(0, size)
    plain = tl.dot(a, b, input_precision=PRECISION, out_dtype=OUT)
    c = tl.load(c_ptr + at.reshape(plain.shape)).to(plain.dtype)
    tl.store(out + at, tl.ravel(tl.dot(a, b, c, input_precision=PRECISION, out_dtype=OUT)))
    tl.store(out + size + at, tl.ravel(plain))


@tw.jit
def allowing(
    a_ptr,
    b_ptr,
    out,
    TF32: tl.constexpr,
    IMPRECISE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """``a @ b`` by the older spelling of precision."""
    a = load_tile(a_ptr, M, K)
    b = load_tile(b_ptr, K, N)
    store_tile(out, tl.dot(a, b, allow_tf32=TF32, max_num_imprecise_acc=IMPRECISE))


@tw.jit
def load_tile(ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    return tl.load(ptr + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])


@tw.jit
def store_tile(ptr, values):
    rows: tl.constexpr = values.shape[0]
    columns: tl.constexpr = values.shape[1]
    tl.store(
        ptr + tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :],
        values.to(ptr.dtype.element_ty),
    )


# ---- the loop over K


@tw.jit
def looped(
    a_ptr, b_ptr, c_ptr, M, N, K, a_row, a_column, b_row, b_column, c_row,
    FORM: tl.constexpr, OUT: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """``c += a @ b`` for matrices of any size, in blocks.

    FORM: ``acc`` and ``add`` spell the accumulation, ``two`` keeps two accumulators, ``while``
    counts by hand.
    """
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * a_row + inner[None, :] * a_column
    b_ptrs = b_ptr + inner[:, None] * b_row + columns[None, :] * b_column
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    c_ptrs = c_ptr + rows[:, None] * c_row + columns[None, :]
    acc = tl.load(c_ptrs, mask=inside, other=0).to(OUT)
    if FORM == "two":
        other = tl.zeros((BM, BN), OUT)
        for start in range(0, K, 2 * BK):
            a, b = blocks(a_ptrs, b_ptrs, rows, columns, inner, M, N, K - start)
            acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=OUT)
            a, b = blocks(
                a_ptrs + BK * a_column,
                b_ptrs + BK * b_row,
                rows,
                columns,
                inner,
                M,
                N,
                K - start - BK,
            )
            other = tl.dot(a, b, other, input_precision=PRECISION, out_dtype=OUT)
            a_ptrs += 2 * BK * a_column
            b_ptrs += 2 * BK * b_row
        acc += other
    elif FORM == "while":
        left = K
        while left > 0:
            a, b = blocks(a_ptrs, b_ptrs, rows, columns, inner, M, N, left)
            acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=OUT)
            a_ptrs += BK * a_column
            b_ptrs += BK * b_row
            left -= BK
    else:
        for start in tl.range(0, K, BK, num_stages=3):
            a, b = blocks(a_ptrs, b_ptrs, rows, columns, inner, M, N, K - start)
            if FORM == "acc":
                acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=OUT)
            else:
                acc += tl.dot(a, b, input_precision=PRECISION, out_dtype=OUT)
            a_ptrs += BK * a_column
            b_ptrs += BK * b_row
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


@tw.jit
def blocks(a_ptrs, b_ptrs, rows, columns, inner, M, N, left):
    a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (inner[None, :] < left), other=0)
    b = tl.load(b_ptrs, mask=(inner[:, None] < left) & (columns[None, :] < N), other=0)
    return a, b


# ---- where operands come from, and where results go; all of square matrices x, y, z


@tw.jit
def left_transposed(x, y, z):
    return tl.dot(tl.trans(x), y)


@tw.jit
def right_transposed(x, y, z):
    return tl.dot(x, y.T)


@tw.jit
def both_transposed(x, y, z):
    return tl.trans(tl.dot(tl.trans(x), tl.trans(y)))


@tw.jit
def with_itself(x, y, z):
    return tl.dot(x, x.T)


@tw.jit
def chained(x, y, z):
    return tl.dot(tl.dot(x, y).to(z.dtype), z)


@tw.jit
def chained_on_the_right(x, y, z):
    return tl.dot(x, tl.dot(y, z).to(x.dtype))


@tw.jit
def summed(x, y, z):
    return tl.dot(y, z, tl.dot(x, y, tl.dot(x, z)))


@tw.jit
def computed(x, y, z):
    return tl.dot(tl.where(x > 0, y, -x), (z + z * 0.5).to(y.dtype))


@tw.jit
def masked(x, y, z):
    size: tl.constexpr = x.shape[0]
    lower = tl.arange(0, size)[:, None] >= tl.arange(0, size)[None, :]
    return tl.dot(tl.where(lower, x, 0.0), y)


@tw.jit
def by_a_unit(x, y, z):
    size: tl.constexpr = x.shape[0]
    place = tl.arange(0, size)
    return tl.dot(x, (place[:, None] == (place[None, :] + 3) % size).to(x.dtype))


@tw.jit
def repeated_row(x, y, z):
    return tl.dot(tl.broadcast_to(tl.max(x, axis=0)[None, :], x.shape).to(x.dtype), y)


@tw.jit
def woven(x, y, z):
    """An operand whose halves are put together in registers."""
    size: tl.constexpr = x.shape[0]
    both = tl.permute(tl.join(x, y), 0, 2, 1).reshape(2 * size, size)
    return tl.sum(tl.dot(both, z).reshape(size, 2, size), axis=1)


@tw.jit
def added_up(x, y, z):
    return (
        tl.dot(x, y) + tl.sum(tl.dot(y, z), axis=1)[:, None] - tl.max(tl.dot(x, z), axis=0)[None, :]
    )


@tw.jit
def chosen(x, y, z):
    """The matmul of a branch that is known when the kernel runs."""
    total = tl.zeros(x.shape, tl.float32)
    if tl.program_id(0) == 0:
        total = tl.dot(x, y, total)
    else:
        total = tl.dot(y, x, total)
    return total


@tw.jit
def powers(x, y, z):
    """An operand that is the result of the last turn."""
    state = z
    for _ in range(2):
        state = tl.dot(x, state).to(z.dtype)
    return state


@tw.jit
def nested(x, y, z):
    total = tl.zeros(x.shape, tl.float32)
    for i in range(2):
        part = tl.zeros(x.shape, tl.float32)
        for _ in range(3):
            part = tl.dot(x, y, part)
        total += part * (i + 1)
    return total


@tw.jit
def scaled_loop(x, y, z):
    """An accumulator that is scaled between matmuls, as in online softmax."""
    total = tl.zeros(x.shape, tl.float32)
    size: tl.constexpr = x.shape[0]
    for i in range(3):
        shrink = tl.where(tl.arange(0, size) % 2 == i % 2, 1.0, 0.5)
        total = tl.dot(x, y, total * shrink[:, None])
    return total


@tw.jit
def fused(x_ptr, y_ptr, z_ptr, out_ptr, FN: tl.constexpr, SIZE: tl.constexpr):
    """One of the functions above of square matrices."""
    x, y, z = (
        load_tile(x_ptr, SIZE, SIZE),
        load_tile(y_ptr, SIZE, SIZE),
        load_tile(z_ptr, SIZE, SIZE),
    )
    store_tile(out_ptr + tl.program_id(0) * SIZE * SIZE, FN(x, y, z))


@tw.jit
def converted(
    a_ptr,
    scale_ptr,
    b_ptr,
    out_ptr,
    TYPE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """The matmul of a matrix that is widened and scaled in registers."""
    a = load_tile(a_ptr, M, K).to(TYPE) * tl.load(scale_ptr + tl.arange(0, M))[:, None].to(TYPE)
    store_tile(out_ptr, tl.dot(a, load_tile(b_ptr, K, N)))


@tw.jit
def batches_transposed(
    a_ptr, b_ptr, out_ptr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """``a`` [B, M, K] times ``b`` [B, N, K] transposed, all batches in one matmul."""
    batch = tl.arange(0, B)[:, None, None]
    a = tl.load(
        a_ptr
        + batch * (M * K)
        + tl.arange(0, M)[None, :, None] * K
        + tl.arange(0, K)[None, None, :]
    )
    b = tl.load(
        b_ptr
        + batch * (N * K)
        + tl.arange(0, N)[None, :, None] * K
        + tl.arange(0, K)[None, None, :]
    )
    at = batch * (M * N) + tl.arange(0, M)[None, :, None] * N + tl.arange(0, N)[None, None, :]
    tl.store(out_ptr + at, tl.dot(a, tl.permute(b, 0, 2, 1)))


@tw.jit
def gathered(
    q_ptr,
    rows_ptr,
    index_ptr,
    out_ptr,
    n,
    stride,
    M: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    TWICE: tl.constexpr,
):
    """``(q @ k.T) @ k`` of the rows ``k`` that an index names.

    TWICE: they are loaded once for each factor.
    """
    m, d = tl.arange(0, M), tl.arange(0, D)
    q = tl.load(q_ptr + m[:, None] * D + d[None, :])
    total = tl.zeros((M, D), tl.float32)
    for start in tl.range(0, n, N):
        at = start + tl.arange(0, N)
        row = tl.load(index_ptr + at, mask=at < n, other=0)
        k = tl.load(rows_ptr + row[None, :] * stride + d[:, None], mask=at[None, :] < n, other=0.0)
        if TWICE:
            v = tl.load(
                rows_ptr + row[:, None] * stride + d[None, :], mask=at[:, None] < n, other=0.0
            )
        else:
            v = tl.trans(k)
        total += tl.dot(tl.dot(q, k).to(k.dtype), v)
    tl.store(out_ptr + m[:, None] * D + d[None, :], total)


# ---- block-scaled matmuls


@tw.jit
def scaled_matmul(
    a_ptr,
    a_scale,
    b_ptr,
    b_scale,
    c_ptr,
    out,
    A: tl.constexpr,
    B: tl.constexpr,
    SHAPES: tl.constexpr,
    PACK: tl.constexpr,
    FAST: tl.constexpr,
):
    """``(a * a_scale) @ (b * b_scale) + c``; a scale may be None.

    SHAPES holds the size and the shape of a, b, a_scale, b_scale and c, in turn.
    """
    a = tl.load(a_ptr + tl.arange(0, SHAPES[0]).reshape(SHAPES[1]))
    b = tl.load(b_ptr + tl.arange(0, SHAPES[2]).reshape(SHAPES[3]))
    if a_scale is not None:
        a_scale = tl.load(a_scale + tl.arange(0, SHAPES[4]).reshape(SHAPES[5]))
    if b_scale is not None:
        b_scale = tl.load(b_scale + tl.arange(0, SHAPES[6]).reshape(SHAPES[7]))
    at = tl.arange(0, SHAPES[8])
    c = tl.load(c_ptr + at.reshape(SHAPES[9]))
    result = tl.dot_scaled(
        a, a_scale, A, b, b_scale, B, c, fast_math=FAST, lhs_k_pack=PACK[0], rhs_k_pack=PACK[1]
    )
    tl.store(out + at, tl.ravel(result))


@tw.jit
def scaled_range(
    a_ptr, a_scale, b_ptr, b_scale, out, trips,
    A: tl.constexpr, B: tl.constexpr, SHAPES: tl.constexpr, MAXIMUM: tl.constexpr,
):  # fmt: skip
    """Accumulate the dots of all trips, or their elementwise maximum with 0.

    SHAPES are as in ``scaled_dot``, of one trip.
    """
    at = tl.arange(0, SHAPES[8])
    result = tl.zeros(SHAPES[9], tl.float32)
    for i in range(trips):
        a = tl.load(a_ptr + i * SHAPES[0] + tl.arange(0, SHAPES[0]).reshape(SHAPES[1]))
        b = tl.load(b_ptr + i * SHAPES[2] + tl.arange(0, SHAPES[2]).reshape(SHAPES[3]))
        x, y = None, None
        if a_scale is not None:
            x = tl.load(a_scale + i * SHAPES[4] + tl.arange(0, SHAPES[4]).reshape(SHAPES[5]))
        if b_scale is not None:
            y = tl.load(b_scale + i * SHAPES[6] + tl.arange(0, SHAPES[6]).reshape(SHAPES[7]))
        if MAXIMUM:
            result = tl.maximum(result, tl.dot_scaled(a, x, A, b, y, B))
        else:
            result = tl.dot_scaled(a, x, A, b, y, B, result)
    tl.store(out + at, tl.ravel(result))
