"""Lyra's device: loading, launching and memory. Where a GPU has a driver, this has the emulated machine, and the host's memory."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from tilewright.errors import LaunchError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import I64
from tilewright.plugins.manifest import CodeObject, Launcher, Parameter
from tilewright.runtime.arguments import address_of
from tilewright.runtime.slots import MISFITS, misfit, slot_codec
from tilewright.runtime.writability import write_guard
from tilewright.simt.emulator import run_text
from tilewright_lyra.target import LyraTarget


def launcher(code: CodeObject, parameters: Sequence[Parameter]) -> Launcher:
    """What starts a kernel: arguments become words of 8 bytes, and the emulated machine runs the grid to its end."""
    text, warps = code.binary.decode(), code.metadata["num_warps"]
    types = [parse_type(parameter.type) for parameter in parameters]
    codecs = [slot_codec(type_, _address) for type_ in types]
    words = struct.Struct("<" + "".join(letters for letters, _ in codecs))
    as_integers = struct.Struct(f"<{words.size // 8}q")
    guard = write_guard(code.name, parameters)

    def launch(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
        guard(values)
        if 0 in grid:
            return
        try:
            passed = as_integers.unpack(words.pack(*(number for (_, numbers), value in zip(codecs, values, strict=True) for number in numbers(value))))
        except MISFITS as error:
            raise misfit(code.name, parameters, values, _address) or LaunchError(f"{code.name}: {error}") from error
        machine = LyraTarget()
        machine.messages = code.metadata["messages"]
        run_text(text, machine, [I64] * len(passed), passed, grid, warps)

    return launch


def _address(value: Any) -> int:
    """The address of an array, or the number that is one."""
    return value if type(value) is int else address_of(value)


class Buffer:
    """Bytes of the device; they go with the object."""

    def __init__(self, size: int, alignment: int) -> None:
        self._bytes = ctypes.create_string_buffer(size + alignment)
        self._address = ctypes.addressof(self._bytes) + -ctypes.addressof(self._bytes) % alignment

    def data_ptr(self) -> int:
        return self._address


class Memory:
    """The memory of the device; see :class:`tilewright.plugins.manifest.Memory`."""

    def allocate(self, size: int, alignment: int) -> Buffer:
        return Buffer(size, alignment)

    def copy_to_device(self, buffer: Any, data: memoryview) -> None:
        ctypes.memmove(address_of(buffer), data.tobytes(), data.nbytes)

    def copy_to_host(self, buffer: Any, data: memoryview) -> None:
        data.cast("B")[:] = ctypes.string_at(address_of(buffer), data.nbytes)

    def synchronize(self) -> None:
        """Launches return when their kernel has ended."""
