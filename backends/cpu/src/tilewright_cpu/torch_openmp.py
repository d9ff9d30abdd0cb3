"""The OpenMP runtime of the PyTorch that this process has loaded."""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path
from typing import NamedTuple


class OpenMP(NamedTuple):
    """Addresses of functions of an OpenMP runtime.

    Attributes:
        parallel: ``GOMP_parallel``.
        max_threads: ``omp_get_max_threads``.
        thread_number: ``omp_get_thread_num``.
        processors: ``omp_get_num_procs``.
    """

    parallel: int
    max_threads: int
    thread_number: int
    processors: int


def torch_openmp() -> OpenMP | None:
    """Find the OpenMP runtime that PyTorch calls; None where PyTorch is not loaded or has none."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return None if file is None else _runtime_of(Path(file).parent / "lib")


@functools.cache
def _runtime_of(folder: Path) -> OpenMP | None:
    for library in sorted(folder.glob("libtorch_cpu.*")):
        names = ("GOMP_parallel", "omp_get_max_threads", "omp_get_thread_num", "omp_get_num_procs")
        try:
            # looks through what the library depends on as well, so it finds the runtime PyTorch
            # itself calls
            loaded = ctypes.CDLL(str(library))
            found = [ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value for name in names]
        except (OSError, AttributeError):
            continue
        addresses = [each for each in found if each]
        if len(addresses) == len(names):
            return OpenMP(*addresses)
    return None


def team_processors() -> int:
    """Return how many processors a team of PyTorch's OpenMP threads can use; 0 without a runtime.

    A runtime that binds threads to processors (``OMP_PROC_BIND``) narrows the affinity of the main
    thread when it is loaded, but remembers the processors that the process had before.
    """
    found = torch_openmp()
    if found is None:
        return 0
    count = ctypes.CFUNCTYPE(ctypes.c_int)
    return min(int(count(found.processors)()), int(count(found.max_threads)()))
