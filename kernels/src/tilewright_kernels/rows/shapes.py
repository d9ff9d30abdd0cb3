"""Arrays as matrices of rows."""

from __future__ import annotations

import math
from typing import Any

from tilewright_kernels.operations import strides


def matrix_of(array: Any) -> Any:
    """Return an array as a matrix with its last axis as columns, which have the stride 1.

    It shares memory where the strides allow it.
    """
    columns = array.shape[-1]
    matrix = array.reshape(math.prod(array.shape[:-1]), columns)
    if columns > 1 and strides(matrix)[1] != 1:
        return matrix.contiguous() if hasattr(matrix, "contiguous") else matrix.copy(order="C")
    return matrix
