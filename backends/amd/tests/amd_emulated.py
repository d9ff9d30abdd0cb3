"""Compiled kernels run on emulated waves: arguments packed as the code's metadata says, arrays in
checked memory."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import Module
from tilewright.ir.types import DescriptorType, FloatType, PointerType, Type
from tilewright.llvm.emission.registers import encode_float
from tilewright.plugins.manifest import CodeObject
from tilewright.plugins.registry import registry
from tilewright.runtime.devices.device_registry import named_target
from tilewright_amd.lower import lower
from tilewright_amd_emulator import Arena, Coverage, load, run
from tilewright_amd_emulator.engine.kernel_arguments import packed
from tilewright_amd_emulator.errors import WaveError


class AssertionFailed(Exception):
    """A kernel stopped itself; the text is what it calls the assertion whose number it left."""


#: Programs that were run lately: the same code runs on many arguments.
_program = functools.lru_cache(maxsize=8)(load)


class Launch:
    """One launch of a kernel: its arrays in memory, each as a whole, so that what lies around a
    view is seen to be untouched."""

    def __init__(self) -> None:
        # AMD's runtime has its devices access words at any address
        self.arena = Arena(unaligned=True)
        self.wholes: dict[int, tuple[np.ndarray[Any, Any], int]] = {}

    def address(self, array: np.ndarray[Any, Any]) -> int:
        whole = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        if id(whole) not in self.wholes:
            # atomics of two bytes are of the word that they lie in, which an allocation has
            data = np.ascontiguousarray(whole).reshape(-1).view(np.uint8)
            self.wholes[id(whole)] = whole, self.arena.put(np.pad(data, (0, -len(data) % 4)))
        return self.wholes[id(whole)][1] + array.ctypes.data - whole.ctypes.data

    def run(
        self,
        code: CodeObject,
        values: Sequence[bytes | int],
        grid: Sequence[int],
        schedule: str,
        seed: int,
    ) -> Coverage:
        listing = code.stages["amdgcn"]
        assert isinstance(listing, str)
        (lanes,) = map(int, re.findall(r"^    \.wavefront_size: +(\d+)$", listing, re.M))
        x, y, z = (*grid, 1, 1)[:3]
        assertions = code.metadata["assertions"]
        told = self.arena.put(np.zeros(1, np.uint32))
        given = [*values, told] if assertions else values
        try:
            covered = run(
                _program(listing), code.name, grid=(x, y, z),
                threads=lanes * code.metadata["num_warps"],
                arguments=packed(listing, given, (x, y, z)),
                dynamic_lds=code.metadata["shared"], arena=self.arena, schedule=schedule, seed=seed,
            )  # fmt: skip
        except WaveError as error:
            number = int(self.arena.get(told, np.uint32, 1)[0])
            if number:
                raise AssertionFailed(assertions[number - 1]) from error
            raise
        assert not self.arena.get(told, np.uint32, 1)[0], (
            "the kernel tells of an assertion, and goes on"
        )
        for whole, address in self.wholes.values():
            if whole.flags.writeable and whole.nbytes:
                whole[...] = self.arena.get(address, whole.dtype, whole.shape)
        return covered


def launched(
    code: CodeObject,
    arguments: Sequence[Any],
    grid: Sequence[int] = (1,),
    *,
    schedule: str = "lockstep",
    seed: int = 0,
) -> Coverage:
    """Run a kernel on arrays, integers and f32 numbers; arrays are changed in place by what it
    stores."""
    launch = Launch()
    values = [
        launch.address(value)
        if isinstance(value, np.ndarray)
        else struct.pack("<f", value)
        if isinstance(value, float)
        else value
        for value in arguments
    ]
    return launch.run(code, values, grid, schedule, seed)


def run_module(
    module: Module,
    arguments: Sequence[Any],
    grid: Sequence[int],
    arch: str,
    *,
    schedule: str = "lockstep",
    seed: int = 0,
    **options: Any,
) -> Coverage:
    """Lower a module of Tile IR for an architecture, and run it; arrays, also those under
    descriptors, are changed in place."""
    backend = registry().get("amd")
    code = lower(
        module,
        named_target(backend, arch),
        {**backend.manifest.options, "math": "strict", "enable_fp_fusion": False, **options},
        assembly_only=True,
    )
    launch = Launch()
    values: list[bytes | int] = []
    for argument, value in zip(module.kernel.arguments, arguments, strict=True):
        if isinstance(argument.type, DescriptorType):
            values += [launch.address(value.base), *map(int, value.shape), *map(int, value.strides)]
        else:
            values.append(_bits(launch, argument.type, value))
    return launch.run(code, values, grid, schedule, seed)


def _bits(launch: Launch, type_: Type, value: Any) -> bytes | int:
    if isinstance(type_, PointerType):
        return launch.address(value) if isinstance(value, np.ndarray) else int(value)
    if isinstance(type_, FloatType):
        forms = {16: "<e", 32: "<f", 64: "<d"}
        if type_.mantissa in (10, 23, 52):
            return struct.pack(forms[type_.bits], value)
        return encode_float(float(value), type_)
    return int(value)
