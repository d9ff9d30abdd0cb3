"""Bounds of loop nests whose offsets overflow, wholly or in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function
from tilewright_cpu.status import OUT_OF_BOUNDS


@device_function
def wrapping_bound(y, start, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(y + i * COLUMNS + j, 1.0, mask=(start + i < n) & (j < COLUMNS))


def test_bounds_that_overflow(module_of: Any, compiled: Any, guarded: Any) -> None:
    """Rows beyond those that a bound admits, which it admits again where what it compares wraps
    around."""
    run = compiled(
        module_of(wrapping_bound, [np.zeros(4, np.float32), 0, 0], ROWS=16, COLUMNS=4),
        {"debug": True},
    )
    limit = 2**31 - 1
    for start, n, wild in (
        (0, 8, False),
        (0, 9, True),
        (limit - 15, limit - 7, False),
        (limit - 15, limit - 6, True),
        (limit - 7, limit, True),
    ):
        guarded(run, [np.zeros(8 * 4, np.float32), start, n], (1, 1, 1))
        assert (run.status[0] == OUT_OF_BOUNDS) == wild, (start, n)


@device_function
def bound_in_two_parts(y, a, b, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    row = (a + i).to(tl.int64) + (b - i) + i
    tl.store(y + i * COLUMNS + j, 1.0, mask=(row < n) & (j < COLUMNS))


def test_bounds_whose_overflows_cancel_at_the_ends(
    module_of: Any, compiled: Any, guarded: Any
) -> None:
    run = compiled(
        module_of(bound_in_two_parts, [np.zeros(4, np.float32), 0, 0, 0], ROWS=16, COLUMNS=4),
        {"debug": True},
    )
    y, last = np.zeros(8 * 4, np.float32), 2**31 - 1
    # of row 9 one part has wrapped around, and the bound admits it
    for a, b, n, wild in (
        (0, 0, 8, False),
        (0, 0, 9, True),
        (last - 8, 8 - last, 8, True),
        (last - 20, 20 - last, 8, False),
    ):
        guarded(run, [y, a, b, n], (1, 1, 1))
        assert (run.status[0] == OUT_OF_BOUNDS) == wild, (a, b, n)


@device_function
def in_two_parts(y, flags, a, b, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(
        y + (a + i * step) + (b - i * step) + j, 1.0, mask=tl.load(flags + i * COLUMNS + j) != 0
    )


@device_function
def in_two_widened_parts(y, flags, a, b, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    offsets = (a + i).to(tl.int64) * 4 + 4 * (b - i + 0 * j).to(tl.int64) + step * j
    tl.store(y + offsets, 1.0, mask=tl.load(flags + i * COLUMNS + j) != 0)


@device_function
def in_parts_across_axes(y, flags, a, b, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(
        y + (a + i * step + j) + (b - i * step), 1.0, mask=tl.load(flags + i * COLUMNS + j) != 0
    )


@pytest.mark.parametrize(
    "kernel",
    [in_two_parts, in_two_widened_parts, in_parts_across_axes],
    ids=lambda kernel: kernel.__name__,
)
def test_parts_whose_overflows_cancel_at_the_corners(
    kernel: Any, module_of: Any, compiled: Any, guarded: Any
) -> None:
    """Rows between the first and the last one are far outside: of two parts of their addresses one
    has wrapped around, in the last rows both have."""
    flags = np.ones((16, 4), np.int8)
    run = compiled(
        module_of(kernel, [np.zeros(4, np.float32), flags, 0, 0, 0], ROWS=16, COLUMNS=4),
        {"debug": True},
    )
    y, last = np.zeros(16, np.float32), 2**31 - 1
    for rows, a, b, wild in (
        (16, 0, 0, False),
        (16, last - 4, 6 - last, True),
        (16, last, -last, True),
        (5, last - 4, 6 - last, False),
    ):
        flags[:rows], flags[rows:] = 1, 0
        guarded(run, [y, flags.copy(), a, b, 1], (1, 1, 1))
        assert (run.status[0] == OUT_OF_BOUNDS) == wild, (rows, a, b)
