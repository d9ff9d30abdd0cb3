"""Access to the program's shared memory."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tilewright.llvm.emission.writer import FunctionWriter


class SharedMemory(ABC):
    """The shared memory of a program.

    Attributes:
        pointer: LLVM type of an address in shared memory. Pointers to global memory are ``ptr``.
    """

    pointer: str = "ptr"

    @abstractmethod
    def base(self, w: FunctionWriter) -> str:
        """Emit the address of the program's shared memory, aligned to at least 128 bytes."""

    def metadata(self, w: FunctionWriter) -> str:
        """Return the LLVM metadata of each load and store of shared memory, after a comma."""
        return ""

    def touch(self, w: FunctionWriter, address: str, *, writes: bool) -> None:  # noqa: B027
        """Instrument an access, on targets that check accesses of shared memory."""

    @abstractmethod
    def atomic_add(
        self, w: FunctionWriter, pointer: str, value: str, predicate: str | None
    ) -> None:
        """Add an i32 atomically."""
