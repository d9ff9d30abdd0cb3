"""Extents of grids, and integers of kernels, that a launch evaluates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.derivatives.tiling.delinearize import Delinearized, coordinate_box
from tilewright.derivatives.tiling.scalar_slice import evaluate_slice
from tilewright.ir.core import Module


@dataclass(frozen=True, eq=False)
class Extent:
    """The extent of an axis of a grid, in terms of the launch."""


@dataclass(frozen=True, eq=False)
class FixedExtent(Extent):
    """A number."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, eq=False)
class ForwardAxis(Extent):
    """An axis of the grid with which the kernel is launched."""

    axis: int

    def __str__(self) -> str:
        return f"grid[{self.axis}]"


@dataclass(frozen=True, eq=False)
class CoordinateAxis(Extent):
    """The extent of a coordinate that the programs of a grid of one axis compute."""

    found: Delinearized
    axis: int

    def __str__(self) -> str:
        return f"coordinates[{self.axis}]"


@dataclass(frozen=True, eq=False)
class Iterations(Extent):
    """The most iterations that the loop of a program has.

    Attributes:
        counts: the slice that counts them.
        grid: the grid of the kernel with the loop.
        numbers: that kernel's parameters for extents.
        loop: the loop's place in the kernel's source.
    """

    counts: Module
    grid: Grid
    numbers: Mapping[str, Extent]
    loop: str

    def __str__(self) -> str:
        return f"iterations({self.loop})"


@dataclass(frozen=True, eq=False)
class Shares(Extent):
    """The number of programs that share the places along an axis.

    Attributes:
        places: the number of places.
        minimum: the fewest places of a program, where the device has enough programs without more.
    """

    places: Extent
    minimum: int

    def __str__(self) -> str:
        return f"shares({self.places})"


#: The extents of a grid.
Grid = tuple[Extent, Extent, Extent]

#: The grid of the kernel that the adjoint is derived from.
FORWARD_GRID: Grid = (ForwardAxis(0), ForwardAxis(1), ForwardAxis(2))


@dataclass
class LaunchFacts:
    """A launch, as far as plans depend on it.

    Attributes:
        grid: the kernel's grid.
        arguments: the numbers among the kernel's arguments, by name.
        parallel: the number of programs that the device runs well at once.
        counts: what was counted for the launch, by what counts it.
    """

    grid: tuple[int, int, int]
    arguments: Mapping[str, int | float]
    parallel: int
    counts: dict[Any, int | None] = field(default_factory=dict)
    _known: dict[Extent, int] = field(default_factory=dict)
    _boxes: dict[int, tuple[int, ...] | None] = field(default_factory=dict)

    def value(self, extent: Extent) -> int:
        """Return an extent's value."""
        known = self._known.get(extent)
        if known is None:
            known = self._known[extent] = self._evaluated(extent)
        return known

    def sizes(self, grid: Grid) -> tuple[int, int, int]:
        """Return the values of a grid's extents."""
        x, y, z = map(self.value, grid)
        return x, y, z

    def box(self, found: Delinearized) -> tuple[int, ...] | None:
        """Return the extents of coordinates; None where they are no bijection onto a box."""
        key = id(found)
        if key not in self._boxes:
            programs = self.grid[0] if self.grid[1:] == (1, 1) else 0
            self._boxes[key] = coordinate_box(found, programs, self.arguments)
        return self._boxes[key]

    def numbers(self, grid: Grid, more: Mapping[str, Extent]) -> dict[str, int]:
        """Return the integers that conditions of a kernel on a grid may name."""
        found = {name: value for name, value in self.arguments.items() if isinstance(value, int)}
        found.update((name, self.value(extent)) for name, extent in more.items())
        found.update((f"num_programs({axis})", size) for axis, size in enumerate(self.sizes(grid)))
        return found

    def _evaluated(self, extent: Extent) -> int:
        match extent:
            case FixedExtent():
                return extent.value
            case ForwardAxis():
                return self.grid[extent.axis]
            case CoordinateAxis():
                box = self.box(extent.found)
                assert box is not None
                return box[extent.axis] if extent.axis < len(box) else 1
            case Shares():
                return _shares(self.value(extent.places), extent.minimum, self.parallel)
            case Iterations():
                return self._iterations(extent)
        raise AssertionError(extent)

    def _iterations(self, extent: Iterations) -> int:
        sizes = self.sizes(extent.grid)
        if 0 in sizes:
            return 0
        more = {name: self.value(number) for name, number in extent.numbers.items()}
        counts = evaluate_slice(extent.counts, 1, sizes, {**self.arguments, **more})
        return int(counts.max())


def _shares(places: int, minimum: int, parallel: int) -> int:
    """Return the number of programs that share places: as many as run at once, or fewer."""
    return max(1, min(places, parallel, max(-(-places // minimum), parallel // 4)))
