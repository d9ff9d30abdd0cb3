"""``triton.runtime``: kernels and their launching, tuning, caching."""

import importlib
import os
from typing import Any

from tilewright.compat.triton.runtime.autotuner import (
    Autotuner,
    Config,
    Heuristics,
    autotune,
    heuristics,
)
from tilewright.compat.triton.runtime.cache import RedisRemoteCacheBackend, RemoteCacheBackend

# first: the others import the module of this name
from tilewright.compat.triton.runtime.driver import driver
from tilewright.compat.triton.runtime.errors import InterpreterError, OutOfResources
from tilewright.compat.triton.runtime.jit import (
    JITFunction,
    KernelInterface,
    MockTensor,
    TensorWrapper,
    reinterpret,
)

if os.environ.get("TILEWRIGHT_CORPUS"):
    importlib.import_module("tilewright.compat.triton.recording")  # starts itself

_SUBMODULES = frozenset(
    {
        "_allocation",
        "_async_compile",
        "async_compile",
        "autotuner",
        "build",
        "cache",
        "errors",
        "interpreter",
        "jit",
    }
)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"triton.runtime.{name}")
    raise AttributeError(
        f"module 'triton.runtime' (tilewright.compat.triton.runtime) has no attribute {name!r}"
    )


__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "RedisRemoteCacheBackend",
    "RemoteCacheBackend",
    "TensorWrapper",
    "autotune",
    "driver",
    "heuristics",
    "reinterpret",
]
