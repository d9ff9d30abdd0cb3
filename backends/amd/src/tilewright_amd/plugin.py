"""The amd backend's hooks. Each imports what it needs when it is called, so that looking at the manifest stays cheap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import Module
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import CodeObject, Device, Manifest, Target

if TYPE_CHECKING:
    from tilewright_amd.target import GcnTarget


@hookimpl
def tilewright_backend() -> Manifest:
    from tilewright_amd.manifest import manifest

    return manifest()


@hookimpl
def tilewright_devices() -> Sequence[Device]:
    return ()


@hookimpl
def tilewright_target(device: Device) -> Target:
    from tilewright_amd.architectures import architecture, target_of

    return target_of(architecture(device.name))


@hookimpl
def tilewright_lower(module: Module, target: Target, options: Mapping[str, Any]) -> CodeObject:
    from tilewright_amd.lower import lower

    return lower(module, target, options)


@hookimpl
def tilewright_simt_target(target: Target, options: Mapping[str, Any]) -> GcnTarget:
    from tilewright_amd.target import GcnTarget

    return GcnTarget(target, options)


@hookimpl
def tilewright_resources(code: CodeObject, target: Target) -> Mapping[str, Any]:
    from tilewright_amd.resources import resources

    return resources(code, target)
