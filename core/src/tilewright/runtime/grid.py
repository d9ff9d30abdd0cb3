"""Grids: how many programs a launch has along each of three axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any

from tilewright.errors import LaunchError

#: What ``kernel[...]`` takes: one to three sizes, or what computes them from the arguments by name.
Grid = int | Sequence[int] | Callable[[Mapping[str, Any]], Any]


def grid_of(grid: Any, arguments: Mapping[str, Any]) -> tuple[int, int, int]:
    """The three sizes of a grid; ``arguments`` are given to one that is a function.

    Raises:
        LaunchError: it is not one to three integers, none negative.
    """
    return sizes(grid(arguments) if callable(grid) else grid)


def sizes(grid: Any) -> tuple[int, int, int]:
    """The three sizes of a grid that is no function.

    Raises:
        LaunchError: it is not one to three integers, none negative.
    """
    try:
        if type(grid) is not tuple:
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
        raise LaunchError(f"a grid is one to three integers, not {grid!r}: {error}. Round sizes up with tilewright.cdiv, not with /") from None
    if found[0] < 0 or found[1] < 0 or found[2] < 0:
        raise LaunchError(f"the sizes of a grid must not be negative: {grid!r}")
    return found


def _size(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value).__name__ == "constexpr":
        value = value.value
    return index(value)
