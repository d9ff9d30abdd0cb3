"""Access to the local HIP runtime through hip-python, initialized at first use.

``TILEWRIGHT_AMD_BINDINGS`` names a module with hip-python's functions to use in its place, for a
runtime that brings its own bindings.
"""

from __future__ import annotations

import functools
import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.errors import BackendError
from tilewright.gpu_host.driver import Driver, missing_module, open_library
from tilewright_amd.toolchain import runtime_library


def _own_bindings() -> str:
    """Return the module named in place of hip-python; empty if there is none."""
    return os.environ.get("TILEWRIGHT_AMD_BINDINGS", "")


def bindings_missing() -> str:
    """Return how to install the missing HIP bindings; empty if they are installed."""
    own = _own_bindings()
    if own:
        return missing_module(own, f"TILEWRIGHT_AMD_BINDINGS names no module: {own}")
    return missing_module(
        "rocm.bindings.hip", "rocm-bindings-hip is not installed: pip install tilewright-amd[hip]"
    )


@functools.cache
def library_path() -> str:
    """Return the path of the process's runtime, or of the one to load; empty without one."""
    return runtime_library.chosen()


@functools.cache
def library() -> Any:
    """Load the runtime's library without initializing it; None if there is none."""
    if bindings_missing():
        return None
    return open_library(library_path())


@functools.cache
def why_not() -> str:
    """Return the reason why no kernel can run here; empty if there is none.

    This does not initialize the runtime.
    """
    reason = bindings_missing()
    if reason:
        return reason
    if not library_path():
        return (
            f"no HIP runtime was found ({runtime_library.NAME}): install ROCm, or name its "
            "folder in ROCM_PATH"
        )
    reason = runtime_library.conflict(runtime_library.mapped())
    if reason:
        return reason
    return "" if library() is not None else f"the HIP runtime {library_path()} cannot be loaded"


def _use_chosen() -> None:
    """Make hip-python load the runtime chosen for this process.

    hip-python would search other places, in another order. Once it has loaded a runtime, that is
    the runtime of the process.
    """
    from rocm.bindings.util import paths

    find = paths.get_library_path

    def found(shortname: str, bundled_location: Path | None = None) -> bytes:
        return (
            os.fsencode(library_path())
            if shortname == "amdhip64"
            else bytes(find(shortname, bundled_location))
        )

    paths.get_library_path = found


def _bindings() -> ModuleType:
    """Import the bindings, for the runtime chosen for this process."""
    own = _own_bindings()
    if own:
        # computed: the environment names the bindings
        return importlib.import_module(own)
    _use_chosen()
    return importlib.import_module("rocm.bindings.hip")


@functools.cache
def driver() -> Driver:
    """Return the initialized runtime.

    Raises:
        BackendError: there is none, or its bindings are missing, or the process has several.
        DriverError: it does not start.
    """
    reason = why_not()
    if reason:
        raise BackendError(f"AMD GPUs cannot be used: {reason}")
    from tilewright_amd.host.driver_table import TABLE

    started = Driver(TABLE, _bindings()).start()
    reason = runtime_library.conflict(runtime_library.mapped())
    if reason:
        raise BackendError(f"AMD GPUs cannot be used: {reason}")
    return started
