"""Choice of the installed backend that compiles for a target."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compat.triton.backends import backends
from tilewright.compat.triton.backends.compiler import BaseBackend
from tilewright.compat.triton.backends.targets import GPUTarget, arch_name
from tilewright.errors import BackendError
from tilewright.plugins.registry import Backend, registry


def chosen_among(candidates: Sequence[Backend], target: GPUTarget) -> Backend | None:
    """Return the backend that compiles for a target, of those that serve its kind.

    They come in their default order. One with code for the architecture comes before one without,
    and then the active driver's before others; None where there are none.
    """
    from tilewright.compat.triton.runtime.driver import driver

    try:
        active = getattr(driver.active, "backend_name", "")
    except RuntimeError:  # nothing has a device
        active = ""
    return min(
        candidates,
        key=lambda backend: (arch_name(backend, target) is None, backend.name != active),
        default=None,
    )


def backend_of(target: GPUTarget) -> Backend:
    """The backend that compiles for a target.

    Raises:
        BackendError: none that is installed does.
    """
    found = chosen_among(registry().for_device_kind(target.backend), target)
    if found is None:
        kinds = sorted(
            {kind for backend in registry().backends() for kind in backend.manifest.device_kinds}
        )
        raise BackendError(
            f"no installed backend compiles for devices of kind {target.backend!r}; there are "
            f"{', '.join(kinds)}"
        )
    return found


def make_backend(target: GPUTarget) -> BaseBackend:
    """Return the compiler for a target: the active driver's if that serves the kind of device.

    Otherwise it is the one that serves it by default.

    Raises:
        RuntimeError: no installed backend compiles for it.
    """
    serving = [
        backend
        for backend in registry().for_device_kind(target.backend)
        if backend.name in backends
    ]
    chosen = chosen_among(serving, target)
    if chosen is None:
        raise RuntimeError(
            f"0 compatible backends for target ({target.backend}) ([]). There should only be one. "
            f"Installed: {', '.join(backends) or 'none'}"
        )
    return backends[chosen.name].compiler(target)
