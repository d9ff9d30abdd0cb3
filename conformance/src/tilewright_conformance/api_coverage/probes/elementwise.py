"""Element by element: choice, extrema, arithmetic by name, hints."""

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
def chosen(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, tl.where(a > b, a, 0.5))


@probe("tl.where")
def where(on: Machine, rng: Any) -> None:
    x, y, out = *rng.standard_normal((2, 64), dtype=np.float32), np.zeros(64, np.float32)
    on(chosen)[(1,)](x, y, out, N=64)
    np.testing.assert_array_equal(out, np.where(x > y, x, np.float32(0.5)))


@tw.jit
def extrema_of_two(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, tl.minimum(a, b))
    tl.store(out + N + at, tl.maximum(a, b))
    tl.store(out + 2 * N + at, tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 3 * N + at, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))


@probe("tl.minimum", "tl.maximum", "tl.PropagateNan")
def minimum_and_maximum(on: Machine, rng: Any) -> None:
    x, y, out = *rng.standard_normal((2, 64), dtype=np.float32), np.zeros((4, 64), np.float32)
    x[::5] = y[::7] = np.nan
    on(extrema_of_two)[(1,)](x, y, out, N=64)
    np.testing.assert_array_equal(
        out, [np.fmin(x, y), np.fmax(x, y), np.minimum(x, y), np.maximum(x, y)]
    )


@tw.jit
def limited(x, out, low, high, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.clamp(tl.load(x + at), low, high))


@probe("tl.clamp")
def clamp(on: Machine, rng: Any) -> None:
    x, out = rng.standard_normal(64, dtype=np.float32), np.zeros(64, np.float32)
    on(limited)[(1,)](x, out, -0.5, 0.75, N=64)
    np.testing.assert_array_equal(out, np.clip(x, np.float32(-0.5), np.float32(0.75)))


@tw.jit
def by_name(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, tl.add(a, b))
    tl.store(out + N + at, tl.sub(a, b))
    tl.store(out + 2 * N + at, tl.mul(a, b, sanitize_overflow=False))


@probe("tl.add", "tl.sub", "tl.mul")
def arithmetic_by_name(on: Machine, rng: Any) -> None:
    x, y, out = (
        *rng.integers(-(2**31), 2**31, (2, 64)).astype(np.int32),
        np.zeros((3, 64), np.int32),
    )
    on(by_name)[(1,)](x, y, out, N=64)
    np.testing.assert_array_equal(out, [x + y, x - y, x * y])  # modulo 2**32


@tw.jit
def blocks_needed(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    n = tl.load(x + at)
    tl.store(out + at, tl.cdiv(n, 8) + 1000 * n.cdiv(5))


@probe("tl.cdiv", "tensor.cdiv")
def cdiv(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 64), np.zeros(64, np.int64)
    on(blocks_needed)[(1,)](x, out, N=64)
    np.testing.assert_array_equal(out, -(-x // 8) + 1000 * -(-x // 5))


@tw.jit
def expected_zero(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    tl.store(out + at, tl.expect_zero(tl.exp(value), value < -200.0))


@probe("tl.expect_zero")
def expect_zero(on: Machine, rng: Any) -> None:
    x, out = rng.uniform(-300, 1, 64).astype(np.float32), np.ones(64, np.float32)
    on(expected_zero)[(1,)](x, out, N=64, debug=True)
    np.testing.assert_allclose(out, np.exp(x.astype(float)), rtol=1e-5, atol=1e-37)


@tw.jit
def hinted(x, out, stride, N: tl.constexpr):
    tl.assume(stride > 0)
    at = tl.max_contiguous(tl.multiple_of(tl.program_id(0) * N + tl.arange(0, N), N), N)
    group = tl.max_constancy(at // 8, 8)
    tl.store(out + at, tl.load(x + at * stride) + group)


@probe(
    "tl.multiple_of",
    "tl.max_contiguous",
    "tl.max_constancy",
    "tl.assume",
)
def hints(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, (96, 3)), np.zeros(96, np.int64)
    on(hinted)[(3,)](x, out, 3, N=32)
    np.testing.assert_array_equal(out, x[:, 0] + np.arange(96) // 8)
