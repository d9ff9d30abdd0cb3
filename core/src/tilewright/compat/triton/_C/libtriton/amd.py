"""``triton._C.libtriton.amd``: questions about AMD's architectures."""

from __future__ import annotations

from typing import Any

from tilewright.compat.triton import outside


def supports_tdm(arch: str) -> bool:
    """Return whether an architecture, such as ``"gfx1250"``, copies tiles by descriptor."""
    return arch.startswith("gfx125")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise outside.OutsideNameError(outside.reason_of(f"triton._C.libtriton.amd.{name}"))
