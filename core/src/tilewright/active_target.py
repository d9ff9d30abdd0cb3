"""The target for kernels without array arguments: the language asks, the runtime answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _of_the_runtime() -> Any:
    from tilewright.runtime.devices.backend_choice import default_target

    return default_target()


#: What answers: the runtime, or the ``triton`` shim once it is imported.
provider: Callable[[], Any] = _of_the_runtime


def current() -> Any:
    """Return the :class:`~tilewright.plugins.manifest.Target`; None if no backend has a device."""
    return provider()
