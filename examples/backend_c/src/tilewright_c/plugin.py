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
from tilewright.plugins.manifest import (
    Capabilities,
    CodeObject,
    Device,
    Launcher,
    Manifest,
    Parameter,
    Target,
)
from tilewright.runtime.arguments.argument_words import word_launcher
from tilewright.runtime.devices.host_memory import HostMemory
from tilewright_c.c_types import KEPT
from tilewright_c.lower import SYMBOL, lower_kernel, lowers

#: Every operation of a kernel rounds by itself (no contraction), and signed integers wrap around.
#: More optimisation costs more than it gains here.
FLAGS = (
    "-std=gnu11",
    "-O1",
    "-w",
    "-fwrapv",
    "-fno-fast-math",
    "-ffp-contract=off",
    "-shared",
    "-fPIC",
)

#: Matmuls, which the core decomposes: operand type -> accumulator types.
DOT = {"f16": ("f32",), "bf16": ("f32",), "f32": ("f32",), "f64": ("f64",), "i8": ("i32",)}

MANIFEST = Manifest(
    name="c",
    version="0.3.0",
    summary="an example: portable C, compiled by the system's compiler",
    device_kinds=("cpu",),
    targets=("c11",),
    capabilities=Capabilities(
        dtypes=frozenset(KEPT),
        dot=DOT,
        power_of_two=False,
        features=frozenset({"descriptors", "noinline"}),
    ),
    lowers=lowers.names,
    computes=frozenset({"f32", "f64"}),
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
    # All that the code depends on is part of the key of the kernel cache: here the compiler's
    # version too.
    return Target("c", "c11", cpu=platform.machine(), features=(_compiler_version(),), kind="cpu")


@functools.cache
def _compiler_version() -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        return "no compiler"
    return subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, check=False
    ).stdout.partition("\n")[0]


# ---- lowering


@hookimpl
def tilewright_lower(module: Module) -> CodeObject:
    lowers.require(module)
    started = time.perf_counter()
    source = lower_kernel(module.kernel)
    emitted = time.perf_counter()
    binary = _compiled(source, module.kernel.name)
    timings = {"emit": (emitted - started) * 1e3, "cc": (time.perf_counter() - emitted) * 1e3}
    return CodeObject(
        module.kernel.name, binary, {"tileir": str(module), "c": source}, timings=timings
    )


def _compiled(source: str, name: str) -> bytes:
    compiler = shutil.which("cc")
    if compiler is None:
        raise LoweringError(
            "the C backend needs a C compiler called 'cc', and none is on PATH; install one"
        )
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        file.write_text(source)
        done = subprocess.run(
            [compiler, *FLAGS, file, "-lm", "-o", library],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise LoweringError(
                f"{Path(compiler).name} refused the code of {name}, which is a defect of the C "
                f"backend:\n{done.stderr}"
            )
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
    function.argtypes, function.restype = [ctypes.c_int32 * 3, ctypes.c_char_p], ctypes.c_int

    def start(grid: tuple[int, int, int], words: bytes, stream: Any) -> None:
        if function((ctypes.c_int32 * 3)(*grid), words):
            raise KernelError(f"{name}: there is not enough memory for its tiles; use smaller ones")

    return word_launcher(name, parameters, start)


@hookimpl
def tilewright_memory() -> HostMemory:
    return HostMemory()
