"""Memory of a device, as the runtime's :class:`~tilewright.plugins.manifest.Memory`."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from tilewright.errors import BackendError
from tilewright.gpu_host.allocators import release_unused
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.errors import DriverError, translated
from tilewright.gpu_host.table import DriverTable, Entry


class DeviceBuffer:
    """Uninitialized memory of a device, freed when the object is collected.

    Objects made by :func:`allocate` also have the table's array protocol.
    """

    def __init__(self, driver: Driver, device: int, size: int, alignment: int = 1) -> None:
        self._driver, self._index, self.nbytes, self._pointer = driver, device, size, 0
        self._alignment = alignment
        if size:
            table = driver.table
            with driver.beside_captures(device), translated(table.statuses):
                self._pointer = _allocated(driver, size + max(0, alignment - table.alignment))

    dtype = np.dtype(np.uint8)

    @property
    def device(self) -> tuple[str, int]:
        return self._driver.table.kind, self._index

    def data_ptr(self) -> int:
        return -(-self._pointer // self._alignment) * self._alignment

    def _array_interface(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.data_ptr(), False),
            "strides": None,
        }

    def __del__(self) -> None:
        if getattr(self, "_pointer", 0) and not sys.is_finalizing():
            try:
                with self._driver.beside_captures(self._index):
                    self._driver(self._driver.entries.memory_free, self._pointer)
            except Exception:
                pass


def _allocated(driver: Driver, size: int) -> int:
    """Allocate memory from the driver, freeing other libraries' caches if it is exhausted."""
    allocate = driver.table.entries.memory_allocate
    try:
        return int(driver(allocate, size))
    except DriverError as error:
        if error.code != driver.table.statuses.out_of_memory or not release_unused(
            driver.table.streams
        ):
            raise
    return int(driver(allocate, size))


@functools.cache
def _buffer_type(table: DriverTable) -> type[DeviceBuffer]:
    return type(
        "DeviceBuffer",
        (DeviceBuffer,),
        {
            table.array_protocol: property(DeviceBuffer._array_interface),
            "__doc__": DeviceBuffer.__doc__,
        },
    )


def allocate(driver: Driver, device: int, size: int, alignment: int = 1) -> DeviceBuffer:
    """Allocate memory of a device.

    Args:
        size: bytes.
        alignment: the alignment of its address in bytes, a power of two.

    Raises:
        BackendError: the device has not enough.
    """
    return _buffer_type(driver.table)(driver, device, size, alignment)


class DeviceMemory:
    """The memory of one device; copies are synchronous."""

    def __init__(self, device: int, driver: Driver) -> None:
        self._device, self._driver = device, driver

    def allocate(self, size: int, alignment: int) -> DeviceBuffer:
        """Allocate a number of bytes at an alignment that is a power of two.

        Raises:
            BackendError: they are no size and no alignment, or the device has not enough.
        """
        if size < 0 or alignment < 1 or alignment & (alignment - 1):
            raise BackendError(
                "memory is a size of at least 0 and an alignment that is a power of two, not "
                f"{size} and {alignment}"
            )
        return allocate(self._driver, self._device, size, alignment)

    def copy_to_device(self, buffer: Any, data: memoryview) -> None:
        host = np.frombuffer(data, np.uint8)
        self._call(
            self._driver.entries.memory_to_device,
            int(buffer.data_ptr()),
            host.ctypes.data,
            host.size,
        )

    def copy_to_host(self, buffer: Any, data: memoryview) -> None:
        if memoryview(data).readonly:
            raise BackendError("the memory to copy to is read-only")
        host = np.frombuffer(data, np.uint8)
        self._call(
            self._driver.entries.memory_to_host, host.ctypes.data, int(buffer.data_ptr()), host.size
        )

    def _call(self, entry: Entry, to: int, source: int, size: int) -> None:
        if size:
            with self._driver.use(self._device), translated(self._driver.table.statuses):
                self._driver(entry, to, source, size)

    def synchronize(self) -> None:
        """Wait for all work of the device.

        Raises:
            KernelError: a kernel failed.
        """
        with self._driver.use(self._device), translated(self._driver.table.statuses):
            self._driver(self._driver.entries.synchronize)


__all__ = ["DeviceBuffer", "DeviceMemory", "allocate"]
