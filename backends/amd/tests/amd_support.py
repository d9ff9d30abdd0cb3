"""Kernels compiled for AMD GPUs, and what their code objects hold."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import fork_server

from tilewright.llvm.codegen.subprocess_codegen import has_inline_assembly
from tilewright.passes import pipeline
from tilewright.plugins.manifest import CodeObject
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import build_module, lower_module
from tilewright.runtime.devices.device_registry import named_target
from tilewright.runtime.launch.jit import JITFunction
from tilewright.simt.target.capabilities.thread_hierarchy import Threads
from tilewright.tools.inspect import specialize
from tilewright_amd.codegen.thread_hierarchy import GcnThreads
from tilewright_amd.lower import lower

ROOT = Path(__file__).resolve().parents[3]
ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")


def emulation_server() -> fork_server.ForkServer:
    """Return a server whose children have the emulator, the suite and its catalogue."""
    return fork_server.server(
        "tilewright_amd",
        "tilewright_amd_emulator",
        "tilewright_conformance.fuzz",
        "tilewright_conformance.random_programs",
        "tilewright_conformance.runtests",
        "tilewright_conformance.suite",
        code="from tilewright_conformance.suite.catalogue import catalogue\nlist(catalogue())",
    )


def emulating(
    *arguments: str, timeout: float = 900, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a Python program that has an emulated device, or asks for one.

    No HIP runtime comes into the process of the tests, nor what names it into its environment.

    Args:
        arguments: those of an interpreter.
        timeout: seconds after which it is ended.
        variables: of its environment, beside those of this process.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **variables,
    }
    for name in ("TILEWRIGHT_BACKEND", "TILEWRIGHT_EMULATION_DIR"):
        environment.pop(name, None)
    return emulation_server().run(arguments, env=environment, cwd=ROOT, timeout=timeout)


@functools.cache
def example(name: str) -> ModuleType:
    """A module of ``examples/kernels``."""
    path = Path(__file__).resolve().parents[3] / "examples" / "kernels" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tilewright_amd_test_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compiled(
    kernel: JITFunction,
    signature: str,
    arch: str,
    constants: Mapping[str, Any] | None = None,
    **options: Any,
) -> CodeObject:
    """A kernel's code for an architecture; ``signature`` names the runtime parameters, as
    ``tilewright inspect`` takes it. What was compiled lately is not compiled again: schedules and
    sizes are tried with the same code. See :func:`forget`."""
    return _compiled(
        kernel,
        signature,
        arch,
        tuple(sorted((constants or {}).items())),
        tuple(sorted(options.items())),
    )


def listed(
    kernel: JITFunction,
    signature: str,
    arch: str,
    constants: Mapping[str, Any] | None = None,
    **options: Any,
) -> CodeObject:
    """As :func:`compiled`, but the assembly alone: for tests that read it or run it on emulated
    waves. LLVM generates code once, not twice."""
    return _compiled(
        kernel,
        signature,
        arch,
        tuple(sorted((constants or {}).items())),
        tuple(sorted(options.items())),
        True,
    )


def forget() -> None:
    """Compile all kernels anew, since the compiler is changed."""
    _compiled.cache_clear()


@functools.lru_cache(maxsize=32)
def _compiled(
    kernel: JITFunction,
    signature: str,
    arch: str,
    constants: tuple[tuple[str, Any], ...],
    options: tuple[tuple[str, Any], ...],
    assembly_only: bool = False,
) -> CodeObject:
    backend = registry().get("amd")
    target = named_target(backend, arch)
    specialization = specialize(kernel, signature, dict(constants), backend, dict(options))
    module = build_module(specialization, backend, target)
    if assembly_only:
        pipeline.run(module)
        code = lower(module, target, specialization.options, assembly_only=True)
    else:
        code = lower_module(module, specialization.options, backend, target).code
    if "inline_asm" not in str(code.stages["tileir"]):
        assert not has_inline_assembly(str(code.stages["llir"])), (
            "a kernel without inline assembly must compile without an assembler"
        )
    return code


def sections(data: bytes) -> dict[str, tuple[int, int, int, int]]:
    """Return the sections of an ELF file: name -> (type, address, offset, size)."""
    (headers,) = struct.unpack_from("<Q", data, 40)
    _, count, names = struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, headers + 64 * i) for i in range(count)]
    table = data[rows[names][4] : rows[names][4] + rows[names][5]]
    return {
        table[row[0] : table.index(0, row[0])].decode(): (row[1], row[3], row[4], row[5])
        for row in rows
    }


def waits_that_are_too_short(listing: str) -> list[str]:
    """The accesses of LDS that nothing had waited for, with ``lgkmcnt(0)``, when a copy straight to
    LDS began, which LLVM counts with them and the machine does not: in the order of the text."""
    found, pending = [], []
    for line in (line.strip() for line in listing.splitlines()):
        if line.startswith("ds_"):
            pending.append(line)
        elif line.startswith("s_waitcnt") and "lgkmcnt(0)" in line:
            pending.clear()
        elif re.match("(global|buffer)_load_(lds|.* lds$)", line):
            found += pending
            pending.clear()
    return found


_BARRIER = GcnThreads.barrier


def all_barriers_but(left_out: int) -> Callable[[GcnThreads, Any, Threads], None]:
    """The barriers of each kernel, without one of them."""
    met: dict[int, int] = {}

    def barrier(self: GcnThreads, w: Any, threads: Threads) -> None:
        number = met.setdefault(id(w), 0)
        met[id(w)] += 1
        if number != left_out:
            _BARRIER(self, w, threads)

    return barrier


SCHEDULES = ("lockstep", "random")


def listing_of(code: CodeObject) -> str:
    return str(code.stages["amdgcn"])


def loop_of(code: CodeObject) -> str:
    """The text of the innermost loop with matrix instructions."""
    lines = listing_of(code).splitlines()
    labels = {
        line.split(":")[0]: place for place, line in enumerate(lines) if line.startswith(".LBB")
    }
    branches = [
        (labels.get(line.split()[-1], place), place)
        for place, line in enumerate(lines)
        if re.match(r"\ts_c?branch", line)
    ]
    loops = ["\n".join(lines[first : last + 1]) for first, last in branches if first < last]
    return min((loop for loop in loops if "v_mfma" in loop), key=len)
