"""Arithmetic on indices and grids."""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from tilewright.language import core
from tilewright.language.definitions.callable import device_function


@device_function
def cdiv(x, div):
    """Return the quotient of positive integers, rounded up.

    Args:
        x: an integer tensor or number.
        div: the divisor; both are promoted and broadcast.

    Returns:
        ``(x + div - 1) // div``.

    Example:
        blocks = tl.cdiv(n, BLOCK)
    """
    # x + div may be out of range where the whole is not, which the check for overflow would take
    # for a fault.
    return (x + (div - 1)) // div


@device_function
def swizzle2d(i, j, size_i, size_j, size_g):
    """Reorder a 2-D grid, so that program instances that run at once lie in few rows.

    The function divides the grid into groups of ``size_g`` rows. Within a group, consecutive
    program instances go down one column before they continue with the next column.

    Args:
        i: the row of the program instance in the original, row-major order.
        j: the column of the program instance in that order.
        size_i: the number of rows of the grid.
        size_j: the number of columns of the grid.
        size_g: the number of rows of a group; the last group may have fewer.

    Returns:
        A tuple of the row and the column that the program instance must work on.

    Example:
        row, column = tl.swizzle2d(pid, 0, n, 1, 4)
    """
    linear = i * size_j + j
    per_group = size_g * size_j
    first_row = (linear // per_group) * size_g
    # The last group may have fewer rows.
    rows = core.minimum(size_i - first_row, size_g)
    within = linear % per_group
    return first_row + within % rows, within // rows
