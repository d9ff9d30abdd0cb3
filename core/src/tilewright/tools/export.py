"""``tilewright compile``: a kernel for C programs."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.errors import BackendError
from tilewright.plugins.manifest import CProgram, Target
from tilewright.plugins.registry import Backend
from tilewright.runtime.compiler.compile import compile_kernel
from tilewright.runtime.launch.jit import JITFunction
from tilewright.runtime.storage.files import write_whole
from tilewright.tools.inspect import find_kernel, parse_assignments, place, specialize
from tilewright.tools.usage import UsageError


def compile_command(options: argparse.Namespace) -> int:
    """Compile a command line's kernel and write its files; see ``tilewright compile --help``."""
    backend, target = place(options.backend, options.arch)
    kernel = find_kernel(options.kernel)
    name = options.name or kernel.__name__
    if not name.isidentifier() or not name.isascii():
        raise UsageError(f"--name must be a name of C, not {name!r}")
    program = export(
        kernel,
        options.signature,
        parse_assignments(options.constants),
        backend,
        target,
        parse_assignments(options.option),
        name,
    )
    for path in write(program, options.output, name):
        print(path)
    return 0


def export(
    kernel: JITFunction,
    signature: str,
    constants: Mapping[str, Any],
    backend: Backend,
    target: Target,
    options: Mapping[str, Any],
    name: str,
) -> CProgram:
    """A kernel, compiled for types of arguments, as files for C programs.

    Raises:
        UsageError: types, constants or options do not fit.
        BackendError: the backend exports none, or not this kernel.
    """
    specialization = specialize(kernel, signature, constants, backend, options, name=name)
    artifact = compile_kernel(specialization, backend, target)
    found: CProgram | None = backend.call(
        "tilewright_export",
        name=name,
        code=artifact.code,
        parameters=artifact.parameters,
        target=target,
    )
    if found is None:
        raise BackendError(
            f"backend {backend.name!r} ({backend.distribution}) writes no files for C programs: it "
            "has no tilewright_export"
        )
    return found


def write(program: CProgram, directory: Path, name: str) -> list[Path]:
    """Write the files, link them with a C compiler (``CC``, else ``cc``), and return the paths.

    Without a compiler they are not linked.

    Raises:
        UsageError: the directory cannot be written.
        BackendError: the compiler rejects the files.
    """
    paths = []
    try:
        for file, content in program.files.items():
            write_whole(directory / file, content)
            paths.append(directory / file)
    except OSError as error:
        raise UsageError(f"--output {directory} cannot be written: {error}") from None
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if program.link and shutil.which(compiler[0]):
        paths.append(_link([*compiler, *program.link], directory, f"lib{name}.so"))
    return paths


def _link(command: Sequence[str], directory: Path, library: str) -> Path:
    whole = [*command, "-o", library]
    done = subprocess.run(whole, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"{shlex.join(whole)} in {directory} failed: {done.stderr.strip()}")
    return directory / library
