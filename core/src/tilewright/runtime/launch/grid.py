"""Grids: the number of programs of a launch along each of three axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from operator import index
from typing import Any

from tilewright.errors import LaunchError, similar

#: Argument of ``kernel[...]``: one to three sizes, or a function of the arguments by name.
Grid = int | Sequence[int] | Callable[[Mapping[str, Any]], Any]


#: exclusive limit of programs along an axis: program ids are int32
MAX_EXTENT = 1 << 31
#: the most programs of a launch
MAX_PROGRAMS = (1 << 63) - 1


def grid_of(grid: Any, arguments: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the three sizes of a grid; a function is called with ``arguments``.

    Raises:
        LaunchError: it is not one to three integers, none negative, none of 2**31 or more.
    """
    if not callable(grid):
        return sizes(grid)
    try:
        found = grid(arguments)
    except KeyError as error:
        _tell_names(error, arguments)
        raise
    return sizes(found)


def _tell_names(error: KeyError, arguments: Mapping[str, Any]) -> None:
    """Add a note with the available names to an error of a grid's function."""
    wanted = error.args[0] if error.args else None
    meant = similar(wanted, arguments, shortened=True) if isinstance(wanted, str) else ""
    error.add_note(
        f"in the function of a grid; it is given a dict of {', '.join(arguments)}"
        + (f": {meant}" if meant else "")
    )


def sizes(grid: Any) -> tuple[int, int, int]:
    """Return the three sizes of a grid other than a function.

    Raises:
        LaunchError: it is not one to three integers, none negative, none of 2**31 or more.
    """
    try:
        if type(grid) is not tuple:
            if isinstance(grid, str | bytes | bytearray | Set | Mapping):
                raise TypeError(f"a {type(grid).__name__} has no sizes in order")
            grid = tuple(grid) if hasattr(grid, "__iter__") else (grid,)
        count = len(grid)
        if count == 1:
            found = (_size(grid[0]), 1, 1)
        elif count == 2:
            found = (_size(grid[0]), _size(grid[1]), 1)
        elif count == 3:
            found = (_size(grid[0]), _size(grid[1]), _size(grid[2]))
        else:
            raise LaunchError(f"a grid has one to three sizes, not {count}: {grid!r}")
    except TypeError as error:
        raise LaunchError(
            f"a grid is one to three integers, not {grid!r}: {error}. Round sizes up with "
            "tilewright.cdiv, not with /"
        ) from None
    # one is negative or too large; this is on the path of every launch
    if (found[0] | found[1] | found[2]) >> 31:
        if min(found) < 0:
            raise LaunchError(f"the sizes of a grid must not be negative: {grid!r}")
        raise LaunchError(
            f"the sizes of a grid must be below 2**31, since program ids are int32: {grid!r}. Let "
            "each program do more of the work"
        )
    if count == 3 and found[0] * found[1] * found[2] > MAX_PROGRAMS:
        raise LaunchError(
            f"a launch has at most 2**63 - 1 programs, and the grid {grid!r} has more. Let each "
            "program do more of the work"
        )
    return found


def _size(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value).__name__ == "constexpr":
        value = value.value
    return index(value)
