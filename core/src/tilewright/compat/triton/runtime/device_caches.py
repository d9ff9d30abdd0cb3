"""``kernel.device_caches``: the compiled kernels of each device."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol, cast

from tilewright.compat.triton.backends.torch_devices import current_device, torch_kind
from tilewright.errors import BackendError
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import Backend, registry
from tilewright.runtime.devices import device_registry
from tilewright.runtime.launch.device_caches import DeviceCaches


class LaunchedKernel(Protocol):
    """Protocol of a kernel: see :class:`tilewright.compat.triton.runtime.jit.JITFunction`."""

    def device_entry(self, backend: Backend, target: Target) -> tuple[Any, ...]:
        """Return the entry of a device that the kernel has not been launched on."""
        ...


class TritonDeviceCaches(DeviceCaches):
    """Caches of a kernel by device, in the form that programs for Triton read.

    Maps ``"backend:index"`` to (kernels by key, keys, target, compiler, binder); target and
    compiler are objects like Triton's. Programs may also index it by what they have at hand: an
    integer names that device of the active driver, else of any backend; ``"cpu"`` or ``"cuda"``
    names the first device of that kind; a ``torch.device`` names both. The entry of a device
    without launches is made when a program asks for it. A device that is absent has no entry.
    """

    def __missing__(self, key: Any) -> Any:
        kind, index = _kind_and_index(key)
        found = [
            (name, entry)
            for name, entry in self.items()
            if (index is None or name.endswith(f":{index}"))
            and (kind is None or _is_called(entry[2].backend, kind))
        ]
        if len(found) > 1:
            active = _active_backend()
            found.sort(key=lambda item: item[0].partition(":")[0] != active)
        return found[0][1] if found else self._make(kind, index)

    def _make(self, kind: str | None, index: int | None) -> Any:
        """Make the entry of a device that was not launched on yet."""
        kernel = cast("LaunchedKernel | None", self._kernel())
        if kernel is None:
            return {}, {}, None, None, None
        active = _active_backend()
        for backend in sorted(registry().backends(), key=lambda backend: backend.name != active):
            own = backend.manifest.device_kinds[0]
            if not (backend.name == active if kind is None else _is_called(own, kind)):
                continue
            with contextlib.suppress(BackendError):
                device = device_registry.find(
                    backend, (own, current_device(own) if index is None else index)
                )
                place = f"{backend.name}:{device.index}"
                self[place] = kernel.device_entry(
                    backend, device_registry.target_of(backend, device)
                )
                return self[place]
        return {}, {}, None, None, None


def _is_called(kind: str, name: str) -> bool:
    """Return whether a kind of devices has this name, here or in PyTorch."""
    return name in (kind, torch_kind(kind))


def _kind_and_index(key: Any) -> tuple[str | None, int | None]:
    if isinstance(key, int):
        return None, key
    if isinstance(key, str):
        kind, _, index = key.partition(":")
        return kind, int(index) if index.isdigit() else None
    return getattr(key, "type", None), getattr(key, "index", None)


def _active_backend() -> str:
    from tilewright.compat.triton.runtime.driver import driver

    return getattr(driver.active, "backend_name", "")
