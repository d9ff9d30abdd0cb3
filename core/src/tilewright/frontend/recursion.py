"""Room on Python's stack for nested calls of kernels, each of which takes some fifteen Python frames."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

#: Python frames that a compilation may need beyond those its caller may.
_FRAMES = 10_000

_lock = threading.Lock()
_active = 0
_outside = 0


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit while any compilation is under way, in whatever thread.

    Frames of Python functions lie on the heap, so this does not risk the thread's own stack.
    """
    global _active, _outside
    with _lock:
        if not _active:
            _outside = sys.getrecursionlimit()
            sys.setrecursionlimit(_outside + _FRAMES)
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active and sys.getrecursionlimit() == _outside + _FRAMES:
                sys.setrecursionlimit(_outside)
