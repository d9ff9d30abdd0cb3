"""The installed NVIDIA driver, inspected without initializing it."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from tilewright.gpu_host.driver import missing_module, open_library
from tilewright_nvidia.architectures import OLDEST_DRIVER

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


@functools.cache
def library() -> Any:
    """Load the driver's library without initializing it; None if there is no driver."""
    return open_library(LIBRARY)


@functools.cache
def driver_version() -> int:
    """Return the driver's CUDA version, 1000 * major + 10 * minor; 0 if there is no driver.

    This does not initialize the driver.
    """
    found = ctypes.c_int()
    loaded = library()
    if loaded is None or loaded.cuDriverGetVersion(ctypes.byref(found)):
        return 0
    return found.value


def bindings_missing() -> str:
    """Return how to install the missing CUDA bindings; empty if they are installed."""
    return missing_module(
        "cuda.bindings", "cuda-bindings is not installed: pip install 'tilewright[nvidia]'"
    )


def why_not() -> str:
    """Return the reason why no kernel can run here; empty if there is none.

    This is cheap: it does not initialize the driver.
    """
    version = driver_version()
    if not version:
        return f"no NVIDIA driver was found ({LIBRARY} cannot be loaded)"
    if version < OLDEST_DRIVER:
        return (
            f"the NVIDIA driver is too old: it supports CUDA {version_text(version)}, and CUDA "
            f"{version_text(OLDEST_DRIVER)} is needed; install driver 525 or newer"
        )
    return bindings_missing()


def version_text(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
