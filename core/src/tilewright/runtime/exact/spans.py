"""The memory of an array as one line of payloads, from its first element to its last."""

from __future__ import annotations

from typing import Any, Protocol

from tilewright.errors import LaunchError
from tilewright.ir.types import FloatType
from tilewright.plugins.manifest import Memory
from tilewright.runtime.arguments.array_protocols import (
    ArrayView,
    address_of,
    array_kind,
    is_numpy_array,
    launch_value,
)
from tilewright.runtime.exact.payloads import is_tensor

#: Alignment of copies in a device's memory, in bytes.
_ALIGNMENT = 256


class Span(Protocol):
    """The memory of an array, gaps between its elements included.

    Attributes:
        start, end: its addresses.
    """

    start: int
    end: int

    def read(self) -> Any:
        """The payloads as a line of integers, of NumPy or of PyTorch."""
        ...

    def place(self, stored: Any) -> Any:
        """Return a handle of a copy: a line of other integers, where the kernel reaches it."""
        ...

    def shaped(self, handle: Any) -> Any:
        """A copy in the array's shape and strides, as a kernel's argument."""
        ...

    def fetch(self, handle: Any) -> Any:
        """The line that a copy holds after the launch."""
        ...

    def write(self, payloads: Any) -> None:
        """Replace the array's payloads by those of a line."""
        ...


def span_of(array: Any, type_: FloatType, memory: Memory | None) -> Span:
    """Return the memory of an array of floats.

    Args:
        memory: the memory of the launch's device, for arrays of other libraries than NumPy and
            PyTorch; None where the backend has none.

    Raises:
        LaunchError: the array has negative strides; or it is another library's, and there is no
            memory.
    """
    in_library = is_numpy_array(array) or is_tensor(array)
    known = array if in_library else launch_value(array)
    if is_numpy_array(known):
        strides = tuple(stride // known.itemsize for stride in known.strides)
    else:
        strides = tuple(known.stride())
    if any(stride < 0 for stride in strides):
        raise LaunchError(
            "exact mode copies the arrays that are updated atomically, and this one has negative "
            "strides. Pass a contiguous copy"
        )
    if in_library:
        return _LibrarySpan(array, type_, strides)
    if memory is None:
        raise LaunchError(
            "exact mode copies the arrays that are updated atomically, and the backend does not "
            f"copy arrays of type {type(array).__name__}. Pass an array of NumPy or PyTorch"
        )
    return _DeviceSpan(known, type_, strides, memory)


def _extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of elements from the first to the last."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


class _LibrarySpan:
    """The memory of an array of NumPy or PyTorch, whose copies are lines of that library."""

    def __init__(self, array: Any, type_: FloatType, strides: tuple[int, ...]) -> None:
        self._array, self._strides = array, strides
        count = _extent(tuple(array.shape), strides)
        self.start = address_of(array)
        self.end = self.start + count * type_.bits // 8
        #: the payloads, as integers that share the array's memory
        self._flat: Any
        if is_tensor(array):
            import torch

            line = torch.as_strided(array, (count,), (1,), array.storage_offset())
            self._flat = line.view(getattr(torch, f"int{type_.bits}"))
        else:
            from numpy.lib.stride_tricks import as_strided

            line = as_strided(array, (count,), (array.itemsize,))
            self._flat = line.view(f"uint{type_.bits}")

    def read(self) -> Any:
        return self._flat

    def place(self, stored: Any) -> Any:
        return stored

    def shaped(self, handle: Any) -> Any:
        if is_tensor(handle):
            import torch

            return torch.as_strided(handle, tuple(self._array.shape), self._strides)
        from numpy.lib.stride_tricks import as_strided

        strides = tuple(stride * handle.itemsize for stride in self._strides)
        return as_strided(handle, self._array.shape, strides)

    def fetch(self, handle: Any) -> Any:
        return handle

    def write(self, payloads: Any) -> None:
        if is_tensor(payloads):
            self._flat.copy_(payloads.to(self._flat.dtype))
        else:
            self._flat[...] = payloads.astype(self._flat.dtype)


class _Bytes:
    """Memory at an address, as a device's memory copies from it and to it."""

    def __init__(self, address: int, nbytes: int) -> None:
        self._address, self.nbytes = address, nbytes

    def data_ptr(self) -> int:
        return self._address


class _DeviceSpan:
    """The memory of another library's array, copied to the host and back by the backend."""

    def __init__(
        self, array: Any, type_: FloatType, strides: tuple[int, ...], memory: Memory
    ) -> None:
        self._array, self._strides, self._memory = array, strides, memory
        self._count = _extent(tuple(array.shape), strides)
        self._dtype = f"uint{type_.bits}"
        self.start = address_of(array)
        self.end = self.start + self._count * type_.bits // 8

    def _here(self) -> _Bytes:
        return _Bytes(self.start, self.end - self.start)

    def read(self) -> Any:
        import numpy as np

        found = np.empty(self._count, self._dtype)
        self._memory.synchronize()
        self._memory.copy_to_host(self._here(), memoryview(found.view(np.uint8).data))
        return found

    def place(self, stored: Any) -> Any:
        import numpy as np

        buffer = self._memory.allocate(stored.nbytes, _ALIGNMENT)
        self._memory.copy_to_device(buffer, memoryview(stored.view(np.uint8).data))
        return buffer, stored.dtype

    def shaped(self, handle: Any) -> Any:
        buffer, dtype = handle
        device = array_kind(self._array).device
        assert device is not None
        return ArrayView(
            buffer,
            int(buffer.data_ptr()),
            f"i{8 * dtype.itemsize}",
            tuple(self._array.shape),
            self._strides,
            device,
        )

    def fetch(self, handle: Any) -> Any:
        import numpy as np

        buffer, dtype = handle
        found = np.empty(self._count, dtype)
        self._memory.synchronize()
        self._memory.copy_to_host(buffer, memoryview(found.view(np.uint8).data))
        return found

    def write(self, payloads: Any) -> None:
        import numpy as np

        converted = payloads.astype(self._dtype)
        self._memory.copy_to_device(self._here(), memoryview(converted.view(np.uint8).data))
