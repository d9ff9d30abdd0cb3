"""The null backend, which accepts everything and writes nothing.

Cases that it passes test nothing.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import Module
from tilewright.ir.types import FLOATS, INTEGERS
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import (
    Capabilities,
    CodeObject,
    Device,
    Launcher,
    Manifest,
    Parameter,
    Target,
)
from tilewright.runtime.devices.host_memory import HostMemory

NAME = "null"
_KINDS = frozenset({"add", "and", "cas", "max", "min", "or", "xchg", "xor"})
_NUMBERS = tuple(map(str, (*INTEGERS, *FLOATS)))


class NullBackend:
    """Declares all that there is, and does none of it."""

    #: what the registry takes for the plugin's module: its files are part of cache keys
    __name__ = "tilewright_conformance.mutation"

    @hookimpl
    def tilewright_backend(self) -> Manifest:
        capabilities = Capabilities(
            dtypes=frozenset(_NUMBERS),
            dot=dict.fromkeys(_NUMBERS, ("f16", "f32", "f64", "i32")),
            dot_precisions=("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"),
            atomics=dict.fromkeys(_NUMBERS, _KINDS),
            power_of_two=False,
            features=frozenset(
                {"assert", "clock", "descriptors", "dot_scaled", "noinline", "print"}
            ),
        )
        return Manifest(
            NAME,
            "1.0",
            "accepts everything and writes nothing",
            ("cpu",),
            ("nothing",),
            capabilities,
            priority=-1000,
        )

    @hookimpl
    def tilewright_devices(self) -> Sequence[Device]:
        return [Device(NAME, "cpu", 0, f"nothing on {platform.machine() or 'the host'}")]

    @hookimpl
    def tilewright_target(self, device: Device) -> Target:
        return Target(NAME, "nothing", kind="cpu")

    @hookimpl
    def tilewright_lower(
        self, module: Module, target: Target, options: Mapping[str, Any]
    ) -> CodeObject:
        return CodeObject(module.kernel.name, b"", {"tileir": str(module)})

    @hookimpl
    def tilewright_load(self, code: CodeObject, device: Device) -> CodeObject:
        return code

    @hookimpl
    def tilewright_launcher(
        self, loaded: CodeObject, parameters: Sequence[Parameter], options: Mapping[str, Any]
    ) -> Launcher:
        def launch(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
            pass

        return launch

    @hookimpl
    def tilewright_memory(self, device: Device) -> HostMemory:
        return HostMemory()
