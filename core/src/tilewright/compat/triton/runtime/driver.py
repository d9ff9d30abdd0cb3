"""``triton.runtime.driver``: the devices that kernels run on.

``triton.runtime.driver`` is the object ``driver`` of this module.
"""

from __future__ import annotations

import tilewright.active_target as active_target
from tilewright.compat.triton.backends import DriverBase, backends
from tilewright.compat.triton.backends.driver import (
    TilewrightDriver,
    active_backend_name,
    backend_called,
)
from tilewright.compat.triton.runtime.placed import forget_placed
from tilewright.errors import BackendError
from tilewright.plugins.manifest import Target
from tilewright.runtime.arguments import pointer_device


def _create_driver(name: str | None = None) -> DriverBase:
    """The driver of a backend; of the one that is used by default for None.

    Raises:
        RuntimeError: there is none.
    """
    name = active_backend_name() if name is None else name
    if name is None or name not in backends:
        reason = "none has a device" if name is None else f"the environment asks for {name!r}"
        raise RuntimeError(
            "0 active drivers ([]). There should only be one. Installed backends: "
            f"{', '.join(backends) or 'none'}; {reason}. "
            "Install one with: pip install 'tilewright[cpu]'"
        )
    return backends[name].driver()


class DriverConfig:
    """The driver that is active.

    Kernels run where their tensors lie; the active driver is the place of kernels without tensors,
    and answers questions about the hardware.
    """

    def __init__(self) -> None:
        self._default: DriverBase | None = None
        self._active: DriverBase | None = None

    @property
    def default(self) -> DriverBase:
        """The driver that the environment names, else the first that has a device.

        Raises:
            RuntimeError: there is none.
        """
        if self._default is None:
            self._default = _create_driver()
        return self._default

    @property
    def active(self) -> DriverBase:
        if self._active is None:
            self._active = self.default
        return self._active

    def set_active(self, driver: DriverBase) -> None:
        """Make a driver the active one."""
        changed = self._active is None or type(driver) is not type(self._active)
        self._active = driver
        if changed:
            forget_placed()

    def reset_active(self) -> None:
        self.set_active(self.default)

    def set_active_to_cpu(self) -> None:
        """Make the CPU the active device.

        Raises:
            RuntimeError: no CPU backend is installed.
        """
        self.set_active(_create_driver(backend_called("cpu")))

    def set_active_to_gpu(self) -> None:
        """Make the first GPU the active device.

        Raises:
            RuntimeError: no installed backend has one.
        """
        found = self.get_active_gpus()
        if not found:
            raise RuntimeError(
                "0 active GPU drivers ([]). There should only be one. No installed backend has "
                "a GPU"
            )
        self.set_active(found[0]())

    def get_active_gpus(self) -> list[type[DriverBase]]:
        """The driver classes of all backends that have a device other than the CPU."""
        return [
            backend.driver
            for name, backend in backends.items()
            if name != "cpu"
            and issubclass(backend.driver, TilewrightDriver)
            and backend.driver.has_devices()
        ]


driver = DriverConfig()


def _active_target() -> Target | None:
    try:
        active = driver.active
        return active.target() if isinstance(active, TilewrightDriver) else None
    except (RuntimeError, BackendError):
        return None


def _active_place() -> tuple[str, int]:
    """The current device of the active driver, where Triton takes every pointer to lie."""
    active = driver.active
    assert isinstance(active, TilewrightDriver), (
        f"kernels run on backends of Tilewright, not on {type(active).__name__}"
    )
    return active.kind(), active.get_current_device()


active_target.provider = _active_target
pointer_device.fallback = _active_place

__all__ = ["DriverConfig", "driver"]
