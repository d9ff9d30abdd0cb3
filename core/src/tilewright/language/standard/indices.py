"""Arithmetic on indices and grids."""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from tilewright.language import core
from tilewright.language.definitions.callable import device_function


@device_function
def cdiv(x, div):
    """The quotient of positive integers, rounded up.

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
    """Reorder the programs of a 2-d grid, so that concurrent programs share rows.

    The grid is divided into groups of ``size_g`` rows. Within a group, programs go down each column
    before they move to the next.

    Args:
        i: the program's row in row-major order.
        j: its column.
        size_i: rows of the grid.
        size_j: columns of the grid.
        size_g: the number of rows of a group; the last group may have fewer.

    Returns:
        A tuple: the row and the column to work on.

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
