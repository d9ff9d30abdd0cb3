"""Kernels whose speed is measured."""
# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def copy(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    """Copy element ``i * stride % n + i * stride // n`` for each i.

    A stride that divides n reaches every element once.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if stride > 1:
        far = at.to(tl.int64) * stride
        at = (far % n + far // n).to(tl.int32)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@tw.jit
def work(x_ptr, y_ptr, turns, BLOCK: tl.constexpr):
    """``turns`` dependent steps on each element, memory touched once: x -> x / 2 + 1.

    The iteration converges to 2.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    for _ in range(turns):
        x = x * 0.5 + 1.0
    tl.store(y_ptr + at, x)


@tw.jit
def worked(x_ptr, y_ptr, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    """The same with a constant number of steps, for a tuner; the result does not depend on it."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = x
    for _ in range(TURNS):
        y = y * 0.5 + 1.0
    tl.store(y_ptr + at, tl.where(y == -1.0, y, x + 1.0))


@tw.jit
def matmul(a_ptr, b_ptr, c_ptr, N, K, DOT: tl.constexpr, BLOCK: tl.constexpr):
    """A matmul in blocks, by ``dot`` or by multiplying and adding up."""
    rows, columns = (
        tl.program_id(0) * BLOCK + tl.arange(0, BLOCK),
        tl.program_id(1) * BLOCK + tl.arange(0, BLOCK),
    )
    inner = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * K + (start + inner)[None, :])
        b = tl.load(b_ptr + (start + inner)[:, None] * N + columns[None, :])
        if DOT:
            acc = tl.dot(a, b, acc)
        else:
            acc += tl.sum(a[:, :, None] * b[None, :, :], axis=1)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


@tw.jit
def nothing():
    pass


@tw.jit
def ten(a, b, c, d, e, i, j, k, p, q):
    tl.store(a, i + j + k + p + q)


@tw.jit
def many(
    a, b, c, d, e, f, g, h, i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, j0, j1, j2, j3, j4, j5, j6, j7,
    x0, x1, x2, x3, x4, x5,
):  # fmt: skip
    tl.store(h, i0 + i9 + j0 + j7 + (x0 + x5).to(tl.int32))


@tw.jit
def long_to_compile(x_ptr, y_ptr, n, MARK: tl.constexpr, BLOCK: tl.constexpr):
    """Much code, of which nothing runs where n is zero. MARK tells one compilation from another."""
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    if n > 0:
        for i in tl.static_range(12):
            x = tl.where(x > i, tl.exp(x - i) * MARK, x / (i + 1.5)) + tl.sum(x * x, axis=0) / n
    tl.store(y_ptr + at, x)
