"""The HIP runtime of this machine, through hip-python. Nothing is imported or initialised before it is asked for."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

from tilewright.errors import BackendError
from tilewright.simt.host.driver import Driver, missing_module, open_library

_NAME = "libamdhip64.so"


def bindings_missing() -> str:
    """What is to be installed for the runtime to be reached; empty where nothing is."""
    return missing_module("rocm.bindings.hip", "rocm-bindings-hip is not installed: pip install tilewright-amd[hip]")


@functools.cache
def library_path() -> str:
    """The runtime that the bindings load: of ROCm's wheels, of ``ROCM_PATH``, or of the system."""
    from rocm.bindings.util.paths import get_library_path

    return os.fsdecode(get_library_path("amdhip64"))


def mapped_elsewhere(path: str, maps: Path = Path("/proc/self/maps")) -> str:
    """A HIP runtime that is in this process already and is not the one at ``path``; empty where there is none."""
    try:
        text = maps.read_text()
    except OSError:
        return ""
    for found in set(re.findall(rf"\S*/{re.escape(_NAME)}\S*$", text, re.M)):
        if os.path.isabs(path) and os.path.realpath(found) != os.path.realpath(path):
            return str(found)
    return ""


@functools.cache
def library() -> Any:
    """The runtime's library, not initialised; None where there is none."""
    if bindings_missing():
        return None
    return open_library(library_path())


@functools.cache
def why_not() -> str:
    """Why no kernel can run here; empty where nothing speaks against it. The runtime is not initialised."""
    reason = bindings_missing()
    if reason:
        return reason
    if not os.path.isfile(library_path()) and not any(Path(folder, _NAME).exists() for folder in _system_folders()):
        return f"no HIP runtime was found ({_NAME}): install ROCm, or name its folder in ROCM_PATH"
    other = mapped_elsewhere(library_path())
    if other:
        return f"this process uses the HIP runtime {other}, and hip-python would load a second one, {library_path()}: set ROCM_PATH to the folder of the first"
    return "" if library() is not None else f"the HIP runtime {library_path()} cannot be loaded"


def _system_folders() -> list[str]:
    return [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder] + ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu"]


@functools.cache
def driver() -> Driver:
    """The runtime, initialised.

    Raises:
        BackendError: there is none, or its bindings are missing.
        DriverError: it does not start.
    """
    reason = why_not()
    if reason:
        raise BackendError(f"AMD GPUs cannot be used: {reason}")
    from rocm.bindings import hip as bindings

    from tilewright_amd.table import TABLE

    return Driver(TABLE, bindings).start()
