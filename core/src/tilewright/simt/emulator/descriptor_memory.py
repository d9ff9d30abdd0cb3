"""Memory of the descriptors that a kernel makes in the emulator, and copies that read them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.errors import KernelError
from tilewright.simt.emulator.blocks import BlockSite


@dataclass(slots=True)
class _Made:
    """Tensor map made by the kernel.

    Attributes:
        memory: the number of the memory that it is in.
        shown: whether copies may read it.
        readers: copies in flight that have not read it yet.
    """

    memory: int
    shown: bool = False
    readers: int = 0


class DescriptorMemory:
    """Memory of a program's descriptors. Calls of the engine have its codes' arguments.

    Attributes:
        memory: numbers of the memory that the program has.
    """

    def __init__(self) -> None:
        self.memory: set[int] = set()
        #: descriptors by their addresses
        self._made: dict[int, _Made] = {}

    def clear(self) -> None:
        """Forget all, as another program begins."""
        self.memory.clear()
        self._made.clear()

    def reading(self, site: BlockSite, descriptor: int) -> Callable[[], None]:
        """Count a copy in flight that reads a descriptor; call the result when it has."""
        if not site.made:
            return lambda: None
        made = self._made.get(descriptor)
        if made is None or not made.shown:
            raise KernelError(
                "a copy of a block reads a descriptor that was not "
                + ("made by the thread that starts it" if made is None else "shown to it")
            )
        made.readers += 1

        def over() -> None:
            made.readers -= 1

        return over

    def take_memory(self, thread: int, arguments: list[int]) -> None:
        self.memory.add(arguments[0])

    def make(self, thread: int, arguments: list[int]) -> None:
        memory, shared, address, count = arguments
        if memory not in self.memory:
            raise KernelError("a descriptor is made in memory that the program does not have")
        self._check_unread(address, "made anew")
        ctypes.memmove(address, shared, 8 * count)
        self._made[address] = _Made(memory)

    def show(self, thread: int, arguments: list[int]) -> None:
        self._made[arguments[0]].shown = True

    def free_memory(self, thread: int, arguments: list[int]) -> None:
        for address in [
            address for address, made in self._made.items() if made.memory == arguments[0]
        ]:
            self._check_unread(address, "given back")
            del self._made[address]
        self.memory.remove(arguments[0])

    def _check_unread(self, address: int, what: str) -> None:
        readers = self._made[address].readers if address in self._made else 0
        if readers:
            raise KernelError(
                f"a descriptor is {what} while {readers} copies that read it are in flight"
            )
