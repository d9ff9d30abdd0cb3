"""``triton.tools``: functions of C, descriptors, microscaling formats, disassembly."""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.compat.triton import outside

_MODULES = frozenset({"compile", "disasm", "link", "mxfp", "ragged_tma", "tensor_descriptor"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if f"triton.tools.{name}" in outside.MODULES:
        raise outside.OutsideNameError(outside.reason_of(f"triton.tools.{name}"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
