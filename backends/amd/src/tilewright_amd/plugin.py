"""The amd backend's hooks.

Each hook imports its implementation when called, so that reading the manifest stays cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.gpu_host.hooks import launching, peer_access
from tilewright.ir import Module
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import CodeObject, Device, Manifest, Target

if TYPE_CHECKING:
    from tilewright.gpu_host.driver import Driver
    from tilewright.plugins.ceilings import Ceilings
    from tilewright_amd.target import GcnTarget


@hookimpl
def tilewright_backend() -> Manifest:
    from tilewright_amd.manifest import manifest

    return manifest()


@hookimpl
def tilewright_devices() -> Sequence[Device]:
    from tilewright_amd.host.devices import devices

    return devices()


@hookimpl
def tilewright_target(device: Device) -> Target:
    from tilewright_amd.host.devices import target_of_device

    return target_of_device(device)


@hookimpl
def tilewright_lower(module: Module, target: Target, options: Mapping[str, Any]) -> CodeObject:
    from tilewright_amd.lower import lower

    return lower(module, target, options)


@hookimpl
def tilewright_simt_target(target: Target, options: Mapping[str, Any]) -> GcnTarget:
    from tilewright_amd.target import GcnTarget

    return GcnTarget(target, options)


@hookimpl
def tilewright_ceilings(target: Target, device: Device | None) -> Ceilings | None:
    from tilewright_amd.ceilings import ceilings

    return ceilings(target, device)


@hookimpl
def tilewright_resources(code: CodeObject, target: Target) -> Mapping[str, Any]:
    from tilewright_amd.toolchain.resources import resources

    return resources(code, target)


def _driver() -> Driver:
    from tilewright_amd.host.driver import driver

    return driver()


(
    tilewright_load,
    tilewright_launcher,
    tilewright_memory,
    tilewright_pointer_device,
    tilewright_timer,
) = launching(_driver)
tilewright_peer_access = peer_access(_driver)
