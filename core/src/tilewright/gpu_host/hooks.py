"""Launch hooks for backends with a :class:`~tilewright.gpu_host.table.DriverTable`.

    (tilewright_load, tilewright_launcher, tilewright_memory,
     tilewright_pointer_device, tilewright_timer) = launching(driver)

in a plugin's module. They import their dependencies when called, so that reading the manifest stays
cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import CodeObject, Device, Launcher, Parameter

if TYPE_CHECKING:
    from tilewright.gpu_host.driver import Driver
    from tilewright.gpu_host.kernels import LoadedKernel
    from tilewright.gpu_host.memory import DeviceMemory
    from tilewright.gpu_host.timer import DeviceTimer

Hooks = tuple[
    Callable[..., Any],
    Callable[..., Any],
    Callable[..., Any],
    Callable[..., Any],
    Callable[..., Any],
]


def launching(driver: Callable[[], Driver]) -> Hooks:
    """Return a driver's hooks for load, launcher, memory, pointer device and timer, in this order.

    Args:
        driver: returns the driver of this process; it is called at each hook call, and raises a
            BackendError where there is none.
    """

    @hookimpl
    def tilewright_load(code: CodeObject, device: Device) -> LoadedKernel:
        from tilewright.gpu_host.kernels import load

        return load(code, device, driver())

    @hookimpl
    def tilewright_launcher(
        loaded: LoadedKernel, parameters: Sequence[Parameter], options: Mapping[str, Any]
    ) -> Launcher:
        from tilewright.gpu_host.launch import make_launcher

        return make_launcher(loaded, parameters, options)

    @hookimpl
    def tilewright_memory(device: Device) -> DeviceMemory:
        from tilewright.gpu_host.memory import DeviceMemory

        return DeviceMemory(device.index, driver())

    @hookimpl
    def tilewright_pointer_device(address: int) -> int | None:
        made = driver()
        found = int(made(made.entries.pointer_device, address))
        return None if found < 0 else found

    @hookimpl
    def tilewright_timer(device: Device) -> DeviceTimer:
        from tilewright.gpu_host.timer import DeviceTimer

        return DeviceTimer(device.index, driver())

    return (
        tilewright_load,
        tilewright_launcher,
        tilewright_memory,
        tilewright_pointer_device,
        tilewright_timer,
    )


def peer_access(driver: Callable[[], Driver]) -> Callable[..., Any]:
    """Return the hook ``tilewright_peer_access`` of a driver with peer-access entries.

    tilewright_peer_access = peer_access(driver)
    """

    @hookimpl
    def tilewright_peer_access(device: Device, peer: Device) -> str:
        return driver().why_no_access(device.index, peer.index)

    return tilewright_peer_access
