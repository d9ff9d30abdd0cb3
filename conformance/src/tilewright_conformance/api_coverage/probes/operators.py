"""Python's operators on tensors."""

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
def arithmetic(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a + b)
    tl.store(out + N + at, a - b)
    tl.store(out + 2 * N + at, a * b)
    tl.store(out + 3 * N + at, a // b)
    tl.store(out + 4 * N + at, a % b)
    tl.store(out + 5 * N + at, -a)
    tl.store(out + 6 * N + at, 3 - a)
    tl.store(out + 7 * N + at, 100 // b)


@probe("operator +", "operator -", "operator *", "operator //", "operator %")
def integer_arithmetic(on: Machine, rng: Any) -> None:
    x, y, out = (
        rng.integers(-99, 99, 64),
        rng.choice([-7, -2, 3, 9], 64),
        np.zeros((8, 64), np.int64),
    )
    on(arithmetic)[(1,)](x, y, out, N=64)
    truncated = np.trunc(x / y).astype(np.int64)  # as C divides
    np.testing.assert_array_equal(
        out, [x + y, x - y, x * y, truncated, x - truncated * y, -x, 3 - x, np.trunc(100 / y)]
    )


@tw.jit
def float_arithmetic_kernel(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a / b)
    tl.store(out + N + at, a % b)
    tl.store(out + 2 * N + at, 1 / b)
    whole = (at + 1) / (at + 3)
    tl.static_assert(whole.dtype == tl.float32)
    tl.store(out + 3 * N + at, whole)


@probe("operator /", "operator %")
def float_arithmetic(on: Machine, rng: Any) -> None:
    x, y = rng.uniform(-9, 9, 64).astype(np.float32), rng.uniform(1, 3, 64).astype(np.float32)
    out, i = np.zeros((4, 64), np.float32), np.arange(64)
    on(float_arithmetic_kernel)[(1,)](x, y, out, N=64)
    np.testing.assert_allclose(
        out, [x / y, np.fmod(x, y), 1 / y, (i + 1) / (i + 3)], rtol=1e-6, atol=1e-6
    )


@tw.jit
def bits(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a & b)
    tl.store(out + N + at, a | b)
    tl.store(out + 2 * N + at, a ^ b)
    tl.store(out + 3 * N + at, ~a)
    tl.store(out + 4 * N + at, a << (b & 15))
    tl.store(out + 5 * N + at, a >> (b & 15))


@probe("operator &", "operator |", "operator ^", "operator ~", "operator <<", "operator >>")
def bit_operators(on: Machine, rng: Any) -> None:
    for dtype in (np.int32, np.uint32):
        x, y = rng.integers(0, 2**32, (2, 64)).astype(np.uint32).view(dtype)
        out = np.zeros((6, 64), dtype)
        on(bits)[(1,)](x, y, out, N=64)
        np.testing.assert_array_equal(out, [x & y, x | y, x ^ y, ~x, x << (y & 15), x >> (y & 15)])


@tw.jit
def comparisons(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a == b)
    tl.store(out + N + at, a != b)
    tl.store(out + 2 * N + at, a < b)
    tl.store(out + 3 * N + at, a <= b)
    tl.store(out + 4 * N + at, a > b)
    tl.store(out + 5 * N + at, a >= b)


@probe("operator ==", "operator !=", "operator <", "operator <=", "operator >", "operator >=")
def compare(on: Machine, rng: Any) -> None:
    x, y, out = *rng.integers(0, 4, (2, 64)).astype(np.float32), np.zeros((6, 64), np.int8)
    x[::9] = np.nan
    on(comparisons)[(1,)](x, y, out, N=64)
    np.testing.assert_array_equal(out, [x == y, x != y, x < y, x <= y, x > y, x >= y])


@tw.jit
def logic(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    low, high = a < 2, b < 2
    tl.store(out + at, low.logical_and(high))
    tl.store(out + N + at, low.logical_or(high))
    first, second = tl.load(x) < 2, tl.load(y) < 2
    if first and second:
        tl.store(out + 2 * N, 1)
    if first or not second:
        tl.store(out + 2 * N + 1, 1)


@probe("operator and", "operator or", "operator not", "tensor.logical_and", "tensor.logical_or")
def boolean_operators(on: Machine, rng: Any) -> None:
    for first in (0, 3):
        for second in (0, 3):
            x, y, out = *rng.integers(0, 4, (2, 16)), np.zeros((3, 16), np.int8)
            x[0], y[0] = first, second
            on(logic)[(1,)](x, y, out, N=16)
            a, b = x < 2, y < 2
            np.testing.assert_array_equal(out[:2], [a & b, a | b])
            np.testing.assert_array_equal(out[2, :2], [a[0] and b[0], a[0] or not b[0]])
