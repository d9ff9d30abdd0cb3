"""PTX to device code: by a ``ptxas`` that fits the driver, or by the driver's own compiler.

Kernels are compiled as whole programs. Relocatable code (``ptxas -c``, the driver's linker,
nvJitLink) may not redistribute registers (``setmaxnreg``). It also uses more registers, since
functions that other code may call follow the calling convention.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from pathlib import Path

from tilewright.child_process import VARIABLE, time_limit
from tilewright.errors import BackendError
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.errors import DeviceFaultError, DriverError
from tilewright.gpu_host.linking import Linked, kept_binary, log_text, rejected
from tilewright.plugins.manifest import CodeObject
from tilewright_nvidia import __version__
from tilewright_nvidia.architectures import capability_of
from tilewright_nvidia.toolchain.installation import driver_version
from tilewright_nvidia.toolchain.occupancy_attempt import attempts

_LOG_BYTES = 1 << 14


def link(cuda: Driver, device: int, ptx: bytes, what: str) -> Linked:
    """Compile PTX for a device, by :func:`ptxas_of_driver` or else by the driver.

    The driver compiles if there is no such ptxas or if it rejects the PTX. The driver does not
    return the code that it compiles for a whole program. The result is then the PTX, which is
    compiled wherever it is loaded; from the second time on, the driver's own cache has the code.

    Args:
        what: kernel and configuration, for messages.

    Raises:
        LoweringError: the driver rejects the PTX; the message has its log, and the path of a file
            with the PTX.
    """
    program = ptxas_of_driver()
    found = None if program is None else _run_ptxas(program, ptx, target_named(ptx))
    if isinstance(found, Linked):
        return found
    option = cuda.bindings.CUjit_option
    info, error = bytearray(_LOG_BYTES), bytearray(_LOG_BYTES)
    options = {
        option.CU_JIT_INFO_LOG_BUFFER: info,
        option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: len(info),
        option.CU_JIT_ERROR_LOG_BUFFER: error,
        option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: len(error),
        option.CU_JIT_LOG_VERBOSE: 1,
    }
    if says_lines(ptx):
        options[option.CU_JIT_GENERATE_LINE_INFO] = 1
    text = ptx if ptx.endswith(b"\0") else ptx + b"\0"
    with cuda.use(device):
        try:
            cuda(
                "cuModuleUnload",
                cuda(
                    "cuModuleLoadDataEx", text, len(options), list(options), list(options.values())
                ),
            )
        except DeviceFaultError:
            raise
        except DriverError as failure:
            raise rejected(
                f"the driver could not compile the PTX of {what}: {failure}\n{log_text(error)}",
                ptx,
                ".ptx",
            ) from failure
    log = log_text(info)
    return Linked(text, log, spills_of(log))


def says_lines(ptx: bytes) -> bool:
    """Return whether the PTX has line information."""
    return b"\n\t.loc\t" in ptx


def target_named(ptx: bytes) -> str:
    """Return the architecture in the PTX's ``.target`` directive."""
    found = re.search(rb"^\s*\.target\s+(\w+)", ptx, re.MULTILINE)
    return found[1].decode() if found else ""


def spills_of(log: str) -> int | None:
    """Return the bytes of spill stores and loads in a compiler's log; None if it has none.

    The log lacks them if the code came from the driver's cache, for example.
    """
    found = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    return sum(map(int, found)) if found else None


def cubin_of(cuda: Driver, device: int, code: CodeObject) -> bytes:
    """Return a kernel's device code, compiling its PTX through the disk cache if necessary.

    Raises:
        LoweringError: the driver rejects the PTX.
    """
    if code.metadata.get("format") == "cubin":
        return code.binary
    # the result depends on the installed ptxas
    programs = [
        f"{program} {program.stat().st_size} {program.stat().st_mtime_ns}"
        for program in ptxas_programs()
        if program.is_file()
    ]
    facts = (
        "tilewright-nvidia code",
        __version__,
        str(driver_version()),
        str(capability_of(cuda, device)),
        *programs,
    )
    what = f"{code.name} ({code.metadata.get('configuration', '')})"
    return kept_binary(code.name, code.binary, facts, lambda: link(cuda, device, code.binary, what))


# ---- ptxas


def find_ptxas() -> Path | None:
    """Return the preferred ``ptxas``; see :func:`ptxas_programs`."""
    return next(iter(ptxas_programs()), None)


@functools.cache
def ptxas_programs() -> list[Path]:
    """List the installed ``ptxas`` programs, in order of preference.

    ``TILEWRIGHT_PTXAS`` is the only one if it is set. Otherwise the order is: the wheel
    nvidia-cuda-nvcc, the PATH, CUDA_HOME, Triton's wheel.
    """
    named = os.environ.get("TILEWRIGHT_PTXAS")
    if named:
        return [Path(named)]
    import importlib.metadata
    import importlib.util
    import shutil

    wheel = importlib.util.find_spec("nvidia")
    folders = (
        [Path(folder) for folder in (wheel.submodule_search_locations or [])]
        if wheel is not None
        else []
    )
    candidates = [path for folder in folders for path in sorted(folder.glob("*/bin/ptxas*"))]
    on_path = shutil.which("ptxas")
    if on_path:
        candidates.append(Path(on_path))
    home = os.environ.get("CUDA_HOME")
    if home:
        candidates.append(Path(home) / "bin" / "ptxas")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        folder = Path(
            str(importlib.metadata.distribution("triton").locate_file("triton/backends/nvidia/bin"))
        )
        candidates += sorted(folder.glob("ptxas*"))
    return [path for path in candidates if path.is_file()]


@functools.cache
def ptxas_of_driver() -> Path | None:
    """Return a ``ptxas`` whose code the local driver loads: of its CUDA version or an older one.

    Only the major version counts.
    """
    return next(
        (
            program
            for program in ptxas_programs()
            if 0 < _major(program) <= driver_version() // 1000
        ),
        None,
    )


def _major(program: Path) -> int:
    """Return the CUDA major version of a ``ptxas``; 0 if it is unknown."""
    import subprocess

    try:
        said = subprocess.run(
            [str(program), "--version"],
            capture_output=True,
            text=True,
            timeout=time_limit(),
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"release (\d+)\.", said)
    return int(found[1]) if found else 0


def assemble(ptx: str | bytes, arch: str) -> Linked:
    """Compile PTX by ``ptxas``, for machines without a GPU.

    Raises:
        BackendError: there is no ptxas.
        LoweringError: it rejects the PTX.
    """
    program = find_ptxas()
    if program is None:
        raise BackendError(
            "ptxas was not found: pip install nvidia-cuda-nvcc, or name it in TILEWRIGHT_PTXAS"
        )
    text = ptx.encode() if isinstance(ptx, str) else ptx
    found = _run_ptxas(program, text, arch)
    if isinstance(found, str):
        raise rejected(f"{program} rejects the PTX: {found}", text, ".ptx")
    return found


def _run_ptxas(program: Path, text: bytes, arch: str) -> Linked | str:
    """Compile PTX by ``ptxas``; return the error text if it rejects the PTX.

    Of the occupancy bounds that the PTX lets ptxas attempt, the first without spills is kept; if
    all of them spill, the PTX's own.

    Raises:
        LoweringError: it takes too long.
    """
    own: Linked | str | None = None
    for attempt in attempts(text):
        found = _assemble_once(program, attempt, arch)
        if isinstance(found, Linked) and found.spills == 0:
            return found
        if attempt is text:
            own = found
    assert own is not None
    return own


def _assemble_once(program: Path, text: bytes, arch: str) -> Linked | str:
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_bytes(text.rstrip(b"\0"))
        lines = ("--generate-line-info",) if says_lines(text) else ()
        command, limit = (
            [str(program), "-v", *lines, f"-arch={arch}", str(source), "-o", str(result)],
            time_limit(),
        )
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            raise rejected(
                f"{program} took longer than {limit:g} seconds for the PTX and was ended; "
                f"{VARIABLE} sets the limit",
                text,
                ".ptx",
            ) from None
        except OSError as error:
            return f"it cannot be run: {error}"
        if done.returncode:
            return done.stderr.strip()
        log = done.stdout + done.stderr
        return Linked(result.read_bytes(), log, spills_of(log), "ptxas")
