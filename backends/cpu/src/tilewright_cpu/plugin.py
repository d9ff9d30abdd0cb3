"""The CPU backend's hooks.

Each imports what it needs when it is called, so that looking at the manifest stays cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import Module
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import (
    CodeObject,
    CProgram,
    Device,
    Launcher,
    Manifest,
    Parameter,
    Target,
)

if TYPE_CHECKING:
    from tilewright.runtime.devices.host_memory import HostMemory
    from tilewright_cpu.runtime import HostTimer, LoadedKernel


@hookimpl
def tilewright_backend() -> Manifest:
    from tilewright_cpu.manifest import manifest

    return manifest()


@hookimpl
def tilewright_devices() -> Sequence[Device]:
    from tilewright_cpu.target import devices

    return devices()


@hookimpl
def tilewright_target(device: Device) -> Target:
    from tilewright_cpu.target import target_of

    return target_of(device)


@hookimpl
def tilewright_export(
    name: str, code: CodeObject, parameters: Sequence[Parameter], target: Target
) -> CProgram:
    from tilewright_cpu.export import export

    return export(name, code, parameters, target)


@hookimpl
def tilewright_lower(module: Module, target: Target, options: Mapping[str, Any]) -> CodeObject:
    from tilewright_cpu.lower import lower

    return lower(module, target, options)


@hookimpl
def tilewright_listing(code: CodeObject, target: Target) -> str:
    from tilewright_cpu.lower import listing

    return listing(code, target)


@hookimpl
def tilewright_resources(code: CodeObject, target: Target) -> Mapping[str, Any]:
    from tilewright_cpu.resources import resources

    return resources(code, target)


@hookimpl
def tilewright_load(code: CodeObject, device: Device) -> LoadedKernel:
    from tilewright_cpu.runtime import load

    return load(code)


@hookimpl
def tilewright_launcher(
    loaded: LoadedKernel, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher:
    from tilewright_cpu.launch import make_launcher

    return make_launcher(loaded, parameters, options)


@hookimpl
def tilewright_memory(device: Device) -> HostMemory:
    from tilewright.runtime.devices.host_memory import HostMemory

    return HostMemory()


@hookimpl
def tilewright_timer(device: Device) -> HostTimer:
    from tilewright_cpu.runtime import HostTimer

    return HostTimer()


@hookimpl
def tilewright_tuning_space(module: Module, target: Target) -> Sequence[Mapping[str, Any]]:
    from tilewright_cpu.tuning import tuning_space

    return tuning_space(module, target)


@hookimpl
def tilewright_prune(
    configurations: Sequence[Mapping[str, Any]], target: Target, arguments: Mapping[str, Any]
) -> Sequence[Mapping[str, Any]]:
    from tilewright_cpu.tuning import prune

    return prune(configurations, target, arguments)


@hookimpl
def tilewright_cost(
    configuration: Mapping[str, Any], target: Target, arguments: Mapping[str, Any]
) -> float:
    from tilewright_cpu.tuning import cost

    return cost(configuration, target, arguments)
