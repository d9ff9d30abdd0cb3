"""The hooks: what the runtime asks of a backend, in the order it asks."""

from __future__ import annotations

import ctypes
import itertools
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.errors import LoweringError
from tilewright.ir import Module
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, CodeObject, Device, Launcher, Manifest, Parameter, Target
from tilewright.runtime.arguments import address_of
from tilewright.runtime.writability import write_guard
from tilewright_c.emit import CTYPES, emit_kernel

MANIFEST = Manifest(
    name="c",
    version="0.1.0",
    summary="an example: portable C, compiled by the system's compiler",
    device_kinds=("cpu",),
    targets=("c11",),
    capabilities=Capabilities(dtypes=frozenset(CTYPES), dot={"f32": ("f32",), "f64": ("f64",)}),
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
    return Target("c", "c11", cpu=platform.machine())


@hookimpl
def tilewright_lower(module: Module) -> CodeObject:
    source = emit_kernel(module.kernel)
    compiler = shutil.which("cc")
    if compiler is None:
        raise LoweringError("the C backend needs a C compiler called 'cc'; none is on PATH")
    with tempfile.TemporaryDirectory() as folder:
        source_file, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        source_file.write_text(source)
        flags = ["-std=c11", "-O2", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC"]
        done = subprocess.run([compiler, *flags, source_file, "-lm", "-o", library], capture_output=True, text=True)
        if done.returncode:
            raise LoweringError(f"the C compiler refused the code of {module.kernel.name}:\n{done.stderr}")
        return CodeObject(module.kernel.name, library.read_bytes(), stages={"tileir": str(module), "c": source})


@hookimpl
def tilewright_load(code: CodeObject) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "kernel.so")
        library.write_bytes(code.binary)
        return ctypes.CDLL(str(library))[code.name]


@hookimpl
def tilewright_launcher(loaded: Any, parameters: Sequence[Parameter]) -> Launcher:
    pointers, guard = [parameter.type.startswith("ptr") for parameter in parameters], write_guard(loaded.__name__, parameters)
    types = [ctypes.c_void_p if pointer else ARGUMENTS[p.type] for p, pointer in zip(parameters, pointers, strict=True)]
    loaded.argtypes, loaded.restype = [ctypes.c_int] * 6 + types, None

    def launch(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
        guard(values)
        arguments = [address_of(value) if pointer else value for value, pointer in zip(values, pointers, strict=True)]
        for z, y, x in itertools.product(*map(range, reversed(grid))):
            loaded(x, y, z, *grid, *arguments)

    return launch


ARGUMENTS: dict[str, Any] = {
    "i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "f32": ctypes.c_float, "f64": ctypes.c_double,
}  # fmt: skip
