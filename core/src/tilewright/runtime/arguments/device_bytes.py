"""Bytes of arrays on any device, copied by the backend where the array's library cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.runtime.arguments.array_protocols import (
    ALIGNMENT,
    ArrayView,
    address_of,
    array_kind,
)

if TYPE_CHECKING:
    from tilewright.plugins.manifest import Memory


def view_of(array: Any) -> ArrayView | None:
    """Return a view of an array's memory with its size; None if its size or address is unknown."""
    if isinstance(array, ArrayView):
        return array
    if not (hasattr(array, "nbytes") and callable(getattr(array, "element_size", None))):
        return None
    kind = array_kind(array)
    if kind.device is None:
        return None
    return ArrayView(
        array,
        address_of(array),
        kind.dtype,
        (int(array.nbytes) // array.element_size(),),
        (1,),
        kind.device,
    )


def memory_of(place: tuple[str, int]) -> Memory | None:
    """Return the memory interface of a device; None if no installed backend copies from it."""
    from tilewright.plugins.registry import registry
    from tilewright.runtime.devices import device_registry

    for backend in registry().for_device_kind(place[0]):
        memory: Memory | None = backend.call(
            "tilewright_memory", device=device_registry.find(backend, place)
        )
        if memory is not None:
            return memory
    return None


class SavedBytes:
    """Host copy of an array's bytes."""

    def __init__(self, view: ArrayView, memory: Memory) -> None:
        """Copy the bytes once all work of the device is done."""
        import numpy as np

        self._view, self._memory = view, memory
        self.host: Any = np.empty(view.nbytes, np.uint8)
        memory.synchronize()
        memory.copy_to_host(view, self.host.data)

    def write(self) -> None:
        """Restore the array's bytes."""
        self._memory.copy_to_device(self._view, self.host.data)

    def new_array(self) -> ArrayView:
        """Return an array of the same shape and strides, in new memory of the device."""
        view, buffer = self._view, _allocated(self._memory, self.host)
        return ArrayView(
            buffer, buffer.data_ptr(), view.dtype, view.shape, view.strides, view.device
        )

    def zeroed(self) -> SavedBytes:
        """Set the elements of the copy to 0, but not what lies between them."""
        import numpy as np

        size, view = self._view.element_size(), self._view
        strides = (*(stride * size for stride in view.strides), 1)
        if self.host.size:
            elements = np.lib.stride_tricks.as_strided(self.host, (*view.shape, size), strides)
            elements[...] = 0
        return self


def zeroed_beside(array: Any, size: int) -> ArrayView | None:
    """Return zeroed bytes on the device of an array; None if no installed backend has its memory.

    For arrays of libraries that cannot allocate memory themselves.
    """
    import numpy as np

    view = view_of(array)
    memory = None if view is None else memory_of(view.device)
    if view is None or memory is None:
        return None
    buffer = _allocated(memory, np.zeros(size, np.uint8))
    return ArrayView(buffer, buffer.data_ptr(), "u8", (size,), (1,), view.device)


def _allocated(memory: Memory, host: Any) -> Any:
    """Return a new buffer of a device with the bytes of a host array."""
    buffer = memory.allocate(host.size, ALIGNMENT)
    memory.copy_to_device(buffer, host.data)
    return buffer
