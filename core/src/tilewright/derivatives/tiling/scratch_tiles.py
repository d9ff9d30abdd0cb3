"""Tiles of programs in scratch memory, one program's after the other's."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.derivatives.tile_memory import elements_of
from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
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


def program_number(b: Builder) -> Value:
    """Append the number of the program in its grid, axis 0 first, as an i64."""
    x, y, z = (b.cast(b.program_id(axis=axis), result=I64) for axis in range(3))
    nx, ny = (b.cast(b.num_programs(axis=axis), result=I64) for axis in range(2))
    number: Value = b.add(x, b.mul(nx, b.add(y, b.mul(ny, z))))
    return number


__all__ = ["ScratchTile", "program_number"]
