"""Tiles of programs in scratch memory, one program's after the other's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tilewright.derivatives.tile_memory import elements_of
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Value
from tilewright.ir.ops.arithmetic import ProgramId
from tilewright.ir.types import I64, Type


@dataclass(frozen=True, slots=True)
class ScratchTile:
    """A parameter for scratch memory.

    Attributes:
        name: the parameter's name, a pointer.
        type: the tile, or scalar, that each program of the grid has there.
    """

    name: str
    type: Type

    @property
    def elements(self) -> int:
        """The number of elements that a program has there."""
        return elements_of(self.type)


def program_number(b: Builder, axes: Collection[int] = (0, 1, 2)) -> Value:
    """Append the number of the program in its grid, axis 0 first, as an i64.

    Args:
        axes: those that count: programs that differ along others have one number.
    """
    found: Value | None = None
    for axis in sorted(axes, reverse=True):
        place = b.cast(b.program_id(axis=axis), result=I64)
        if found is not None:
            place = b.add(place, b.mul(b.cast(b.num_programs(axis=axis), result=I64), found))
        found = place
    return b.constant_like(I64, 0) if found is None else found


def axes_read(module: Module) -> list[int]:
    """Return the axes of the grid along which a kernel reads its place."""
    places = (operation for operation in module.walk() if isinstance(operation, ProgramId))
    return sorted({operation.axis for operation in places})


__all__ = ["ScratchTile", "axes_read", "program_number"]
