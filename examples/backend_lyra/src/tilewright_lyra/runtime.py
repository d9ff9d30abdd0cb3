"""Lyra's device: launching.

Where a GPU has a driver, this has the emulated machine, and the host's memory.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tilewright.ir.types import I64
from tilewright.plugins.manifest import CodeObject, Launcher, Parameter
from tilewright.runtime.arguments.argument_words import word_launcher
from tilewright.simt.emulator import run_text
from tilewright_lyra.target import LyraTarget


def launcher(code: CodeObject, parameters: Sequence[Parameter]) -> Launcher:
    """Return a launcher, which runs the grid in the emulator.

    Arguments are words of 8 bytes.
    """
    text, warps = code.binary.decode(), code.metadata["num_warps"]

    def start(grid: tuple[int, int, int], words: bytes, stream: Any) -> None:
        passed = struct.unpack(f"<{len(words) // 8}q", words)
        machine = LyraTarget()
        machine.record.messages[:] = code.metadata["messages"]
        run_text(text, machine, [I64] * len(passed), passed, grid, warps)

    return word_launcher(code.name, parameters, start)
