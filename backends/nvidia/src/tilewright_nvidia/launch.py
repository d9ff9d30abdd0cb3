"""Launchers: from a grid and argument values to a kernel in a stream of the device.

There are two. The Python launcher takes every kind of argument and reports every error. The native launcher (:mod:`.native_launch`) takes what most
launches are made of and hands everything else to the Python launcher. Neither synchronises nor allocates device memory, so both work while a stream is
being captured into a graph.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tilewright.errors import LaunchError
from tilewright.ir.type_text import parse_type
from tilewright.plugins.manifest import Launcher, Parameter
from tilewright.runtime.arguments import address_of, array_kind
from tilewright.runtime.slots import MISFITS, misfit, slot_codec
from tilewright.runtime.writability import write_guard
from tilewright_nvidia.devices import KIND
from tilewright_nvidia.runtime import LoadedKernel, current_stream

Grid = tuple[int, int, int]
#: Greatest extents of a grid.
GRID_LIMITS = (2**31 - 1, 65535, 65535)


def device_address(value: Any, device: int) -> int:
    """The address of an array in a device's memory; a number is an address already.

    Raises:
        LaunchError: it is not the device's memory.
        ArgumentError: it is no array.
    """
    if type(value) is int:
        return value
    place = array_kind(value).device
    if place is not None and place != (KIND, device):
        if place[0] != KIND:
            raise LaunchError(
                f"Pointer argument cannot be accessed ({place[0]} tensor?): it is a {type(value).__name__} in memory of device kind {place[0]!r}, and the "
                f"kernel runs on {KIND}:{device}; move it there first"
            )
        raise LaunchError(f"it is a {type(value).__name__} on {KIND}:{place[1]}, and the kernel was loaded on {KIND}:{device}; move it there first")
    return address_of(value)


def stream_handle(stream: Any, device: int) -> int:
    """The stream to launch in, as a number: a handle, or an object of PyTorch, CuPy or cuda-python; the current one for None.

    Raises:
        LaunchError: it is no stream.
    """
    if stream is None:
        return current_stream(device)
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, name, None)
        if handle is not None:
            return int(handle)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        _, handle = protocol() if callable(protocol) else protocol
        return int(handle)
    try:
        return int(stream)
    except (TypeError, ValueError):
        raise LaunchError(f"a {type(stream).__name__} is no stream: pass a handle, or a stream of PyTorch, CuPy or cuda-python") from None


class PythonLauncher:
    """Starts a kernel from Python. Every launch has its own slots, so launches from several threads do not meet."""

    def __init__(self, loaded: LoadedKernel, parameters: Sequence[Parameter]) -> None:
        self.loaded, self.parameters = loaded, tuple(parameters)
        self._address = partial(device_address, device=loaded.device)
        codecs = [slot_codec(parse_type(parameter.type), self._address) for parameter in parameters]
        self._encoders = [encode for _, encode in codecs]
        self._struct = struct.Struct("<" + "".join(code for code, _ in codecs))
        self._count = self._struct.size // 8
        self._guard = write_guard(loaded.name, parameters)

    def __call__(self, grid: Grid, stream: Any, values: tuple[Any, ...]) -> None:
        """Start the kernel on ``grid``.

        Raises:
            LaunchError: the values do not fit the kernel's parameters, one that the kernel may store to is read-only, the grid is too large.
            OutOfResources: the device cannot run programs of so many threads and registers.
            KernelError: a kernel launched before has failed.
        """
        if not self._runs(grid):
            return
        slots = ctypes.create_string_buffer(self.pack(values), max(8, self._struct.size))
        self._guard(values)
        base = ctypes.addressof(slots)
        addresses = (ctypes.c_void_p * max(1, self._count))(*range(base, base + 8 * self._count, 8))
        loaded, cuda = self.loaded, self.loaded.cuda
        with cuda.use(loaded.device):
            config = self._config(grid, stream_handle(stream, loaded.device))
            (status,) = cuda.bindings.cuLaunchKernelEx(config, cuda.bindings.CUfunction(loaded.function), ctypes.addressof(addresses), 0)
        if int(status):
            loaded.raise_failure(int(status))

    def _runs(self, grid: Grid) -> bool:
        """Whether there is anything to run."""
        if min(grid) < 0:
            raise LaunchError(f"{self.loaded.name}: a grid's extents are not negative, but this one is {grid}")
        for axis, (extent, limit) in enumerate(zip(grid, GRID_LIMITS, strict=True)):
            if extent > limit:
                raise LaunchError(f"{self.loaded.name}: the grid {grid} has {extent} programs along axis {axis}, and the device takes at most {limit} there")
        return 0 not in grid

    def _config(self, grid: Grid, stream: int) -> Any:
        bindings = self.loaded.cuda.bindings
        config = bindings.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = self.loaded.threads, 1, 1
        config.sharedMemBytes = self.loaded.shared
        config.hStream = bindings.CUstream(stream)
        config.numAttrs = 0
        if self.loaded.pdl:
            attribute = bindings.CUlaunchAttribute()
            attribute.id = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        return config

    def pack(self, values: tuple[Any, ...]) -> bytes:
        """The kernel's slots.

        Raises:
            LaunchError: names the argument that does not fit.
        """
        try:
            return self._struct.pack(*(word for encode, value in zip(self._encoders, values, strict=True) for word in encode(value)))
        except MISFITS as error:
            name = self.loaded.name
            raise misfit(name, self.parameters, values, self._address) or LaunchError(f"{name}: the arguments do not fit: {error}") from error


def make_launcher(loaded: LoadedKernel, parameters: Sequence[Parameter], options: Mapping[str, Any]) -> Launcher:
    """The callable that starts a loaded kernel: native where that is possible, unless ``TILEWRIGHT_NVIDIA_LAUNCHER=python``."""
    slow = PythonLauncher(loaded, parameters)
    if os.environ.get("TILEWRIGHT_NVIDIA_LAUNCHER") != "python":
        from tilewright_nvidia.native_launch import native_launcher

        fast = native_launcher(loaded, parameters, slow)
        if fast is not None:
            return fast
    return slow
