"""The hook by which the conformance suite and the fuzzer find this emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.plugins.hooks import hookimpl

if TYPE_CHECKING:
    from tilewright_amd_emulator.hip.hip_runtime import EmulatedDevice


@hookimpl
def tilewright_emulate(target: str, mode: str, seed: int) -> EmulatedDevice:
    from tilewright_amd_emulator.hip.emulation import emulate

    return emulate(target, mode, seed)
