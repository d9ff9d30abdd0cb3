"""Host code on an emulated AMD GPU: the HIP runtime of this process is replaced by a mock runtime.

    device = emulate("gfx942")              # waves in random order
    device = emulate("gfx942", "lockstep")

The mock replaces the runtime for this process and those that it starts, so call it before anything
asks for a device.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal, cast

from tilewright.errors import BackendError
from tilewright_amd_emulator.hip.hip_runtime import EmulatedDevice, build

#: Folder with the mock runtime and the assembly texts of code objects; child processes use it too.
_FOLDER = "TILEWRIGHT_EMULATION_DIR"
_SCHEDULES = ("random", "lockstep")


def emulate(
    target: str,
    schedule: str = "",
    seed: int = 0,
    shared: bool = False,
    limit: int = 1 << 28,
) -> EmulatedDevice:
    """Replace this process's HIP runtime by one with an emulated device.

    Args:
        target: architecture of the device, for instance ``gfx942``.
        schedule: ``random`` (the default) or ``lockstep``.
        seed: seed of the order in which waves run.
        shared: the device's memory is the host's; see
            :func:`tilewright_amd_emulator.hip.host_arrays.host_arrays`.
        limit: instructions that the waves of a batch may execute before their kernel counts as one
            that does not end.

    Raises:
        BackendError: there is no such schedule.
        WaveError: the mock runtime cannot be compiled.
    """
    if schedule not in ("", *_SCHEDULES):
        known = " and ".join(_SCHEDULES)
        message = f"the emulator has no schedule {schedule!r}; it has {known}"
        raise BackendError(f"{message}, as in {target}:lockstep")
    folder = _folder()
    os.environ["ROCM_PATH"] = str(folder)
    os.environ["TILEWRIGHT_AMD_LISTINGS"] = str(folder / "listings")
    if not _has_hip_python():
        os.environ["TILEWRIGHT_AMD_BINDINGS"] = "tilewright_amd_emulator.hip.hip_bindings"
    # loaded here, it is this process's runtime, whatever others are installed
    ctypes.CDLL(str(folder / "lib" / "libamdhip64.so"))
    order = cast(Literal["random", "lockstep"], schedule or "random")
    return EmulatedDevice(target, folder / "listings", order, seed, shared, limit)


def _has_hip_python() -> bool:
    """Return whether hip-python is installed; without it, the mock's own bindings are used."""
    try:
        return importlib.util.find_spec("rocm.bindings.hip") is not None
    except ImportError:  # there is no package that the module could be in
        return False


def _folder() -> Path:
    """Return the folder of the mock runtime, which is compiled once for a process and its children.

    The kernel cache moves there as well, so that every code object has its assembly text.
    """
    given = os.environ.get(_FOLDER)
    if given:
        return Path(given)
    folder = Path(tempfile.mkdtemp(prefix="tilewright-emulation-"))
    atexit.register(_remove, folder, os.getpid())
    build(folder)
    os.environ[_FOLDER], os.environ["TILEWRIGHT_CACHE_DIR"] = str(folder), str(folder / "cache")
    return folder


def _remove(folder: Path, owner: int) -> None:
    """Remove the folder at the end of the process that made it, not at that of a fork."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
