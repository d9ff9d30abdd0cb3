"""Kernels whose layouts are drawn."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def scale(x, out, N: tl.constexpr, ROWS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.load(x + at) * 2.0)


@tw.jit
def transpose(x, out, N: tl.constexpr):
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(out + columns * N + rows, tl.load(x + rows * N + columns))


@tw.jit
def matmul(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    k = tl.arange(0, K)
    x = tl.load(a + rows * K + k[None, :])
    y = tl.load(b + k[:, None] * N + columns)
    tl.store(c + rows * N + columns, tl.dot(x, y))
