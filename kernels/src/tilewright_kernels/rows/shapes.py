"""Arrays as matrices of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright_kernels.operations import strides


def matrix_of(array: Any) -> Any:
    """Return an array as a matrix with its last axis as columns, which have the stride 1.

    It shares memory where the strides allow it.
    """
    columns = array.shape[-1]
    matrix = array.reshape(math.prod(array.shape[:-1]), columns)
    if columns > 1 and strides(matrix)[1] != 1:
        return _copied(matrix)
    return matrix


def contiguous(array: Any) -> Any:
    """Return an array with its elements row by row: itself, where they are; None of None."""
    if array is None or strides(array) == row_major_strides(array.shape):
        return array
    return _copied(array)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of an array of a shape whose elements are row by row."""
    found: list[int] = []
    step = 1
    for extent in reversed(shape):
        found.append(step)
        step *= extent
    return tuple(reversed(found))


def _copied(array: Any) -> Any:
    # a tensor without elements is contiguous with any strides
    if not hasattr(array, "contiguous"):
        return array.copy(order="C")
    return array.contiguous() if 0 not in array.shape else array.new_empty(array.shape)
