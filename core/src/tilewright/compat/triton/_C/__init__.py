"""``triton._C``: where Triton has its compiler; here, what other compilers ask of it."""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.compat.triton import outside


def __getattr__(name: str) -> Any:
    if name == "libtriton":
        return importlib.import_module(f"{__name__}.libtriton")
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise outside.OutsideNameError(outside.reason_of(f"triton._C.{name}"))
