"""The hooks: what the runtime asks of a backend, in the order it asks."""

from __future__ import annotations

import ctypes
import functools
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.errors import KernelError, LoweringError
from tilewright.ir import Module
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, CodeObject, Device, Launcher, Manifest, Parameter, Target
from tilewright.runtime.arguments import address_of
from tilewright.runtime.writability import write_guard
from tilewright_c.c_types import KEPT
from tilewright_c.lower import SYMBOL, lower_kernel

#: Every operation of a kernel rounds by itself (no contraction), and signed integers wrap around. More optimisation costs more than it gains here.
FLAGS = ("-std=gnu11", "-O1", "-w", "-fwrapv", "-fno-fast-math", "-ffp-contract=off", "-shared", "-fPIC")

MANIFEST = Manifest(
    name="c",
    version="0.2.0",
    summary="an example: portable C, compiled by the system's compiler",
    device_kinds=("cpu",),
    targets=("c11",),
    capabilities=Capabilities(dtypes=frozenset(KEPT), dot={"f32": ("f32",), "f64": ("f64",)}, power_of_two=False),
    priority=-10,
)


@hookimpl
def tilewright_backend() -> Manifest:
    return MANIFEST


@hookimpl
def tilewright_devices() -> Sequence[Device]:
    return [Device("c", "cpu", 0, platform.processor() or platform.machine())]


@hookimpl
def tilewright_target() -> Target:
    # All that the code depends on is part of the key of the kernel cache: here the compiler's version too.
    return Target("c", "c11", cpu=platform.machine(), features=(_compiler_version(),), kind="cpu")


@functools.cache
def _compiler_version() -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        return "no compiler"
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[0]


# ---- lowering


@hookimpl
def tilewright_lower(module: Module) -> CodeObject:
    started = time.perf_counter()
    source = lower_kernel(module.kernel)
    emitted = time.perf_counter()
    binary = _compiled(source, module.kernel.name)
    timings = {"emit": (emitted - started) * 1e3, "cc": (time.perf_counter() - emitted) * 1e3}
    return CodeObject(module.kernel.name, binary, {"tileir": str(module), "c": source}, timings=timings)


def _compiled(source: str, name: str) -> bytes:
    compiler = shutil.which("cc")
    if compiler is None:
        raise LoweringError("the C backend needs a C compiler called 'cc', and none is on PATH; install one")
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        file.write_text(source)
        done = subprocess.run([compiler, *FLAGS, file, "-lm", "-o", library], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LoweringError(f"{Path(compiler).name} refused the code of {name}, which is a defect of the C backend:\n{done.stderr}")
        return library.read_bytes()


# ---- launching


@hookimpl
def tilewright_load(code: CodeObject) -> tuple[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "kernel.so")
        library.write_bytes(code.binary)
        return code.name, ctypes.CDLL(str(library))[SYMBOL]


@hookimpl
def tilewright_launcher(loaded: tuple[str, Any], parameters: Sequence[Parameter]) -> Launcher:
    name, function = loaded
    guard, passed = write_guard(name, parameters), [_passed(parameter.type) for parameter in parameters]
    function.argtypes, function.restype = [ctypes.c_int32 * 3, *(ctype for ctype, _ in passed)], ctypes.c_int

    def launch(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
        guard(values)
        if function((ctypes.c_int32 * 3)(*grid), *(convert(value) for (_, convert), value in zip(passed, values, strict=True))):
            raise KernelError(f"{name}: there is not enough memory for its tiles; use smaller ones")

    return launch


def _passed(type_: str) -> tuple[Any, Any]:
    """How an argument is given to the C function: its type for ctypes, and what converts the caller's value."""
    if type_.startswith("ptr<"):
        return ctypes.c_void_p, address_of
    if type_.startswith(("f", "bf")):
        return ctypes.c_double, float
    return (ctypes.c_bool, bool) if type_ == "i1" else (getattr(ctypes, f"c_{'u' * (type_[0] == 'u')}int{type_[1:]}"), int)


@hookimpl
def tilewright_memory() -> HostMemory:
    return HostMemory()


class Buffer:
    """Bytes on the heap; they go with the object."""

    def __init__(self, size: int, alignment: int) -> None:
        self._bytes = ctypes.create_string_buffer(size + alignment)
        self._address = ctypes.addressof(self._bytes) + -ctypes.addressof(self._bytes) % alignment

    def data_ptr(self) -> int:
        return self._address


class HostMemory:
    """The memory of the only device; see :class:`tilewright.plugins.manifest.Memory`."""

    def allocate(self, size: int, alignment: int) -> Buffer:
        return Buffer(size, alignment)

    def copy_to_device(self, buffer: Any, data: memoryview) -> None:
        ctypes.memmove(address_of(buffer), data.tobytes(), data.nbytes)

    def copy_to_host(self, buffer: Any, data: memoryview) -> None:
        data.cast("B")[:] = ctypes.string_at(address_of(buffer), data.nbytes)

    def synchronize(self) -> None:
        """Launches return when their kernel has ended."""
