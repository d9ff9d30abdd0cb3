"""Backends on hardware that this machine does not have: their own launches, through the vendor's bindings, on a runtime whose device is emulated.

    emulate("amd", "gfx942")              # waves in random order
    emulate("amd", "gfx942:lockstep")

The vendor's runtime is replaced for this process and those that it starts, so this comes before
anything asks for a device.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from tilewright.errors import BackendError

if TYPE_CHECKING:
    from tilewright_conformance.waves.hip_runtime import EmulatedDevice

#: Where the runtime's stand-in and the assembly texts of code objects lie; processes that are started find it here.
_FOLDER = "TILEWRIGHT_EMULATION_DIR"
_SCHEDULES = ("random", "lockstep")


def parsed(text: str) -> tuple[str, Literal["lockstep", "random"]]:
    """The target and the schedule that a text asks for: ``gfx942`` or ``gfx942:lockstep``.

    Raises:
        BackendError: there is no such schedule.
    """
    target, _, schedule = text.partition(":")
    if schedule not in ("", *_SCHEDULES):
        raise BackendError(f"{text!r} asks for the schedule {schedule!r}; there are {' and '.join(_SCHEDULES)}, as in {target}:lockstep")
    return target, cast(Any, schedule or "random")


def emulate(backend: str, text: str, seed: int = 0, shared: bool = False, limit: int = 1 << 28) -> EmulatedDevice:
    """Give a backend an emulated device.

    Args:
        backend: its name; its devices are of the kind ``hip``.
        text: what to emulate, and how; see :func:`parsed`.
        seed: of the order in which waves run.
        shared: the device's memory is the host's; see :func:`tilewright_conformance.waves.host_arrays.host_arrays`.
        limit: instructions that the waves of a batch may execute before their kernel counts as one that does not end.

    Raises:
        BackendError: the backend's devices cannot be emulated, its bindings are not installed, or it has no such target.
        WaveError: the stand-in of the runtime cannot be made.
    """
    target, schedule = parsed(text)
    folder = _folder()
    os.environ["ROCM_PATH"] = str(folder)
    os.environ["TILEWRIGHT_AMD_LISTINGS"] = str(folder / "listings")
    # it is this process's runtime from now on, whatever others are installed
    ctypes.CDLL(str(folder / "lib" / "libamdhip64.so"))
    from tilewright.plugins.registry import registry
    from tilewright_conformance.waves.hip_runtime import EmulatedDevice

    manifest = registry().get(backend).manifest
    if manifest.device_kinds != ("hip",):
        raise BackendError(f"the devices of backend {backend!r} ({', '.join(manifest.device_kinds)}) cannot be emulated; those of kind hip can")
    if target not in manifest.targets:
        raise BackendError(f"backend {backend!r} has no target {target!r}; it has {', '.join(manifest.targets)}")
    if manifest.status:
        raise BackendError(f"backend {backend!r} cannot be emulated: {manifest.status}")
    return EmulatedDevice(target, folder / "listings", schedule, seed, shared, limit)


def _folder() -> Path:
    """The folder of this process and those it starts: with the runtime in it, and with no kernel in its cache that was compiled before."""
    from tilewright_conformance.waves.hip_runtime import build

    given = os.environ.get(_FOLDER)
    if given:
        return Path(given)
    folder = Path(tempfile.mkdtemp(prefix="tilewright-emulation-"))
    atexit.register(_remove, folder, os.getpid())
    build(folder)
    os.environ[_FOLDER], os.environ["TILEWRIGHT_CACHE_DIR"] = str(folder), str(folder / "cache")
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a copy of the process
        shutil.rmtree(folder, ignore_errors=True)
