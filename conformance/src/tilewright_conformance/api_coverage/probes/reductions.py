"""Reductions, scans, maps, histograms."""

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
def later_minus(value_a, index_a, value_b, index_b):
    first = (value_a > value_b) | ((value_a == value_b) & (index_a < index_b))
    return tl.where(first, value_a, value_b), tl.where(first, index_a, index_b)


@tw.jit
def maximum_with_index(x, values, indices, M: tl.constexpr, N: tl.constexpr):
    block = read(x, M, N)
    columns = tl.broadcast_to(tl.arange(0, N)[None, :], [M, N])
    value, index = tl.reduce((block, columns), 1, later_minus)
    tl.store(values + tl.arange(0, M), value)
    tl.store(indices + tl.arange(0, M), index)


@probe("tl.reduce")
def reduce(on: Machine, rng: Any) -> None:
    x, values, indices = rng.integers(0, 9, (8, 32)), np.zeros(8, np.int64), np.zeros(8, np.int32)
    on(maximum_with_index)[(1,)](x, values, indices, M=8, N=32)
    np.testing.assert_array_equal(values, x.max(1))
    np.testing.assert_array_equal(indices, x.argmax(1))


@tw.jit
def multiply(a, b):
    return a * b


@tw.jit
def multiplied_columns(x, out, total, M: tl.constexpr, N: tl.constexpr):
    block = read(x, M, N)
    tl.store(out + tl.arange(0, N)[None, :], block.reduce(0, multiply, keep_dims=True))
    tl.store(total, tl.reduce(block, None, multiply))


@probe("tensor.reduce", "tl.reduce")
def reduce_one(on: Machine, rng: Any) -> None:
    x, out, total = (
        rng.choice([1, -1, 2], (8, 4)).astype(np.int64),
        np.zeros(4, np.int64),
        np.zeros(1, np.int64),
    )
    on(multiplied_columns)[(1,)](x, out, total, M=8, N=4)
    np.testing.assert_array_equal(out, x.prod(0))
    assert total[0] == x.prod()


@tw.jit
def linear_step(scale_a, shift_a, scale_b, shift_b):
    return scale_a * scale_b, shift_a * scale_b + shift_b


@tw.jit
def recurrence(scale, shift, out, last, N: tl.constexpr):
    at = tl.arange(0, N)
    _, state = tl.associative_scan((tl.load(scale + at), tl.load(shift + at)), 0, linear_step)
    tl.store(out + at, state)
    tl.store(last + at, tl.load(shift + at).associative_scan(0, multiply, reverse=True))


@probe("tl.associative_scan", "tensor.associative_scan")
def associative_scan(on: Machine, rng: Any) -> None:
    scale, shift = rng.integers(-1, 2, 32), rng.choice([1, -1, 2], 32)
    out, last = np.zeros(32, np.int64), np.zeros(32, np.int64)
    on(recurrence)[(1,)](scale, shift, out, last, N=32)
    state, expected = 0, []
    for factor, addend in zip(scale, shift, strict=True):
        state = state * factor + addend
        expected.append(state)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(last, np.cumprod(shift[::-1])[::-1])


@tw.jit
def totals(x, rows, total, narrow, M: tl.constexpr, N: tl.constexpr):
    block = read(x, M, N)
    tl.store(rows + tl.arange(0, M), tl.sum(block, axis=1))
    tl.store(total, block.sum())
    tl.static_assert(tl.sum(block.to(tl.int8)).dtype == tl.int32)
    tl.store(narrow, tl.sum(block.to(tl.int8), dtype=tl.int64))


@probe("tl.sum", "tensor.sum")
def sum(on: Machine, rng: Any) -> None:
    x, rows, total, narrow = (
        rng.integers(-99, 99, (8, 32)),
        np.zeros(8, np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
    )
    on(totals)[(1,)](x, rows, total, narrow, M=8, N=32)
    np.testing.assert_array_equal(rows, x.sum(1))
    assert total[0] == narrow[0] == x.sum()


@tw.jit
def extrema(x, values, indices, M: tl.constexpr, N: tl.constexpr):
    block = read(x, M, N)
    at = tl.arange(0, M)
    high, where_high = tl.max(block, axis=1, return_indices=True)
    low, where_low = tl.min(block, axis=1, return_indices=True)
    tl.store(values + at, high)
    tl.store(values + M + at, low)
    tl.store(values + 2 * M + at, block.max(1))
    tl.store(values + 3 * M + at, block.min(1))
    tl.store(indices + at, where_high)
    tl.store(indices + M + at, where_low)


@probe("tl.max", "tl.min", "tensor.max", "tensor.min")
def max_and_min(on: Machine, rng: Any) -> None:
    x, values, indices = (
        rng.standard_normal((8, 32), dtype=np.float32),
        np.zeros((4, 8), np.float32),
        np.zeros((2, 8), np.int32),
    )
    on(extrema)[(1,)](x, values, indices, M=8, N=32)
    np.testing.assert_array_equal(values, [x.max(1), x.min(1)] * 2)
    np.testing.assert_array_equal(indices, [x.argmax(1), x.argmin(1)])


@tw.jit
def places(x, out, M: tl.constexpr, N: tl.constexpr):
    block = read(x, M, N)
    at = tl.arange(0, M)
    tl.store(out + at, tl.argmax(block, axis=1))
    tl.store(out + M + at, tl.argmin(block, axis=1))
    tl.store(out + 2 * M + at, block.argmax(1))
    tl.store(out + 3 * M + at, block.argmin(1))


@probe("tl.argmax", "tl.argmin", "tensor.argmax", "tensor.argmin")
def argmax_and_argmin(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 9, (8, 32)), np.zeros((4, 8), np.int32)
    on(places)[(1,)](x, out, M=8, N=32)
    np.testing.assert_array_equal(
        out, [x.argmax(1), x.argmin(1)] * 2
    )  # of equal values the first, as NumPy does


@tw.jit
def bits_of_rows(x, out, M: tl.constexpr, N: tl.constexpr):
    block = read(x, M, N)
    at = tl.arange(0, M)
    tl.store(out + at, tl.xor_sum(block, axis=1))
    tl.store(out + M + at, tl.reduce_or(block, axis=1))
    tl.store(out + 2 * M + at, block.xor_sum(1))
    tl.store(out + 3 * M + at, block.reduce_or(1))


@probe("tl.xor_sum", "tl.reduce_or", "tensor.xor_sum", "tensor.reduce_or")
def xor_sum_and_reduce_or(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 2**31, (8, 32)).astype(np.int32), np.zeros((4, 8), np.int32)
    on(bits_of_rows)[(1,)](x, out, M=8, N=32)
    np.testing.assert_array_equal(
        out, [np.bitwise_xor.reduce(x, 1), np.bitwise_or.reduce(x, 1)] * 2
    )


@tw.jit
def running(x, cumsum_out, cumprod_out, M: tl.constexpr, N: tl.constexpr):
    block = read(x, M, N)
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(cumsum_out + at, tl.cumsum(block, axis=1))
    tl.store(cumsum_out + M * N + at, block.cumsum(0, reverse=True))
    tl.store(cumprod_out + at, tl.cumprod(block, axis=1))
    tl.store(cumprod_out + M * N + at, block.cumprod(0))


@probe("tl.cumsum", "tl.cumprod", "tensor.cumsum", "tensor.cumprod")
def cumsum_and_cumprod(on: Machine, rng: Any) -> None:
    x, total, multiplied = (
        rng.choice([1, -1, 2], (8, 16)).astype(np.int64),
        np.zeros((2, 8, 16), np.int64),
        np.zeros((2, 8, 16), np.int64),
    )
    on(running)[(1,)](x, total, multiplied, M=8, N=16)
    np.testing.assert_array_equal(total, [x.cumsum(1), x[::-1].cumsum(0)[::-1]])
    np.testing.assert_array_equal(multiplied, [x.cumprod(1), x.cumprod(0)])


@tw.jit
def counted(x, counts, masked, N: tl.constexpr, BINS: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.store(counts + tl.arange(0, BINS), tl.histogram(value, BINS))
    tl.store(
        masked + tl.arange(0, BINS),
        tl.histogram(value, BINS, mask=tl.arange(0, N) < 100) + 0 * value.histogram(BINS),
    )


@probe("tl.histogram", "tensor.histogram")
def histogram(on: Machine, rng: Any) -> None:
    x, counts, masked = (
        rng.integers(0, 16, 256).astype(np.int32),
        np.zeros(16, np.int32),
        np.zeros(16, np.int32),
    )
    on(counted)[(1,)](x, counts, masked, N=256, BINS=16)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=16))
    np.testing.assert_array_equal(masked, np.bincount(x[:100], minlength=16))


@tw.jit
def collatz(n):
    steps = 0
    while n > 1:
        n = tl.where(n % 2 == 0, n // 2, 3 * n + 1)
        steps += 1
    return steps


@tw.jit
def chain_lengths(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.map_elementwise(collatz, tl.load(x + at)))


@probe("tl.map_elementwise")
def map_elementwise(on: Machine, rng: Any) -> None:
    x, out = rng.integers(1, 200, 32).astype(np.int32), np.zeros(32, np.int32)
    on(chain_lengths)[(1,)](x, out, N=32)

    def steps(n: int) -> int:
        return 0 if n <= 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    np.testing.assert_array_equal(out, [steps(int(n)) for n in x])
