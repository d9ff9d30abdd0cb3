"""Moving and repeating elements."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import probe


@tw.jit
def read(x, M: tl.constexpr, N: tl.constexpr):
    return tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])


@tw.jit
def write(out, value):
    flat = tl.ravel(value)
    tl.store(out + tl.arange(0, flat.numel), flat)


@tw.jit
def outer_sum(x, y, out, M: tl.constexpr, N: tl.constexpr):
    a, b = tl.broadcast(
        tl.load(x + tl.arange(0, M))[:, None], tl.load(y + tl.arange(0, N))[None, :]
    )
    tl.static_assert(a.shape[1] == N)
    write(out, a + 2 * b)


@probe("tl.broadcast")
def broadcast(on: Machine, rng: Any) -> None:
    x, y, out = rng.integers(0, 99, 8), rng.integers(0, 99, 16), np.zeros((8, 16), np.int64)
    on(outer_sum)[(1,)](x, y, out, M=8, N=16)
    np.testing.assert_array_equal(out, x[:, None] + 2 * y[None, :])


@tw.jit
def repeated(x, out, M: tl.constexpr, N: tl.constexpr):
    row = tl.load(x + tl.arange(0, N))
    write(out, tl.broadcast_to(row, [M, N]))
    write(out + M * N, row[None, :].broadcast_to(M, N))


@probe("tl.broadcast_to", "tensor.broadcast_to")
def broadcast_to(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 16), np.zeros((2, 8, 16), np.int64)
    on(repeated)[(1,)](x, out, M=8, N=16)
    np.testing.assert_array_equal(out, np.broadcast_to(x, (2, 8, 16)))


@tw.jit
def more_axes(x, out, N: tl.constexpr):
    row = tl.load(x + tl.arange(0, N))
    wide = tl.expand_dims(row, (0, 2))
    tl.static_assert(wide.shape[0] == 1 and wide.shape[1] == N and wide.shape[2] == 1)
    write(out, wide + tl.arange(0, 4)[None, None, :] * row.expand_dims(0).expand_dims(-1))


@probe("tl.expand_dims", "tensor.expand_dims")
def expand_dims(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 16), np.zeros((16, 4), np.int64)
    on(more_axes)[(1,)](x, out, N=16)
    np.testing.assert_array_equal(out, x[:, None] * (1 + np.arange(4)))


@tw.jit
def reshaped(x, out, M: tl.constexpr, N: tl.constexpr):
    value = tl.trans(tl.reshape(tl.load(x + tl.arange(0, M * N)), (M, N)))
    tl.store(out + tl.arange(0, N * M), value.reshape(N * M))


@probe("tl.reshape", "tensor.reshape")
def reshape(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 8 * 4), np.zeros(8 * 4, np.int64)
    on(reshaped)[(1,)](x, out, M=8, N=4)
    np.testing.assert_array_equal(out, x.reshape(8, 4).T.ravel())


@tw.jit
def viewed(x, out, M: tl.constexpr, N: tl.constexpr):
    flat = tl.load(x + tl.arange(0, M * N))
    write(
        out,
        tl.sum(tl.view(flat, (M, N)), axis=None)
        + tl.sum(flat.view(N, M), axis=None)
        + tl.zeros((2,), tl.int64),
    )


@probe("tl.view", "tensor.view")
def view(on: Machine, rng: Any) -> None:
    import warnings

    # A view may reorder the elements, so the oracle is what no order changes.
    x, out = rng.integers(0, 99, 8 * 4), np.zeros(2, np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        on(viewed)[(1,)](x, out, M=8, N=4)
    assert (out == 2 * x.sum()).all()


@tw.jit
def raveled(x, out, M: tl.constexpr, N: tl.constexpr):
    block = read(x, M, N)
    tl.store(out + tl.arange(0, M * N), tl.ravel(block))
    tl.store(out + M * N + tl.arange(0, M * N), block.T.ravel())


@probe("tl.ravel", "tensor.ravel", "tensor.T")
def ravel(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, (8, 4)), np.zeros((2, 32), np.int64)
    on(raveled)[(1,)](x, out, M=8, N=4)
    np.testing.assert_array_equal(out, [x.ravel(), x.T.ravel()])


@tw.jit
def transposed(x, out, M: tl.constexpr, N: tl.constexpr):
    write(out, tl.trans(read(x, M, N)))
    write(out + M * N, read(x, M, N).trans(1, 0))


@probe("tl.trans", "tensor.trans")
def trans(on: Machine, rng: Any) -> None:
    x, out = rng.standard_normal((8, 16), dtype=np.float32), np.zeros((2, 16, 8), np.float32)
    on(transposed)[(1,)](x, out, M=8, N=16)
    np.testing.assert_array_equal(out, [x.T, x.T])


@tw.jit
def permuted(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    block = tl.reshape(tl.load(x + tl.arange(0, A * B * C)), (A, B, C))
    write(out, tl.permute(block, (2, 0, 1)))
    write(out + A * B * C, block.permute(1, 2, 0))


@probe("tl.permute", "tensor.permute")
def permute(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, (2, 4, 8)), np.zeros((2, 64), np.int64)
    on(permuted)[(1,)](x, out, A=2, B=4, C=8)
    np.testing.assert_array_equal(out[0], x.transpose(2, 0, 1).ravel())
    np.testing.assert_array_equal(out[1], x.transpose(1, 2, 0).ravel())


@tw.jit
def joined_ends(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    write(out, tl.cat(tl.load(x + at), tl.load(y + at)))


@probe("tl.cat")
def cat(on: Machine, rng: Any) -> None:
    x, y, out = rng.integers(0, 99, 16), rng.integers(0, 99, 16), np.zeros(32, np.int64)
    on(joined_ends)[(1,)](x, y, out, N=16)
    np.testing.assert_array_equal(out, np.concatenate([x, y]))


@tw.jit
def pairs(x, y, out, totals, N: tl.constexpr):
    at = tl.arange(0, N)
    both = tl.join(tl.load(x + at), tl.load(y + at))
    write(out, both)
    left, right = tl.split(both)
    also_left, also_right = both.split()
    tl.store(totals + at, left - right + 10 * (also_left - also_right))


@probe("tl.join", "tl.split", "tensor.split")
def join_and_split(on: Machine, rng: Any) -> None:
    x, y, out, totals = (
        rng.integers(0, 99, 16),
        rng.integers(0, 99, 16),
        np.zeros((16, 2), np.int64),
        np.zeros(16, np.int64),
    )
    on(pairs)[(1,)](x, y, out, totals, N=16)
    np.testing.assert_array_equal(out, np.stack([x, y], axis=-1))
    np.testing.assert_array_equal(totals, 11 * (x - y))


@tw.jit
def in_turn(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    write(out, tl.interleave(tl.load(x + at), tl.load(y + at)))


@probe("tl.interleave")
def interleave(on: Machine, rng: Any) -> None:
    x, y, out = rng.integers(0, 99, 16), rng.integers(0, 99, 16), np.zeros(32, np.int64)
    on(in_turn)[(1,)](x, y, out, N=16)
    np.testing.assert_array_equal(out, np.stack([x, y], axis=-1).ravel())


@tw.jit
def reversed_axes(x, out, M: tl.constexpr, N: tl.constexpr):
    write(out, tl.flip(read(x, M, N), 0))
    write(out + M * N, read(x, M, N).flip())


@probe("tl.flip", "tensor.flip")
def flip(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, (8, 16)), np.zeros((2, 8, 16), np.int64)
    on(reversed_axes)[(1,)](x, out, M=8, N=16)
    np.testing.assert_array_equal(out, [x[::-1], x[:, ::-1]])


@tw.jit
def only_element(x, out, N: tl.constexpr):
    total = tl.sum(tl.load(x + tl.arange(0, N)), axis=0, keep_dims=True)
    tl.store(out, total.item())


@probe("tensor.item", "tl.core.item")
def item(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 16), np.zeros(1, np.int64)
    on(only_element)[(1,)](x, out, N=16)
    assert out[0] == x.sum()


@tw.jit
def axes_of_one(x, out, N: tl.constexpr):
    row = tl.unsqueeze(tl.load(x + tl.arange(0, N)), 0)
    tl.static_assert(len(row.shape) == 2 and row.shape[0] == 1)
    tl.store(out + tl.arange(0, N), tl.squeeze(row, 0))


@probe("tl.squeeze", "tl.unsqueeze")
def squeeze(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 16), np.zeros(16, np.int64)
    on(axes_of_one)[(1,)](x, out, N=16)
    np.testing.assert_array_equal(out, x)


@tw.jit
def swizzled(out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr):
    row, column = tl.swizzle2d(tl.program_id(0), tl.program_id(1), ROWS, COLUMNS, GROUP)
    tl.store(out + row * COLUMNS + column, tl.program_id(0) * COLUMNS + tl.program_id(1))


@probe("tl.swizzle2d")
def swizzle2d(on: Machine, rng: Any) -> None:
    out = np.full((5, 3), -1, np.int32)
    on(swizzled)[(5, 3)](out, ROWS=5, COLUMNS=3, GROUP=2)
    expected = [
        (row, column)
        for first in (0, 2, 4)
        for column in range(3)
        for row in range(first, min(first + 2, 5))
    ]
    np.testing.assert_array_equal([out[place] for place in expected], np.arange(15))


@tw.jit
def picked(x, order, out, M: tl.constexpr, N: tl.constexpr):
    block, index = read(x, M, N), read(order, M, N)
    write(out, tl.gather(block, index, axis=0))
    write(out + M * N, block.gather(index % M, 1))


@probe("tl.gather", "tensor.gather")
def gather(on: Machine, rng: Any) -> None:
    x, order, out = (
        rng.integers(0, 99, (8, 16)),
        rng.integers(0, 8, (8, 16)),
        np.zeros((2, 8, 16), np.int64),
    )
    on(picked)[(1,)](x, order, out, M=8, N=16)
    np.testing.assert_array_equal(
        out, [np.take_along_axis(x, order, 0), np.take_along_axis(x, order, 1)]
    )


@tw.jit
def indexed(x, out, N: tl.constexpr):
    row = tl.load(x + tl.arange(0, N))
    write(out, row[:, None] - row[None, :])


@probe("operator []")
def indexing(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 8), np.zeros((8, 8), np.int64)
    on(indexed)[(1,)](x, out, N=8)
    np.testing.assert_array_equal(out, x[:, None] - x[None, :])
