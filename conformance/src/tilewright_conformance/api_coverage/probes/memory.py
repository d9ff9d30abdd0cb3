"""Loads, stores, block pointers, the barrier."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import probe


@tw.jit
def copy_part(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(
        x + at, mask=at < n, other=-1.0, cache_modifier=".cg", eviction_policy="evict_first"
    )
    tl.store(out + at, value)


@probe("tl.load")
def load(on: Machine, rng: Any) -> None:
    x, out = rng.standard_normal(100, dtype=np.float32), np.zeros(128, np.float32)
    on(copy_part)[(4,)](x, out, 77, BLOCK=32)
    np.testing.assert_array_equal(out, np.where(np.arange(128) < 77, np.pad(x, (0, 28)), -1))


@tw.jit
def store_even(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(
        out + at,
        value,
        mask=(at < n) & (at % 2 == 0),
        cache_modifier=".wb",
        eviction_policy="evict_last",
    )
    (out + n).store(7.0)


@probe("tl.store", "tensor.store")
def store(on: Machine, rng: Any) -> None:
    x, out = rng.standard_normal(100, dtype=np.float32), np.zeros(101, np.float32)
    on(store_even)[(4,)](x, out, 100, BLOCK=32)
    np.testing.assert_array_equal(out[:100], np.where(np.arange(100) % 2 == 0, x, 0))
    assert out[100] == 7


@tw.jit
def every_hint(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    total = tl.load(x + at, volatile=True)
    total += tl.load(x + at, cache_modifier=".ca", eviction_policy="evict_last")
    total += tl.load(x + at, cache_modifier=".cs")
    total += tl.load(x + at, cache_modifier=".cv")
    tl.store(out + at, total, cache_modifier=".cs")
    tl.store(out + N + at, total, cache_modifier=".wt")
    tl.store(out + 2 * N + at, total, cache_modifier=".cg")


@probe("tl.load", "tl.store")
def cache_hints(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 64), np.zeros((3, 64), np.int64)
    on(every_hint)[(1,)](x, out, N=64)
    np.testing.assert_array_equal(out, np.broadcast_to(4 * x, (3, 64)))


@tw.jit
def transpose_by_blocks(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_block_ptr(
        x, (rows, columns), (columns, 1), (tl.program_id(0) * M, 0), (M, N), (1, 0)
    )
    target = tl.make_block_ptr(
        out, (columns, rows), (rows, 1), (0, tl.program_id(0) * M), (N, M), (1, 0)
    )
    for _ in range(0, columns, N):
        block = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, tl.trans(block), boundary_check=(0, 1))
        source = tl.advance(source, (0, N))
        target = target.advance((N, 0))


@probe("tl.make_block_ptr", "tl.advance", "tensor.advance")
def block_pointers(on: Machine, rng: Any) -> None:
    x, out = rng.standard_normal((21, 13), dtype=np.float32), np.zeros((13, 21), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        on(transpose_by_blocks)[(3,)](x, out, 21, 13, M=8, N=4)
    np.testing.assert_array_equal(out, x.T)


@tw.jit
def rotate_in_place(x, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    tl.debug_barrier()
    tl.store(x + (at + 1) % N, value)


@probe("tl.debug_barrier")
def debug_barrier(on: Machine, rng: Any) -> None:
    x = rng.integers(0, 99, 256)
    expected = np.roll(x, 1)
    on(rotate_in_place)[(1,)](x, N=256)
    np.testing.assert_array_equal(x, expected)
