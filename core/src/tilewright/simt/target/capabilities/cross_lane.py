"""Cross-lane operations: shuffles, reductions of a warp, and warp-uniform values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tilewright.ir.types import Type
from tilewright.llvm.emission.writer import FunctionWriter


class CrossLane(ABC):
    """Operations among the lanes of a warp."""

    @abstractmethod
    def shuffle(self, w: FunctionWriter, value: str, lane: str) -> str:
        """Emit a shuffle: the i32 ``value`` of lane ``lane`` (i32) of the warp."""

    @abstractmethod
    def shuffle_xor(self, w: FunctionWriter, value: str, mask: int) -> str:
        """Emit a butterfly shuffle of the i32 ``value``: lanes are paired by ``mask``."""

    def shuffle_all(self, w: FunctionWriter, values: Sequence[str], lane: str) -> list[str]:
        """Emit shuffles of several values from the same lane: see :meth:`shuffle`."""
        return [self.shuffle(w, value, lane) for value in values]

    def shuffle_all_xor(self, w: FunctionWriter, values: Sequence[str], mask: int) -> list[str]:
        """Emit butterfly shuffles of several values with the same mask: see :meth:`shuffle_xor`."""
        return [self.shuffle_xor(w, value, mask) for value in values]

    def reduce(self, w: FunctionWriter, kind: str, value: str, element: Type) -> str | None:
        """Reduce ``value`` over the lanes of the warp by one instruction, for every lane.

        ``kind`` is a commutative operation of the op table. Returns None if no instruction computes
        the reduction exactly.
        """
        return None

    def uniform(self, w: FunctionWriter, value: str, type_: str) -> str:
        """Mark a value as warp-uniform for the code generator; return the marked value."""
        return value
