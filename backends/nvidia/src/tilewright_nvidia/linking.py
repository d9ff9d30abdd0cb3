"""PTX to device code: by the driver's own compiler, or by ``ptxas`` where that is wanted and found."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path

from tilewright.child_process import VARIABLE, time_limit
from tilewright.errors import BackendError
from tilewright.plugins.manifest import CodeObject
from tilewright.simt.host.driver import Driver
from tilewright.simt.host.errors import DeviceFaultError, DriverError
from tilewright.simt.host.linking import Linked, kept_binary, log_text, rejected
from tilewright_nvidia import __version__
from tilewright_nvidia.architectures import capability_of
from tilewright_nvidia.installation import driver_version

_LOG_BYTES = 1 << 14


def link(cuda: Driver, device: int, ptx: bytes, what: str) -> Linked:
    """Compile PTX for a device by its driver.

    The driver's linker takes each piece of code for one of several, none of which may give registers from threads to threads: kernels that do are compiled
    where they are loaded, and what stands for their device code is the PTX.

    Args:
        what: kernel and configuration, for messages.

    Raises:
        LoweringError: the driver rejects it; the message has its log, and the path of a file with the PTX.
    """
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
        if _is_compiled_whole(ptx):
            try:
                cuda("cuModuleUnload", cuda("cuModuleLoadDataEx", text, len(options), list(options), list(options.values())))
            except DeviceFaultError:
                raise
            except DriverError as failure:
                raise rejected(f"the driver could not compile the PTX of {what}: {failure}\n{log_text(error)}", ptx, ".ptx") from failure
            return Linked(text, log_text(info), spills_of(log_text(info)))
        state = cuda("cuLinkCreate", len(options), list(options), list(options.values()))
        try:
            cuda("cuLinkAddData", state, cuda.bindings.CUjitInputType.CU_JIT_INPUT_PTX, text, len(text), b"kernel.ptx", 0, [], [])
            address, size = cuda("cuLinkComplete", state)
            cubin = ctypes.string_at(int(address), int(size))
        except DeviceFaultError:
            raise
        except DriverError as failure:
            raise rejected(f"the driver could not compile the PTX of {what}: {failure}\n{log_text(error)}", ptx, ".ptx") from failure
        finally:
            cuda("cuLinkDestroy", state)
    log = log_text(info)
    return Linked(cubin, log, spills_of(log))


def says_lines(ptx: bytes) -> bool:
    """Whether the PTX says which lines of the source it comes from."""
    return b"\n\t.loc\t" in ptx


def _is_compiled_whole(ptx: bytes) -> bool:
    return b"setmaxnreg" in ptx


def spills_of(log: str) -> int:
    """Bytes of spill stores and loads that a compiler's log reports."""
    return sum(int(count) for count in re.findall(r"(\d+) bytes spill (?:stores|loads)", log))


def cubin_of(cuda: Driver, device: int, code: CodeObject) -> bytes:
    """The device code of a kernel: its own, or its PTX compiled, which is kept in the disk cache.

    Raises:
        LoweringError: the driver rejects the PTX.
    """
    if code.metadata.get("format") == "cubin":
        return code.binary
    facts = ("tilewright-nvidia cubin", __version__, str(driver_version()), str(capability_of(cuda, device)))
    what = f"{code.name} ({code.metadata.get('configuration', '')})"
    return kept_binary(code.name, code.binary, facts, lambda: link(cuda, device, code.binary, what))


# ---- without a device


@functools.cache
def find_ptxas() -> Path | None:
    """``ptxas``: of ``TILEWRIGHT_PTXAS``, of the wheel nvidia-cuda-nvcc, of the PATH, of CUDA_HOME."""
    named = os.environ.get("TILEWRIGHT_PTXAS")
    if named:
        return Path(named)
    import importlib.util
    import shutil

    wheel = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (wheel.submodule_search_locations or [])] if wheel is not None else []
    candidates = [path for folder in folders for path in sorted(folder.glob("*/bin/ptxas*"))]
    on_path = shutil.which("ptxas")
    if on_path:
        candidates.append(Path(on_path))
    home = os.environ.get("CUDA_HOME")
    if home:
        candidates.append(Path(home) / "bin" / "ptxas")
    return next((path for path in candidates if path.is_file()), None)


def assemble(ptx: str | bytes, arch: str) -> Linked:
    """Assemble PTX by ``ptxas``, for machines without a GPU.

    Raises:
        BackendError: there is no ptxas.
        LoweringError: it rejects the PTX.
    """
    import subprocess
    import tempfile

    program = find_ptxas()
    if program is None:
        raise BackendError("ptxas was not found: pip install nvidia-cuda-nvcc, or name it in TILEWRIGHT_PTXAS")
    text = ptx.encode() if isinstance(ptx, str) else ptx
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_bytes(text)
        lines = ("--generate-line-info",) if says_lines(text) else ()
        command, limit = [str(program), "-v", *lines, f"-arch={arch}", str(source), "-o", str(result)], time_limit()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            raise rejected(f"{program} took longer than {limit:g} seconds for the PTX and was ended; {VARIABLE} sets the limit", text, ".ptx") from None
        if done.returncode:
            raise rejected(f"{program} rejects the PTX: {done.stderr.strip()}", text, ".ptx")
        log = done.stdout + done.stderr
        return Linked(result.read_bytes(), log, spills_of(log))
