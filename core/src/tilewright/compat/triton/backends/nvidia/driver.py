"""``triton.backends.nvidia.driver``: where the driver's library and headers are."""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
import re
import shutil
import subprocess
from typing import Any

from tilewright.compat.triton import knobs
from tilewright.compat.triton.outside import absent

_LIBRARY = "libcuda.so.1"
#: Where the cache of the dynamic linker is read, where it is not on ``PATH``.
_LDCONFIG = "/sbin/ldconfig"


def _include_dirs() -> list[str]:
    """Return the directories with ``cuda.h``: of NVIDIA's packages and CUDA toolkits.

    A toolkit is set or installed.
    """
    spec = importlib.util.find_spec("nvidia")
    packages = list(spec.submodule_search_locations or []) if spec is not None else []
    roots = [folder for root in packages for folder in sorted(glob.glob(os.path.join(root, "*")))]
    roots += [
        root
        for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
        if root
    ]
    folders = [os.path.join(root, "include") for root in roots]
    return [
        folder
        for folder in dict.fromkeys(folders)
        if os.path.exists(os.path.join(folder, "cuda.h"))
    ]


@functools.lru_cache
def libcuda_dirs() -> list[str]:
    """Return the directories with the driver's library (``libcuda.so.1``).

    It is the one that is set, else those the dynamic linker knows.

    Raises:
        AssertionError: there is none.
    """
    if knobs.nvidia.libcuda_path:
        return [knobs.nvidia.libcuda_path]
    found = [
        folder
        for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":")
        if folder and os.path.exists(os.path.join(folder, _LIBRARY))
    ]
    try:
        printed = subprocess.check_output(
            [shutil.which("ldconfig") or _LDCONFIG, "-p"], text=True, errors="replace"
        )
    except (OSError, subprocess.CalledProcessError):
        printed = ""
    found += [
        os.path.dirname(path) for path in re.findall(rf"{re.escape(_LIBRARY)}\b.*=> (\S+)", printed)
    ]
    if not found:
        raise AssertionError(
            f"{_LIBRARY} cannot be found: install the driver, or set TRITON_LIBCUDA_PATH to "
            "its directory"
        )
    return list(dict.fromkeys(found))


@functools.lru_cache
def library_dirs() -> list[str]:
    """The directories to link against the driver."""
    return libcuda_dirs()


def __getattr__(name: str) -> Any:
    if name == "include_dirs":
        return _include_dirs()
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    why = (
        "a part of Triton's launcher in C. Kernels take tensor descriptors as they are: "
        "kernel[grid](descriptor, ...), or compiled.run"
    )
    raise absent("triton.backends.nvidia.driver", name, why)


__all__ = ["include_dirs", "libcuda_dirs", "library_dirs"]  # noqa: F822 (see __getattr__)
