"""Running modules of Tile IR on a GPU with arguments that are on the host."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewright.gpu_host.kernels import LoadedKernel
from tilewright.gpu_host.launch import make_launcher
from tilewright.gpu_host.memory import DeviceMemory
from tilewright.ir import Module
from tilewright.plugins.manifest import Parameter
from tilewright.plugins.registry import registry
from tilewright_nvidia.host.driver import driver

EXACT = {"enable_fp_fusion": False, "math": "strict"}


class OnDevice:
    """The copy of an array on the device."""

    def __init__(self, memory: Any, array: np.ndarray[Any, Any], index: int) -> None:
        self.memory, self.array, self.device = memory, array, f"cuda:{index}"
        base = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        # the whole memory that the array is a view of, so that what lies around it is seen to be
        # untouched
        self.whole = base if base.flags.c_contiguous else np.ascontiguousarray(base)
        self.offset = array.ctypes.data - base.ctypes.data
        self.buffer = memory.allocate(max(16, self.whole.nbytes), 256)
        if self.whole.nbytes:
            memory.copy_to_device(self.buffer, memoryview(self.whole.reshape(-1).view(np.uint8)))

    def data_ptr(self) -> int:
        return self.buffer.data_ptr() + self.offset

    dtype = np.dtype(np.uint8)

    def copy_back(self) -> None:
        if self.whole.nbytes and self.whole.flags.writeable:
            self.memory.copy_to_host(self.buffer, memoryview(self.whole.reshape(-1).view(np.uint8)))


def gpu_is_there() -> bool:
    found = registry().get("nvidia")
    return not found.manifest.status and bool(found.call("tilewright_devices"))


def prepare(
    module: Module, *, index: int = 0, cuda: Any = None, **options: Any
) -> tuple[Any, DeviceMemory]:
    """The launcher of a module's kernel, loaded on a device, and the device's memory. ``cuda`` is
    the driver that both talk to."""
    backend = registry().get("nvidia")
    resolved = {**backend.manifest.options, **EXACT, **options}
    target = backend.call("tilewright_target", device=backend.call("tilewright_devices")[0])
    code = backend.call("tilewright_lower", module=module, target=target, options=resolved)
    parameters = [
        Parameter(argument.name, str(argument.type)) for argument in module.kernel.arguments
    ]
    cuda = cuda or driver()
    return make_launcher(LoadedKernel(code, index, cuda), parameters, resolved), DeviceMemory(
        index, cuda
    )


def launch_on_gpu(
    launch: Any,
    memory: DeviceMemory,
    arguments: Sequence[Any],
    grid: tuple[int, int, int],
    index: int = 0,
    stream: Any = None,
) -> None:
    """Copy arrays among ``arguments``, or under descriptors, to the device, launch, wait, and copy
    them back."""
    copies: dict[int, OnDevice] = {}

    def on_device(array: np.ndarray[Any, Any]) -> OnDevice:
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        made = copies.get(id(root))
        if made is None:
            made = copies[id(root)] = OnDevice(memory, root, index)
        view = object.__new__(OnDevice)
        view.__dict__.update(
            made.__dict__, array=array, offset=array.ctypes.data - root.ctypes.data
        )
        return view

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return on_device(value)
        if isinstance(getattr(value, "base", None), np.ndarray):
            return SimpleNamespace(
                base=on_device(value.base), shape=value.shape, strides=value.strides
            )
        return value

    launch(grid, stream, tuple(convert(value) for value in arguments))
    memory.synchronize()
    for copy in copies.values():
        copy.copy_back()


def run_on_gpu(
    module: Module, arguments: Sequence[Any], grid: tuple[int, int, int], **options: Any
) -> None:
    """Run a module's kernel on the first GPU; arrays among ``arguments``, or under descriptors, are
    changed in place."""
    launch_on_gpu(*prepare(module, **options), arguments, grid)
