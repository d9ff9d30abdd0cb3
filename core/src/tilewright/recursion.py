"""Room on Python's stack for kernels that are nested deeply: expressions, control flow, calls.

A level of an expression takes two Python frames, one of control flow up to seven, a call of a
function of the language some fifteen.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

#: Python frames that who goes through a kernel may need beyond those of its caller.
_FRAMES = 10_000

#: What helps where that is not enough.
SPLIT = (
    "split a long expression into several statements, and a long chain of `elif` or "
    "conditional expressions into functions"
)

_lock = threading.Lock()
_active = 0
_outside = 0


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit while any kernel is gone through, in whatever thread.

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


def _renew_lock() -> None:
    """Give a child process a lock that no thread of its parent's holds."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
