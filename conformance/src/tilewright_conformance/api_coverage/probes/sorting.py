"""Sorting, and softmax."""

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
def sorted_rows(x, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    block = tl.load(x + at)
    tl.store(out + at, tl.sort(block))
    tl.store(out + M * N + at, block.sort(descending=True))


@probe("tl.sort", "tensor.sort")
def sort(on: Machine, rng: Any) -> None:
    x, out = rng.standard_normal((4, 32), dtype=np.float32), np.zeros((2, 4, 32), np.float32)
    on(sorted_rows)[(1,)](x, out, M=4, N=32)
    np.testing.assert_array_equal(out, [np.sort(x), -np.sort(-x)])


@tw.jit
def best_rows(x, best, worst, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    block = tl.load(x + rows * N + tl.arange(0, N)[None, :])
    tl.store(best + rows * K + tl.arange(0, K)[None, :], tl.topk(block, K))
    tl.store(worst + rows * K + tl.arange(0, K)[None, :], tl.topk(block, K, descending=False))


@probe("tl.topk")
def topk(on: Machine, rng: Any) -> None:
    x, best, worst = (
        rng.standard_normal((4, 32), dtype=np.float32),
        np.zeros((4, 8), np.float32),
        np.zeros((4, 8), np.float32),
    )
    on(best_rows)[(1,)](x, best, worst, M=4, N=32, K=8)
    np.testing.assert_array_equal(best, -np.sort(-x)[:, :8])
    np.testing.assert_array_equal(worst, np.sort(x)[:, :8])


@tw.jit
def merged(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.bitonic_merge(tl.load(x + at)))


@probe("tl.bitonic_merge")
def bitonic_merge(on: Machine, rng: Any) -> None:
    numbers = rng.integers(0, 999, 32)
    x, out = (
        np.concatenate([np.sort(numbers[:20]), -np.sort(-numbers[20:])]),
        np.zeros(32, np.int64),
    )
    on(merged)[(1,)](x, out, N=32)
    np.testing.assert_array_equal(out, np.sort(numbers))


@tw.jit
def softmaxes(x, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    block = tl.load(x + at)
    tl.store(out + at, tl.softmax(block, dim=1))
    tl.store(out + M * N + at, block.softmax(0, ieee_rounding=True))


@probe("tl.softmax", "tensor.softmax")
def softmax(on: Machine, rng: Any) -> None:
    x, out = rng.standard_normal((4, 32), dtype=np.float32), np.zeros((2, 4, 32), np.float32)
    on(softmaxes)[(1,)](x, out, M=4, N=32)
    powers = np.exp(x.astype(float))
    np.testing.assert_allclose(out[0], powers / powers.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(out[1], powers / powers.sum(0), rtol=1e-5)
