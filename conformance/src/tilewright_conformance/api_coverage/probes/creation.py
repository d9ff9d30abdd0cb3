"""Program ids and new tensors."""

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
def where_am_i(ids, counts):
    row, column, layer = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (layer * tl.num_programs(1) + column) * tl.num_programs(0) + row
    tl.store(ids + at, row + 100 * column + 10000 * layer)
    tl.store(
        counts + at, tl.num_programs(0) + 100 * tl.num_programs(1) + 10000 * tl.num_programs(2)
    )


@probe("tl.program_id", "tl.num_programs")
def program_ids(on: Machine, rng: Any) -> None:
    ids, counts = np.zeros((2, 3, 5), np.int32), np.zeros((2, 3, 5), np.int32)
    on(where_am_i)[(5, 3, 2)](ids, counts)
    layer, column, row = np.indices(ids.shape)
    np.testing.assert_array_equal(ids, row + 100 * column + 10000 * layer)
    assert (counts == 5 + 100 * 3 + 10000 * 2).all()


@tw.jit
def consecutive(out, START: tl.constexpr, END: tl.constexpr):
    i = tl.arange(START, END)
    tl.store(out + i - START, i * i)


@probe("tl.arange")
def arange(on: Machine, rng: Any) -> None:
    out = np.zeros(32, np.int32)
    on(consecutive)[(1,)](out, START=7, END=39)
    np.testing.assert_array_equal(out, np.arange(7, 39) ** 2)


@tw.jit
def filled(value, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.full((M, N), value, tl.float32))
    tl.store(out + M * N, tl.full((), 2.5, tl.float32))


@probe("tl.full")
def full(on: Machine, rng: Any) -> None:
    value, out = float(np.float32(rng.standard_normal())), np.zeros(4 * 8 + 1, np.float32)
    on(filled)[(1,)](value, out, M=4, N=8)
    assert (out[:-1] == np.float32(value)).all()
    assert out[-1] == 2.5


@tw.jit
def zeroed(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    tl.static_assert(tl.zeros_like(values).dtype == values.dtype)
    tl.store(out + at, tl.zeros((N,), tl.int16))
    tl.store(out + N + at, tl.zeros_like(values))


@probe("tl.zeros", "tl.zeros_like")
def zeros(on: Machine, rng: Any) -> None:
    x, out = rng.integers(-9, 9, 16).astype(np.int16), np.full(32, 7, np.int16)
    on(zeroed)[(1,)](x, out, N=16)
    assert (out == 0).all()


@tw.jit
def numbers_as_tensors(out):
    three = tl.to_tensor(3)
    tl.static_assert(three.dtype == tl.int32)
    tl.static_assert(tl.to_tensor(2.5).dtype == tl.float32)
    tl.static_assert(tl.to_tensor(True).dtype == tl.int1)
    tl.store(out, three + tl.program_id(0))


@probe("tl.to_tensor")
def to_tensor(on: Machine, rng: Any) -> None:
    out = np.zeros(1, np.int32)
    on(numbers_as_tensors)[(1,)](out)
    assert out[0] == 3


@tw.jit
def conversions(x, nearest, truncated, bits, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    tl.store(nearest + at, tl.cast(value, tl.float16))
    tl.store(truncated + at, value.to(tl.float16, fp_downcast_rounding="rtz"))
    tl.store(bits + at, value.cast(tl.int32, bitcast=True))


@probe("tl.cast", "tensor.to", "tensor.cast")
def cast(on: Machine, rng: Any) -> None:
    x = rng.standard_normal(64, dtype=np.float32)
    nearest, truncated, bits = (
        np.zeros(64, np.float16),
        np.zeros(64, np.float16),
        np.zeros(64, np.int32),
    )
    on(conversions)[(1,)](x, nearest, truncated, bits, N=64)
    np.testing.assert_array_equal(nearest, x.astype(np.float16))
    rounded = x.astype(np.float16)
    towards_zero = np.where(
        np.abs(rounded.astype(np.float32)) > np.abs(x),
        np.nextafter(rounded, np.float16(0)),
        rounded,
    )
    np.testing.assert_array_equal(truncated, towards_zero)
    np.testing.assert_array_equal(bits, x.view(np.int32))
