"""The host's memory as a backend's memory interface, for devices that share it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tilewright.errors import BackendError


class HostBuffer:
    """Aligned uninitialized host memory, freed when the object is collected."""

    __slots__ = ("_offset", "_storage", "nbytes")

    def __init__(self, size: int, alignment: int) -> None:
        if size < 0 or alignment < 1 or alignment & (alignment - 1):
            raise BackendError(
                "memory is a size of at least 0 and an alignment that is a power of two, not "
                f"{size} and {alignment}"
            )
        self._storage = np.empty(size + alignment - 1, np.uint8)
        self._offset = -self._storage.ctypes.data % alignment
        self.nbytes = size

    def data_ptr(self) -> int:
        return self._storage.ctypes.data + self._offset


class HostMemory:
    """The host's memory, as the hook ``tilewright_memory`` returns it.

    Copies take objects with ``data_ptr()`` and ``nbytes``.
    """

    def allocate(self, size: int, alignment: int) -> HostBuffer:
        return HostBuffer(size, alignment)

    def copy_to_device(self, buffer: Any, data: memoryview) -> None:
        source = np.frombuffer(data, np.uint8)
        _bytes_of(buffer, source.size)[:] = source

    def copy_to_host(self, buffer: Any, data: memoryview) -> None:
        destination = np.frombuffer(data, np.uint8)
        if not destination.flags.writeable:
            raise BackendError("the memory to copy to is read-only")
        destination[:] = _bytes_of(buffer, destination.size)

    def synchronize(self) -> None:
        """Do nothing: launches are synchronous."""


def _bytes_of(buffer: Any, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """View the first bytes of a buffer as an array."""
    if size > buffer.nbytes:
        raise BackendError(f"the memory has {buffer.nbytes} bytes, and {size} were to be copied")
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(buffer.data_ptr()))


__all__ = ["HostBuffer", "HostMemory"]
