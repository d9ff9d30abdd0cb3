"""The current device and stream of a kind of devices, as PyTorch has them."""

from __future__ import annotations

import sys
from typing import Any


def torch_kind(kind: str) -> str:
    """Return PyTorch's name of a kind of devices."""
    return "cuda" if kind == "hip" else kind  # AMD's GPUs too


def interface(kind: str) -> Any:
    """Return PyTorch's module for a kind of devices; None for the CPU.

    None, too, where PyTorch is not loaded or does not serve them.
    """
    kind = torch_kind(kind)
    module = None if kind == "cpu" else getattr(sys.modules.get("torch"), kind, None)
    if module is None:
        return None
    # what is in use is there; to ask the driver costs more
    in_use = getattr(module, "is_initialized", None)
    return module if (in_use is not None and in_use()) or module.is_available() else None


def current_device(kind: str) -> int:
    """The index of the current device."""
    module = interface(kind)
    return 0 if module is None else int(module.current_device())
