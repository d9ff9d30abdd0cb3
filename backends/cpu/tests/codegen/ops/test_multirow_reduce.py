"""Lane reductions of as many rows at a time as a vector has lanes, and of remaining rows."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

RNG = np.random.default_rng(3)
#: (batches, rows, columns, columns that count)
SHAPES = [
    (1, 16, 64, 64),
    (2, 32, 128, 100),
    (4, 64, 16, 16),
    (2, 64, 32, 5),
    (1, 128, 256, 255),
    (2, 8, 64, 64),
    (1, 64, 512, 512),
]
FILL = 3


@tw.jit
def extremes_and_sums(
    x_ptr, most_ptr, least_ptr, sum_ptr, counted, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr
):
    batch, row, column = (
        tl.arange(0, B)[:, None, None],
        tl.arange(0, M)[None, :, None],
        tl.arange(0, N)[None, None, :],
    )
    x = tl.load(x_ptr + (batch * M + row) * N + column, mask=column < counted, other=3)
    at = tl.arange(0, B)[:, None] * M + tl.arange(0, M)[None, :]
    tl.store(most_ptr + at, tl.max(x, 2))
    tl.store(least_ptr + at, tl.min(x, 2))
    tl.store(sum_ptr + at, tl.sum(x, 2))


@pytest.mark.each_value
@pytest.mark.parametrize(
    "kind", [np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64]
)
@pytest.mark.parametrize(("batches", "rows", "columns", "counted"), SHAPES)
def test_rows(batches: int, rows: int, columns: int, counted: int, kind: type) -> None:
    x = (RNG.standard_normal((batches, rows, columns)) * 9).astype(kind)
    real = np.issubdtype(kind, np.floating)
    if real:
        x[0, 1, 2], x[0, 2, 3], x[0, 3] = np.nan, -np.inf, np.nan
    most, least, total = (np.full((batches, rows), 77, kind) for _ in range(3))
    extremes_and_sums[(1,)](x, most, least, total, counted, B=batches, M=rows, N=columns)
    seen = np.where(np.arange(columns) < counted, x, kind(FILL))
    np.testing.assert_array_equal(most, np.fmax.reduce(seen, 2))
    np.testing.assert_array_equal(least, np.fmin.reduce(seen, 2))
    if real:
        exact, size = seen.astype(np.float64).sum(2), np.abs(seen.astype(np.float64)).sum(2)
        finite = np.isfinite(exact)
        np.testing.assert_array_equal(total[~finite], exact[~finite])
        assert (
            np.abs(total[finite] - exact[finite]) <= 2 * np.finfo(kind).eps * size[finite]
        ).all()
    else:
        wide = seen.sum(2, dtype=np.int64)
        np.testing.assert_array_equal(total, wide.astype(total.dtype))
