"""``triton._C.libtriton``: a kernel's accesses (:mod:`.ir`), cuBLASLt (:mod:`.nvidia`), queries."""

from __future__ import annotations

import importlib
import os
from typing import Any

from tilewright.compat.triton import outside
from tilewright.compat.triton.environment import getenv, getenv_bool
from tilewright.compat.triton.runtime.specialize import native_specialize_impl

_SUBMODULES = frozenset({"amd", "ir", "nvidia"})

#: Environment variables that change the code of a kernel here.
_OF_THE_CODE = (
    "TRITON_DEBUG",
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_DISABLE_LINE_INFO",
    "TRITON_F32_DEFAULT",
    "TRITON_KERNEL_OVERRIDE",
    "TRITON_OVERRIDE_ARCH",
    "USE_IR_LOC",
)


def get_cache_invalidating_env_vars() -> dict[str, str]:
    """The environment variables that change the code of kernels, as far as they are set."""
    return {name: os.environ[name] for name in _OF_THE_CODE if os.environ.get(name)}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise outside.OutsideNameError(outside.reason_of(f"triton._C.libtriton.{name}"))


__all__ = ["get_cache_invalidating_env_vars", "getenv", "getenv_bool", "native_specialize_impl"]
