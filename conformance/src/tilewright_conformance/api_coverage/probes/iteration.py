"""Loops."""

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
def sum_of_columns(x, out, columns, N: tl.constexpr):
    total = tl.zeros((N,), tl.float32)
    for k in tl.range(
        0,
        columns,
        num_stages=3,
        loop_unroll_factor=2,
        disallow_acc_multi_buffer=True,
        flatten=False,
        disable_licm=True,
    ):
        total += tl.load(x + tl.arange(0, N) * columns + k)
    for k in tl.range(columns - 1, -1, -1):
        total += tl.load(x + tl.arange(0, N) * columns + k)
    tl.store(out + tl.arange(0, N), total)


@probe("tl.range")
def range_hints(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, (16, 7)).astype(np.float32), np.zeros(16, np.float32)
    on(sum_of_columns)[(1,)](x, out, 7, N=16)
    np.testing.assert_array_equal(out, 2 * x.sum(1))


@tw.jit
def powers(x, out, N: tl.constexpr, COUNT: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    result = value
    for i in tl.static_range(1, COUNT):
        tl.static_assert(i < COUNT)
        tl.store(out + (i - 1) * N + at, result)
        result *= value


@probe("tl.static_range")
def static_range(on: Machine, rng: Any) -> None:
    x, out = rng.integers(-5, 6, 16), np.zeros((3, 16), np.int64)
    on(powers)[(1,)](x, out, N=16, COUNT=4)
    np.testing.assert_array_equal(out, [x, x**2, x**3])


@tw.jit
def halvings(x, out):
    n = tl.load(x + tl.program_id(0))
    steps = 0
    while tl.condition(n > 1, disable_licm=True):
        n //= 2
        steps += 1
    tl.store(out + tl.program_id(0), steps)


@probe("tl.condition")
def condition(on: Machine, rng: Any) -> None:
    x, out = rng.integers(1, 2**20, 8), np.zeros(8, np.int32)
    on(halvings)[(8,)](x, out)
    np.testing.assert_array_equal(out, [int(n).bit_length() - 1 for n in x])
