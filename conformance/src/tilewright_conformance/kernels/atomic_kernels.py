"""Kernels that update floats atomically, and others of the same algebra that do not."""

# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def gradient_by_tiles(
    grad_ptr, index_ptr, table_ptr, count, width, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """Rows of a gradient added to those of a table, several of which may be one."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    index = tl.load(index_ptr + row, mask=row < count, other=-1)
    inside = (index >= 0)[:, None] & (column < width)[None, :]
    grad = tl.load(grad_ptr + row[:, None] * width + column[None, :], mask=inside)
    tl.atomic_add(table_ptr + index[:, None] * width + column[None, :], grad, mask=inside)


@tw.jit
def gradient_by_table_row(
    grad_ptr, index_ptr, table_ptr, count, width, WIDTH: tl.constexpr
):  # fmt: skip
    """A row of the table a program, which adds the rows of the gradient that are its own."""
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    inside = column < width
    total = tl.load(table_ptr + row * width + column, mask=inside, other=0.0)
    for i in range(count):
        added = tl.load(grad_ptr + i * width + column, mask=inside, other=0.0)
        total += tl.where(tl.load(index_ptr + i) == row, added, 0.0)
    tl.store(table_ptr + row * width + column, total, mask=inside)


@tw.jit
def row_extrema(x_ptr, low_ptr, high_ptr, n, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
    """Minimum and maximum of each row and of what there is, by element or by whole rows."""
    row, column = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < n
    x = tl.load(x_ptr + row * n + column, mask=inside)
    if ATOMIC:
        tl.atomic_min(low_ptr + row + 0 * column, x, mask=inside)
        tl.atomic_max(high_ptr + row + 0 * column, x, mask=inside)
    else:
        low = tl.min(tl.where(inside, x, float("inf")), axis=0)
        high = tl.max(tl.where(inside, x, float("-inf")), axis=0)
        tl.store(low_ptr + row, tl.minimum(low, tl.load(low_ptr + row)))
        tl.store(high_ptr + row, tl.maximum(high, tl.load(high_ptr + row)))
