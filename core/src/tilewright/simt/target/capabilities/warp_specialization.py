"""Warp specialization: partitions of a program's warps, and their registers."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.llvm.emission.writer import FunctionWriter


class WarpSpecialization:
    """Partitions of warps; by default all keep the register count that they start with.

    Attributes:
        warp_multiple: the number of warps of a partition is a multiple of this.
    """

    def __init__(self, warp_multiple: int) -> None:
        self.warp_multiple = warp_multiple

    def registers(self, warps: Mapping[str, int], programs: int = 1) -> Mapping[str, int]:
        """Return the register count of a thread in each partition, by name.

        ``programs`` is the number of programs on an SM. Partitions that are absent from the result
        keep the count they start with.
        """
        return {}

    def uniform(self, w: FunctionWriter, value: str) -> str:
        """Return an i32 that is the same in all lanes of a warp, in a form that shows it."""
        return value

    def set_registers(self, w: FunctionWriter, count: int) -> None:
        """Set the register count of a thread in the partition that begins, where supported."""
