"""Tiles of whole rows: a row a program, or several short rows of a matrix."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def row_indices(ROWS: tl.constexpr):
    """Return the rows of this program: a number, or a column of ROWS numbers."""
    if ROWS == 1:
        return tl.program_id(0).to(tl.int64)
    return (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]


@tw.jit
def column_indices(ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the columns of a block, in the shape that broadcasts with the rows."""
    columns = tl.arange(0, BLOCK)
    if ROWS == 1:
        return columns
    return columns[None, :]


@tw.jit
def within(row, columns, n_rows, n_columns, ROWS: tl.constexpr):
    """Return the mask of the elements that the matrix has."""
    if ROWS == 1:
        return columns < n_columns
    return (row < n_rows) & (columns < n_columns)


@tw.jit
def row_sum(x, ROWS: tl.constexpr):
    """Return the sum of each row."""
    if ROWS == 1:
        return tl.sum(x, axis=0)
    return tl.sum(x, axis=1, keep_dims=True)


@tw.jit
def row_max(x, ROWS: tl.constexpr):
    """Return the maximum of each row."""
    if ROWS == 1:
        return tl.max(x, axis=0)
    return tl.max(x, axis=1, keep_dims=True)


@tw.jit
def online_sum(maximum, total, x):
    """Add exponentials of a block to lane-wise sums that are relative to the row's maximum.

    A row that has only -inf so far keeps the maximum -inf and the sums 0.
    """
    new = tl.maximum(maximum, tl.max(x, axis=0))
    reference = tl.where(new == -float("inf"), 0.0, new)
    return new, total * tl.exp(maximum - reference) + tl.exp(x - reference)


@tw.jit
def log_of_sums(maximum, total):
    """Return the logarithm of the sum of all lanes of :func:`online_sum`."""
    return tl.where(maximum == -float("inf"), 0.0, maximum) + tl.log(tl.sum(total, axis=0))
