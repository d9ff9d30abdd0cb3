"""``triton.backends.nvidia.driver``: where the driver's library is."""

from __future__ import annotations

import functools
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


@functools.lru_cache
def libcuda_dirs() -> list[str]:
    """The directories with the library of the driver (``libcuda.so.1``): the one that is set, else those the dynamic linker knows.

    Raises:
        AssertionError: there is none.
    """
    if knobs.nvidia.libcuda_path:
        return [knobs.nvidia.libcuda_path]
    found = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder and os.path.exists(os.path.join(folder, _LIBRARY))]
    try:
        printed = subprocess.check_output([shutil.which("ldconfig") or _LDCONFIG, "-p"], text=True, errors="replace")
    except (OSError, subprocess.CalledProcessError):
        printed = ""
    found += [os.path.dirname(path) for path in re.findall(rf"{re.escape(_LIBRARY)}\b.*=> (\S+)", printed)]
    if not found:
        raise AssertionError(f"{_LIBRARY} cannot be found: install the driver, or set TRITON_LIBCUDA_PATH to its directory")
    return list(dict.fromkeys(found))


@functools.lru_cache
def library_dirs() -> list[str]:
    """The directories to link against the driver."""
    return libcuda_dirs()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    why = "a part of Triton's launcher in C. Kernels take tensor descriptors as they are: kernel[grid](descriptor, ...), or compiled.run"
    raise absent("triton.backends.nvidia.driver", name, why)


__all__ = ["libcuda_dirs", "library_dirs"]
