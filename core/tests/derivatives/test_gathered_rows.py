"""Gradients of rows that descriptors gather and scatter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.arguments.descriptor import TensorDescriptor

ROWS, COLUMNS, R, C = 10, 24, 8, 16


@tw.jit
def gathered(x, index, out, n, c, R: tl.constexpr, C: tl.constexpr):
    if not isinstance(x, tl.tensor_descriptor):
        x = tl.make_tensor_descriptor(x, [n, c], [c, 1], [1, C])
    places = tl.program_id(0) * R + tl.arange(0, R)
    value = x.gather(tl.load(index + places), tl.program_id(1) * C)
    columns = tl.program_id(1) * C + tl.arange(0, C)
    value = tl.sin(value.to(tl.float32)) if value.dtype == tl.float16 else tl.sin(value)
    tl.store(out + places[:, None] * (2 * C) + columns[None, :], value)


@tw.jit
def scattered(x, index, out, n, c, R: tl.constexpr, C: tl.constexpr):
    descriptor = tl.make_tensor_descriptor(out, [n, c], [c, 1], [1, C])
    places = tl.program_id(0) * R + tl.arange(0, R)
    columns = tl.program_id(1) * C + tl.arange(0, C)
    value = tl.load(x + places[:, None] * (2 * C) + columns[None, :])
    descriptor.scatter(tl.sin(value), tl.load(index + places), tl.program_id(1) * C)


class Rows:
    """A table, rows of it, some of them outside, and cotangents of what is gathered."""

    def __init__(self, *, distinct: bool) -> None:
        rng = np.random.default_rng(0)
        self.table = rng.normal(size=(ROWS, COLUMNS)).astype("f4")
        self.tile, self.cotangent = (rng.normal(size=(16, 2 * C)).astype("f4") for _ in range(2))
        index = rng.permutation(16) if distinct else rng.integers(-2, ROWS + 2, 16)
        self.index = index.astype("i4")

    def gradient(self) -> np.ndarray:
        found = np.zeros((ROWS, COLUMNS))
        for place, row in enumerate(self.index):
            if 0 <= row < ROWS:
                found[row] += self.cotangent[place, :COLUMNS] * np.cos(self.table[row])
        return found


def described(array: np.ndarray, on_host: bool) -> Any:
    if not on_host:
        return array
    return TensorDescriptor(array, [ROWS, COLUMNS], [COLUMNS, 1], [1, C])


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("distinct", [False, True])
def test_rows_are_added_to_the_gradient(on_host: bool, backend: Any, distinct: bool) -> None:
    rows, promise = Rows(distinct=distinct), "x" if distinct else ()
    found = np.full_like(rows.table, np.nan)
    adjoint = tw.vjp(gathered, outputs="out", wrt="x", disjoint=promise, deterministic=distinct)
    arguments = (described(rows.table, on_host), rows.index, np.empty((16, 2 * C), "f4"))
    sizes = (ROWS, COLUMNS, R, C)
    with tw.backend(backend):
        gradients = {"d_out": rows.cotangent, "d_x": described(found, on_host)}
        adjoint[(2, 2)](*arguments, *sizes, **gradients)
    np.testing.assert_allclose(found, rows.gradient(), rtol=1e-5, atol=1e-6)


def test_narrow_rows_are_added_as_what_their_gradient_holds() -> None:
    rows = Rows(distinct=False)
    found = np.full_like(rows.table, np.nan)
    adjoint = tw.vjp(gathered, outputs="out", wrt="x")
    table, out = rows.table.astype("f2"), np.empty((16, 2 * C), "f2")
    adjoint[(2, 2)](table, rows.index, out, ROWS, COLUMNS, R, C, d_out=rows.cotangent, d_x=found)
    np.testing.assert_allclose(found, rows.gradient(), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("kernel", [gathered, scattered])
def test_both_modes_agree(kernel: Any) -> None:
    rows = Rows(distinct=True)
    x, out = rows.table, np.empty((16, 2 * C), "f4")
    if kernel is scattered:
        x, out = rows.tile, rows.table
    sizes = (ROWS, COLUMNS, R, C)
    tw.testing.assert_gradients(kernel, (2, 2), x, rows.index, out, *sizes, outputs="out", wrt="x")


def test_rows_that_all_programs_gather_are_summed_by_each_row() -> None:
    """The programs of the plan are the rows, and loop over those of the kernel."""
    rows = Rows(distinct=True)
    adjoint = tw.vjp(weighted, outputs="out", wrt="x")
    x, w, out = rows.table, np.arange(1, 4, dtype="f4"), np.empty((3, R * C), "f4")
    d_out, found = np.ones_like(out), np.full_like(x, np.nan)
    sizes = (ROWS, COLUMNS, R, C)
    adjoint[(3,)](x, w, rows.index, out, *sizes, d_out=d_out, d_x=found)
    plan = adjoint.plan(x, w, rows.index, out, *sizes, grid=(3,), d_out=d_out, d_x=found)
    assert "iterations(the loop that adds)" in str(plan.kernels[-1].grid[0])
    expected = np.zeros_like(found)
    inside = [row for row in rows.index[:R] if row < ROWS]
    expected[inside, :C] = w.sum()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@tw.jit
def weighted(x, w, index, out, n, c, R: tl.constexpr, C: tl.constexpr):
    table = tl.make_tensor_descriptor(x, [n, c], [c, 1], [1, C])
    value = table.gather(tl.load(index + tl.arange(0, R)), 0) * tl.load(w + tl.program_id(0))
    places = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(out + tl.program_id(0) * (R * C) + places, value)
