"""A kernel for the CPU as a shared library that PyTorch's ahead-of-time packages load.

Such a package takes two files of a kernel: one with its code, under the kernel's name, and one with

    void run_from_nativert(uint32_t x, uint32_t y, uint32_t z, int threads,
                           void **arguments, void *kernel)

``arguments`` has an entry for each parameter of the Python function: the address of a tensor's
memory, the address of a number, or nothing of a constant. Real numbers are ``float`` there, also
where the kernel takes ``fp64``: that is what PyTorch's wrapper declares, whose callers have rounded
them already. Here one library is both files. The threads are OpenMP's, at most ``threads`` of them;
for 1, which is what PyTorch writes of every kernel, as many as OpenMP has.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.compat.triton import knobs
from tilewright.errors import BackendError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import F32, F64, IntType, PointerType
from tilewright.plugins.manifest import CProgram, Parameter
from tilewright.runtime.arguments.c_interface import CParameter, c_parameters
from tilewright.runtime.launch.compiled_kernel import CompiledKernel

ENTRY = "run_from_nativert"
#: One compilation with OpenMP, and where the compiler has none, one without.
_ATTEMPTS: tuple[tuple[str, ...], ...] = (("-fopenmp",), ())


def library_of(kernel: CompiledKernel) -> bytes:
    """The library.

    Raises:
        BackendError: the kernel prints or takes arguments that are neither tensors nor numbers, or
            there is no C compiler, or it rejects the code.
    """
    name, symbol = (
        kernel.metadata.name,
        str(kernel.artifact.code.metadata.get("kernel", kernel.name)),
    )
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise BackendError(
            f"kernel {name} has no name of C, which a shared library needs: give it one "
            "by jit(repr=)"
        )
    parameters = kernel.parameters
    positions = _positions(name, kernel.src.signature, parameters)
    program: CProgram | None = kernel.backend.call(
        "tilewright_export",
        name=f"{name}_of_tilewright",
        code=kernel.artifact.code,
        parameters=parameters,
        target=kernel.target,
    )
    if program is None:
        raise BackendError(
            f"backend {kernel.backend.name!r} writes no files for C programs: it has no "
            "tilewright_export"
        )
    adapter = _adapter(
        f"{name}_of_tilewright",
        c_parameters(parameters),
        positions,
        f"{name}_of_tilewright_messages" in _text(program, ".h"),
    )
    named = () if symbol == name else (f"-Wl,--defsym,{name}={symbol}",)
    return _linked(name, program, adapter, named)


def _positions(
    name: str, signature: Mapping[str, Any], parameters: Sequence[Parameter]
) -> list[int]:
    """Where each parameter of the machine code is among those of the Python function."""
    found = [position for position, type_ in enumerate(signature.values()) if type_ != "constexpr"]
    for parameter in parameters:
        type_ = parse_type(parameter.type)
        if not isinstance(type_, PointerType | IntType) and type_ not in (F32, F64):
            raise BackendError(
                f"parameter {parameter.name!r} of kernel {name} is {parameter.type}, and packages "
                "pass tensors, integers, fp32 and fp64"
            )
    if len(found) != len(parameters) or any(
        not isinstance(type_, str) for type_ in signature.values()
    ):
        raise BackendError(f"kernel {name} takes tuples, and packages pass tensors and numbers")
    return found


def _adapter(
    name: str, parameters: Sequence[CParameter], positions: Sequence[int], asserts: bool
) -> str:
    values = []
    for parameter, position in zip(parameters, positions, strict=True):
        type_ = parameter.declaration.removesuffix(parameter.name)
        read = "float" if type_.strip() == "double" else type_.strip()
        values.append(
            f"({type_})arguments[{position}]"
            if "*" in type_
            else f"*({read} *)arguments[{position}]"
        )
    told = (
        f'    if (failed > 0) fprintf(stderr, "%s\\n", {name}_messages[failed - 1]);'
        if asserts
        else ""
    )
    lines = (
        f'#include "{name}.h"',
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "#ifdef _OPENMP",
        "#include <omp.h>",
        "#endif",
        (
            f"void {ENTRY}(uint32_t x, uint32_t y, uint32_t z, int threads, void **arguments, "
            "void *kernel) {"
        ),
        "    (void)kernel; /* it is in this library */",
        "    (void)arguments;",
        "#ifdef _OPENMP",
        "    const int before = omp_get_max_threads();",
        "    if (threads > 1 && threads < before) omp_set_num_threads(threads);",
        "#else",
        "    (void)threads;",
        "#endif",
        f"    const int32_t failed = {name}_launch({', '.join(('x', 'y', 'z', *values))});",
        "#ifdef _OPENMP",
        "    if (threads > 1 && threads < before) omp_set_num_threads(before);",
        "#endif",
        told,
        (
            f'    if (failed < 0) fprintf(stderr, "{name}: the launch failed with %d, of which '
            f'{name}.h tells\\n", (int)failed);'
        ),
        "    if (failed) abort();",
        "}",
        "",
    )
    return "\n".join(lines)


def _text(program: CProgram, ending: str) -> str:
    return "".join(
        content.decode() for file, content in program.files.items() if file.endswith(ending)
    )


def _linked(name: str, program: CProgram, adapter: str, more: Sequence[str]) -> bytes:
    compiler = shlex.split(knobs.build.cc or "") or [
        path
        for path in (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"),)
        if path
    ]
    if not compiler or not program.link:
        raise BackendError(
            f"a shared library of kernel {name} takes a C compiler: install one, or name it by the "
            "environment variable CC"
        )
    with tempfile.TemporaryDirectory() as folder:
        for file, content in {**program.files, "adapter.c": adapter.encode()}.items():
            Path(folder, file).write_bytes(content)
        for parallel in _ATTEMPTS:
            # no other library of the process takes the place of what this one calls
            command = [
                *compiler,
                *parallel,
                "adapter.c",
                *program.link,
                "-Wl,-Bsymbolic",
                *more,
                "-o",
                "kernel.so",
            ]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if not done.returncode:
                return Path(folder, "kernel.so").read_bytes()
    raise BackendError(f"{shlex.join(command)} failed: {done.stderr.strip()}")
