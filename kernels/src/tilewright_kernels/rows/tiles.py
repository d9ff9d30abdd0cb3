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
def no_maximum(BLOCK: tl.constexpr, BY_LANES: tl.constexpr):
    """Return the maximum of no elements for :func:`online_sum`: of each lane, or of all."""
    if BY_LANES:
        return tl.full([BLOCK], -float("inf"), tl.float32)
    return tl.cast(-float("inf"), tl.float32)


@tw.jit
def online_sum(maximum, total, x, BY_LANES: tl.constexpr):
    """Add exponentials of ``x`` to lane-wise sums that are relative to maxima.

    Maxima of lanes need no reduction for each block, one of all lanes a single exponential for each
    element. What has seen only -inf keeps the maximum -inf and the sum 0.
    """
    new = tl.maximum(maximum, x if BY_LANES else tl.max(x, axis=0))
    reference = tl.where(new == -float("inf"), 0.0, new)
    return new, total * tl.exp(maximum - reference) + tl.exp(x - reference)


@tw.jit
def log_of_sums(maximum, total, BY_LANES: tl.constexpr):
    """Return the logarithm of the sum of all lanes of :func:`online_sum`."""
    overall = tl.max(maximum, axis=0) if BY_LANES else maximum
    reference = tl.where(overall == -float("inf"), 0.0, overall)
    return reference + tl.log(tl.sum(total * tl.exp(maximum - reference), axis=0))
