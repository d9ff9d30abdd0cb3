"""The hooks.

What needs LLVM is imported where it is called, so that looking at the manifest stays cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import Module
from tilewright.passes.expand_math import expand_math
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import (
    CodeObject,
    Device,
    Launcher,
    Manifest,
    Parameter,
    Pass,
    Target,
)
from tilewright.runtime.devices.host_memory import HostMemory

if TYPE_CHECKING:
    from tilewright_lyra.target import LyraTarget


@hookimpl
def tilewright_backend() -> Manifest:
    from tilewright_lyra.manifest import MANIFEST

    return MANIFEST


@hookimpl
def tilewright_devices() -> Sequence[Device]:
    from tilewright_lyra.manifest import DEVICE

    return [DEVICE]


@hookimpl
def tilewright_target() -> Target:
    from tilewright_lyra.manifest import TARGET

    return TARGET


@hookimpl
def tilewright_passes(passes: Sequence[Pass]) -> Sequence[Pass]:
    return (*passes, expand_math)


@hookimpl
def tilewright_lower(module: Module, options: Mapping[str, Any]) -> CodeObject:
    from tilewright_lyra.lower import lower

    return lower(module, options)


@hookimpl
def tilewright_simt_target() -> LyraTarget:
    from tilewright_lyra.target import LyraTarget

    return LyraTarget()


@hookimpl
def tilewright_resources(code: CodeObject) -> Mapping[str, Any]:
    return {"warps": code.metadata["num_warps"], "shared memory": code.metadata["shared"]}


@hookimpl
def tilewright_load(code: CodeObject) -> CodeObject:
    return code


@hookimpl
def tilewright_launcher(loaded: CodeObject, parameters: Sequence[Parameter]) -> Launcher:
    from tilewright_lyra.runtime import launcher

    return launcher(loaded, parameters)


@hookimpl
def tilewright_memory() -> HostMemory:
    return HostMemory()
