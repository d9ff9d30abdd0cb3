"""One range of memory, read and written at addresses through typed views."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.reference.memory.buffers import bytes_at
from tilewright.reference.numerics import Array


class MemoryRange:
    """One contiguous range of memory: the union of arguments that share some."""

    __slots__ = ("bytes", "end", "start", "typed", "writeable")

    def __init__(self, start: int, end: int, writeable: bool, owner: object) -> None:
        self.start, self.end, self.writeable = start, end, writeable
        self.bytes = bytes_at(start, end, writeable, owner)
        self.typed: dict[np.dtype[Any], NDArray[Any]] = {}

    def view(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The block as whole elements of ``dtype`` from its start."""
        found = self.typed.get(dtype)
        if found is None:
            whole = len(self.bytes) // dtype.itemsize * dtype.itemsize
            found = self.typed[dtype] = self.bytes[:whole].view(dtype)
        return found

    def load(self, addresses: Array, dtype: np.dtype[Any]) -> Array:
        offset, size = addresses - self.start, dtype.itemsize
        if size == 1:
            return self.view(dtype)[offset]
        if (offset & (size - 1)).any():
            return self.bytes[offset[..., np.newaxis] + np.arange(size)].view(dtype)[..., 0]
        return self.view(dtype)[offset >> (size.bit_length() - 1)]

    def store(self, addresses: Array, values: Array) -> None:
        offset, dtype = addresses - self.start, values.dtype
        size = dtype.itemsize
        if size == 1:
            self.view(dtype)[offset] = values
        elif (offset & (size - 1)).any():
            values = np.ascontiguousarray(np.broadcast_to(values, offset.shape))
            self.bytes[offset[..., np.newaxis] + np.arange(size)] = values.view(np.uint8).reshape(
                (*offset.shape, size)
            )
        else:
            self.view(dtype)[offset >> (size.bit_length() - 1)] = values
