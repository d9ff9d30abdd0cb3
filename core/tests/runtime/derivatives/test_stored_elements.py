"""Gradients all of whose elements are stored are not set to zero before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.derivatives import adjoint_plans, repeated_launch


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with tw.backend("reference"):
        yield


@pytest.fixture
def zeroed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Arrays that are set to zero."""
    found: list[Any] = []

    def noted(array: Any) -> None:
        found.append(array)
        before(array)

    before = adjoint_plans.set_to_zero
    for module in (adjoint_plans, repeated_launch):
        monkeypatch.setattr(module, "set_to_zero", noted)
    return found


@tw.jit
def line(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@tw.jit
def line_without_mask(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at))


@tw.jit
def plane(x, out, m, n, stride, start, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    at = start + rows * stride + columns
    inside = (rows < m) & (columns < n)
    tl.store(out + at, 2 * tl.load(x + at, mask=inside), mask=inside)


@tw.jit
def even_programs(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(0) % 2 == 0:
        tl.store(out + at, 2 * tl.load(x + at))


@tw.jit
def strided(x, out, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * 2
    tl.store(out + at, 2 * tl.load(x + at))


def gradient(kernel: Any, size: int, grid: Any, *numbers: int, **blocks: int) -> np.ndarray:
    """The gradient that a launch leaves where NaN was before."""
    x, dx = np.zeros(size, "f4"), np.full(size, np.nan, "f4")
    adjoint = tw.vjp(kernel, outputs="out", wrt="x")
    adjoint[grid](x, x.copy(), *numbers, **blocks, d_out=np.ones(size, "f4"), d_x=dx)
    return dx


@pytest.mark.parametrize(
    ("kernel", "size", "grid", "numbers", "is_whole"),
    [
        (line, 50, 4, (50,), True),
        (line, 64, 4, (64,), True),
        (line, 50, 3, (50,), False),  # the grid ends before the array does
        (line, 50, 4, (40,), False),  # the mask does
        (line_without_mask, 64, 4, (), True),
        (line_without_mask, 80, 4, (), False),
        (even_programs, 64, 4, (), False),
        (strided, 128, 4, (), False),
    ],
)
def test_gradients_that_are_stored_whole_are_not_set_to_zero(
    zeroed, kernel, size, grid, numbers, is_whole
) -> None:
    dx = gradient(kernel, size, (grid,), *numbers, BLOCK=16)
    assert set(np.unique(dx)) == ({2} if is_whole else {0, 2})
    assert (not zeroed) == is_whole


def test_random_planes(zeroed) -> None:
    """No element is left as it was, whichever part of the array the programs store to."""
    rng = np.random.default_rng(0)
    adjoint = tw.vjp(plane, outputs="out", wrt="x")
    skipped = 0
    for _ in range(80):
        rows, columns = (int(n) for n in rng.integers(1, 4, 2))
        m, n = (int(extent * 4 - rng.choice([0, 1, 3])) for extent in (rows, columns))
        grid = tuple(max(1, extent - int(rng.random() < 0.1)) for extent in (rows, columns))
        stride = n + int(rng.choice([0, 0, 0, 1, 2]))
        start = int(rng.choice([0, 0, 0, 3]))
        size = start + m * stride
        x, dx, cotangent = np.zeros(size, "f4"), np.full(size, np.nan, "f4"), np.ones(size, "f4")
        del zeroed[:]
        adjoint[grid](
            *(x, x.copy(), m, n, stride, start), ROWS=4, COLUMNS=4, d_out=cotangent, d_x=dx
        )
        row, column = np.divmod(np.arange(start, size) - start, stride)
        inside = (row < min(m, 4 * grid[0])) & (column < min(n, 4 * grid[1]))
        expected = np.concatenate([np.zeros(start), np.where(inside, 2, 0)])
        np.testing.assert_array_equal(dx, expected)
        skipped += not zeroed
        assert not zeroed or not expected.all() or 1 in (m, n, *grid)
    assert 10 < skipped < 70


def test_arrays_with_gaps_and_sums(zeroed) -> None:
    """An array with gaps is set to zero, and one to which gradients are added is not."""
    wide, out, cotangent, dx = (np.zeros((8, 32), "f4")[:, :16] for _ in range(4))
    dx[:] = np.nan
    adjoint = tw.vjp(plane, outputs="out", wrt="x")
    adjoint[(2, 4)](*(wide, out, 8, 16, 32, 0), ROWS=4, COLUMNS=4, d_out=cotangent, d_x=dx)
    assert len(zeroed) == 1 and not dx.any()
    x, gradients = np.zeros((8, 16), "f4"), np.ones((8, 16), "f4")
    tw.vjp(plane, outputs="out", wrt="x", accumulate=True)[(2, 4)](
        *(x, x.copy(), 8, 16, 16, 0), ROWS=4, COLUMNS=4, d_out=np.ones_like(x), d_x=gradients
    )
    assert len(zeroed) == 1 and (gradients == 3).all()


def test_an_empty_grid_leaves_zeros(zeroed) -> None:
    dx = gradient(line, 50, (0,), 50, BLOCK=16)
    assert len(zeroed) == 1 and (dx == 0).all()
