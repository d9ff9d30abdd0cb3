"""Device of an object that has an address but names no device."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import BackendError
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import device_registry

HOST = ("cpu", 0)

#: Device assumed where no driver can be queried; None refuses such objects. The ``triton`` shim
#: sets it to that of the active driver.
fallback: Callable[[], tuple[str, int]] | None = None


def place_of(address: int) -> tuple[str, int] | None:
    """Return the (device kind, index) of the memory at ``address`` as the drivers report it.

    None where no driver can be queried. Memory that no driver owns is the host's.
    """
    asked = False
    for backend in registry().backends():
        if backend.manifest.status or not backend.implements("tilewright_pointer_device"):
            continue
        try:
            if not device_registry.devices(backend):
                continue
        except BackendError:
            continue
        index = backend.call("tilewright_pointer_device", address=address)
        if index is not None:
            return backend.manifest.device_kinds[0], int(index)
        asked = True
    if asked:
        return HOST
    return None if fallback is None else fallback()
