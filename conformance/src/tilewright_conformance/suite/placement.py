"""Placement of a launch's arrays in the backend's own memory, between guard zones.

The memory is that of the hook ``tilewright_memory``; no kernel may write to the guard zones. The
caller's arrays are NumPy's. The memory behind an array is placed once and whole, however many views
of it are passed, so that views that overlap on the host overlap on the device, with the same
offsets and strides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from tilewright.plugins.manifest import Device, Memory
from tilewright.reference.interpreter import DescriptorValue
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.dtypes import IR_TEXT, dtype_text
from tilewright.runtime.arguments.mock_tensors import TensorWrapper

Array = np.ndarray[Any, Any]

#: Bytes on either side of an array that hold :data:`_PATTERN` before and after each launch.
GUARD = 256
_PATTERN = 0xA5
#: text of the Tile IR type -> signature text
_SIGNATURE_TEXT = {ir: text for text, ir in IR_TEXT.items() if text != "i1"}


class OutOfBoundsWriteError(AssertionError):
    """A kernel wrote to memory just before or after an array, or to an array that is read-only."""


class Addresses:
    """An argument that is a table of 64-bit pointers to arrays, wherever these lie."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = tuple(arrays)


@dataclasses.dataclass(eq=False)
class _Block:
    """The memory behind some arrays, and its place on the device.

    ``buffer`` holds a guard, the bytes from ``low`` to ``high``, and a guard.
    """

    root: Array
    low: int
    high: int
    buffer: Any
    writable: bool = False


class Placement:
    """The arrays of one launch on a device.

    Args:
        device, memory: of the backend.
    """

    def __init__(self, device: Device, memory: Memory) -> None:
        self._device, self._memory = device, memory
        self._blocks: dict[int, _Block] = {}

    def __call__(self, value: Any, element: str = "") -> Any:
        """Return the kernel's argument for a value.

        A value that is no array stays as it is; tuples and dicts are converted recursively.

        Args:
            element: the element type as Tile IR text, where the array's own dtype does not show it:
                bits of bf16 and fp8, addresses.
        """
        if isinstance(value, np.ndarray):
            return self._view(
                value, _SIGNATURE_TEXT.get(element, "i64") if element else dtype_text(value.dtype)
            )
        if isinstance(value, TensorWrapper):
            return self._view(value.base, dtype_text(value.dtype))
        if isinstance(value, TensorDescriptor):
            return dataclasses.replace(value, base=self(value.base))
        if isinstance(value, DescriptorValue):
            return DescriptorValue(
                self(value.base, element), value.shape, value.strides, value.padding
            )
        if isinstance(value, Addresses):
            return self(np.array([self(array).data_ptr() for array in value.arrays], np.int64))
        if isinstance(value, tuple):
            placed = [self(item) for item in value]
            return type(value)(*placed) if hasattr(value, "_fields") else tuple(placed)
        if isinstance(value, Mapping):
            return {name: self(item) for name, item in value.items()}
        return value

    def fetch(self) -> None:
        """Wait for the device and copy all memory back into the caller's arrays.

        Raises:
            OutOfBoundsWriteError: the memory around an array has changed, or a read-only array.
        """
        self._memory.synchronize()
        damaged = []
        for block in self._blocks.values():
            size = block.high - block.low
            host = np.empty(size + 2 * GUARD, np.uint8)
            self._memory.copy_to_host(block.buffer, memoryview(host.data))
            if block.writable:
                _bytes(block)[:] = host[GUARD : GUARD + size]
            elif not np.array_equal(_bytes(block), host[GUARD : GUARD + size]):
                damaged.append(f"an array of {size} bytes that is read-only")
            for name, zone, start in (
                ("before", host[:GUARD], -GUARD),
                ("after the end of", host[GUARD + size :], 0),
            ):
                wrong = np.flatnonzero(zone != _PATTERN)
                if len(wrong):
                    gap = -int(wrong[-1]) - start - 1 if start else int(wrong[0])
                    damaged.append(
                        f"{len(wrong)} bytes {name} an array of {size} bytes, the nearest with "
                        f"{gap} bytes between"
                    )
        if damaged:
            raise OutOfBoundsWriteError(f"the kernel wrote where it must not: {'; '.join(damaged)}")

    def _view(self, array: Array, text: str) -> ArrayView:
        block = self._block(array)
        start = array.__array_interface__["data"][0] - block.low
        block.writable |= array.flags.writeable
        strides = tuple(stride // array.itemsize for stride in array.strides)
        place = (self._device.kind, self._device.index)
        return ArrayView(
            block.buffer,
            int(block.buffer.data_ptr()) + GUARD + start,
            text,
            array.shape,
            strides,
            place,
            not array.flags.writeable,
        )

    def _block(self, array: Array) -> _Block:
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        found = self._blocks.get(id(root))
        if found is None:
            low, high = (
                (int(end) for end in np.lib.array_utils.byte_bounds(root))
                if root.size
                else (root.__array_interface__["data"][0],) * 2
            )
            size = high - low
            found = self._blocks[id(root)] = _Block(
                root, low, high, self._memory.allocate(size + 2 * GUARD, GUARD)
            )
            host = np.full(size + 2 * GUARD, _PATTERN, np.uint8)
            host[GUARD : GUARD + size] = _bytes(found)
            self._memory.copy_to_device(found.buffer, memoryview(host.data))
        return found


def _bytes(block: _Block) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The memory of a block on the host."""
    import ctypes

    size = block.high - block.low
    return (
        np.frombuffer(cast(Any, (ctypes.c_uint8 * size).from_address(block.low)), np.uint8)
        if size
        else np.empty(0, np.uint8)
    )
