"""Bytes of arrays on any device, copied by the backend where the array's library cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.runtime.arguments.array_protocols import ArrayView, address_of, array_kind

if TYPE_CHECKING:
    from tilewright.plugins.manifest import Memory


def view_of(array: Any) -> ArrayView | None:
    """The memory of an array, as one that tells its bytes; None where the array does not say how many it has, or where they lie."""
    if isinstance(array, ArrayView):
        return array
    if not (hasattr(array, "nbytes") and callable(getattr(array, "element_size", None))):
        return None
    kind = array_kind(array)
    if kind.device is None:
        return None
    return ArrayView(array, address_of(array), kind.dtype, (int(array.nbytes) // array.element_size(),), (1,), kind.device)


def memory_of(place: tuple[str, int]) -> Memory | None:
    """The memory of a device, by its kind and number; None where no backend that is installed copies from it."""
    from tilewright.plugins.registry import registry
    from tilewright.runtime.devices import device_registry

    for backend in registry().for_device_kind(place[0]):
        memory: Memory | None = backend.call("tilewright_memory", device=device_registry.find(backend, place))
        if memory is not None:
            return memory
    return None


class SavedBytes:
    """The bytes that an array had, on the host."""

    def __init__(self, view: ArrayView, memory: Memory) -> None:
        """Copy them, once all work of the device is done."""
        import numpy as np

        self._view, self._memory = view, memory
        self.host: Any = np.empty(view.nbytes, np.uint8)
        memory.synchronize()
        memory.copy_to_host(view, self.host.data)

    def write(self) -> None:
        """Give the array its bytes back."""
        self._memory.copy_to_device(self._view, self.host.data)
