"""The module ``triton``, answered by Tilewright, for the length of a block."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def shim() -> Iterator[None]:
    """Let ``import triton`` find Tilewright inside the block, and restore the import afterwards."""
    known = "tilewright.compat.triton" in sys.modules  # importing it activates it
    from tilewright.compat.triton import hook

    was_active = known and hook.is_active()
    hook.activate()
    try:
        importlib.import_module("triton")
        yield
    finally:
        if not was_active:
            hook.deactivate()
