"""Running modules of Tile IR on a GPU with arguments that are on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import Module
from tilewright.plugins.manifest import Parameter
from tilewright.plugins.registry import registry

EXACT = {"enable_fp_fusion": False, "math": "strict"}


class OnDevice:
    """The copy of an array on the device."""

    def __init__(self, memory: Any, array: np.ndarray[Any, Any]) -> None:
        self.memory, self.array = memory, array
        base = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        # the whole memory that the array is a view of, so that what lies around it is seen to be untouched
        self.whole = base if base.flags.c_contiguous else np.ascontiguousarray(base)
        self.offset = array.ctypes.data - base.ctypes.data
        self.buffer = memory.allocate(max(16, self.whole.nbytes), 256)
        if self.whole.nbytes:
            memory.copy_to_device(self.buffer, memoryview(self.whole.reshape(-1).view(np.uint8)))

    def data_ptr(self) -> int:
        return self.buffer.data_ptr() + self.offset

    dtype = np.dtype(np.uint8)
    device = "cuda:0"

    def copy_back(self) -> None:
        if self.whole.nbytes and self.whole.flags.writeable:
            self.memory.copy_to_host(self.buffer, memoryview(self.whole.reshape(-1).view(np.uint8)))


def gpu_is_there() -> bool:
    found = registry().get("nvidia")
    return not found.manifest.status and bool(found.call("tilewright_devices"))


def run_on_gpu(module: Module, arguments: Sequence[Any], grid: tuple[int, int, int], **options: Any) -> None:
    """Run a module's kernel; arrays among ``arguments``, or under descriptors, are changed in place."""
    from types import SimpleNamespace

    backend = registry().get("nvidia")
    device = backend.call("tilewright_devices")[0]
    resolved = {**backend.manifest.options, **EXACT, **options}
    code = backend.call("tilewright_lower", module=module, target=backend.call("tilewright_target", device=device), options=resolved)
    loaded = backend.call("tilewright_load", code=code, device=device)
    parameters = [Parameter(argument.name, str(argument.type)) for argument in module.kernel.arguments]
    launch = backend.call("tilewright_launcher", loaded=loaded, parameters=parameters, options=resolved)
    memory = backend.call("tilewright_memory", device=device)
    copies: dict[int, OnDevice] = {}

    def on_device(array: np.ndarray[Any, Any]) -> OnDevice:
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        made = copies.get(id(root))
        if made is None:
            made = copies[id(root)] = OnDevice(memory, root)
        view = object.__new__(OnDevice)
        view.__dict__.update(made.__dict__, array=array, offset=array.ctypes.data - root.ctypes.data)
        return view

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return on_device(value)
        if isinstance(getattr(value, "base", None), np.ndarray):
            return SimpleNamespace(base=on_device(value.base), shape=value.shape, strides=value.strides)
        return value

    launch(grid, None, tuple(convert(value) for value in arguments))
    memory.synchronize()
    for copy in copies.values():
        copy.copy_back()
