"""The nvidia backend's hooks.

Each hook imports its implementation when called, so that reading the manifest stays cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.gpu_host.hooks import launching, peer_access
from tilewright.ir import Module
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import CodeObject, CProgram, Device, Manifest, Parameter, Target

if TYPE_CHECKING:
    from tilewright.gpu_host.driver import Driver
    from tilewright.ir.work import Work
    from tilewright.plugins.ceilings import Ceilings
    from tilewright_nvidia.target import PtxTarget


@hookimpl
def tilewright_backend() -> Manifest:
    from tilewright_nvidia.manifest import manifest

    return manifest()


@hookimpl
def tilewright_devices() -> Sequence[Device]:
    from tilewright_nvidia.host.devices import devices

    return devices()


@hookimpl
def tilewright_target(device: Device) -> Target:
    from tilewright_nvidia.host.devices import target_of_device

    return target_of_device(device)


@hookimpl
def tilewright_export(
    name: str, code: CodeObject, parameters: Sequence[Parameter], target: Target
) -> CProgram:
    from tilewright_nvidia.host.export import export

    return export(name, code, parameters, target)


@hookimpl
def tilewright_lower(module: Module, target: Target, options: Mapping[str, Any]) -> CodeObject:
    from tilewright_nvidia.lower import lower

    return lower(module, target, options)


@hookimpl
def tilewright_link(code: CodeObject, target: Target) -> CodeObject:
    from tilewright_nvidia.lower import attach_cubin

    attach_cubin(code, target)
    return code


@hookimpl
def tilewright_assemble(code: CodeObject, target: Target) -> bytes | None:
    from tilewright_nvidia.host.ahead_of_time import assembled

    return assembled(code, target)


@hookimpl
def tilewright_simt_target(target: Target, options: Mapping[str, Any]) -> PtxTarget:
    from tilewright_nvidia.target import PtxTarget

    return PtxTarget(target, options)


@hookimpl
def tilewright_ceilings(target: Target, device: Device | None) -> Ceilings | None:
    from tilewright_nvidia.ceilings import ceilings

    return ceilings(target, device)


@hookimpl
def tilewright_resources(code: CodeObject, target: Target) -> Mapping[str, Any]:
    from tilewright_nvidia.toolchain.resources import resources

    return resources(code, target)


def _driver() -> Driver:
    from tilewright_nvidia.host.driver import driver

    return driver()


(
    tilewright_load,
    tilewright_launcher,
    tilewright_memory,
    tilewright_pointer_device,
    tilewright_timer,
) = launching(_driver)
tilewright_peer_access = peer_access(_driver)


@hookimpl
def tilewright_tuning_space(module: Module, target: Target) -> Sequence[Mapping[str, Any]]:
    from tilewright_nvidia.tuning import tuning_space

    return tuning_space(module, target)


@hookimpl
def tilewright_prune(
    configurations: Sequence[Mapping[str, Any]],
    target: Target,
    arguments: Mapping[str, Any],
    works: Sequence[Work | None],
) -> Sequence[Mapping[str, Any]]:
    from tilewright_nvidia.tuning import prune

    return prune(configurations, target, works)


@hookimpl
def tilewright_cost(
    configuration: Mapping[str, Any],
    target: Target,
    arguments: Mapping[str, Any],
    work: Work | None,
) -> float:
    from tilewright_nvidia.tuning import cost

    return cost(configuration, target, work)
