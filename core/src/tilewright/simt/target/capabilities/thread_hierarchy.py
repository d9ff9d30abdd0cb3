"""The thread hierarchy: coordinates of threads and programs, and barriers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from tilewright.llvm.emission.writer import FunctionWriter


@dataclass(frozen=True, slots=True)
class Threads:
    """The warps that run a piece of a kernel: the whole program, or one warp-specialized partition.

    Attributes:
        number: the partition's number, from 0 on; also 0 for all warps of the program.
        first: the first warp.
        count: the number of warps.
        parts: the number of partitions of the program at this point; 1: the program is not divided.
    """

    number: int
    first: int
    count: int
    parts: int = 1


class ThreadHierarchy(ABC):
    """Coordinates of threads and programs, all i32, and barriers of threads."""

    @abstractmethod
    def lane(self, w: FunctionWriter) -> str: ...

    @abstractmethod
    def warp(self, w: FunctionWriter) -> str:
        """Emit the warp's number among all warps of the program."""

    @abstractmethod
    def program_id(self, w: FunctionWriter, axis: int) -> str: ...

    @abstractmethod
    def num_programs(self, w: FunctionWriter, axis: int) -> str: ...

    @abstractmethod
    def barrier(self, w: FunctionWriter, threads: Threads) -> None:
        """Emit a barrier of ``threads``.

        It makes their earlier writes to shared and global memory visible to all of them.
        """

    @abstractmethod
    def warp_barrier(self, w: FunctionWriter) -> None:
        """Emit a warp barrier, which orders the lanes' accesses of shared memory."""
