"""Coordination of forks with threads that are setting something up.

Set-up is the discovery of backends, the import of a module, and compiling or loading a kernel.

A fork copies one thread, and every lock as it is. A lock that another thread holds stays taken in
the child for good: ours, those of modules that are being imported, those within LLVM and vendors'
libraries. So whatever takes such locks is done within :func:`setting_up`, and a fork waits until no
other thread is. Launches of kernels that were launched before are not set-up, and cost nothing
here.
"""

from __future__ import annotations

# it and logging take their locks before a fork; what is here is registered after them, and so comes
# before
import concurrent.futures.thread  # noqa: F401
import contextlib
import contextvars
import logging  # noqa: F401
import os
import threading
from collections.abc import Iterator

#: Seconds that a fork waits. What is set up may itself wait for what the forking thread holds: then
#: the child is made as it may be.
PATIENCE = 120.0

#: Whose set-up this thread works for: that of a thread that waits for this one is the same.
_owner: contextvars.ContextVar[object] = contextvars.ContextVar("owner", default=None)
_active: set[object] = set()
_changed = threading.Condition(threading.Lock())
_is_held = False


@contextlib.contextmanager
def setting_up() -> Iterator[None]:
    """A block that no other thread of this process forks in the middle of."""
    if _owner.get() in _active:
        yield
        return
    owner = object()
    reset = _owner.set(owner)
    try:
        with _changed:
            _active.add(owner)
        yield
    finally:
        _active.discard(owner)
        with _changed:
            _changed.notify_all()
        _owner.reset(reset)


def _before() -> None:
    """Wait for the other threads, and keep them from beginning anything until the fork is done."""
    global _is_held
    own = {_owner.get()}
    _changed.acquire()
    _is_held = True
    _changed.wait_for(lambda: _active <= own, PATIENCE)


def _after_in_parent() -> None:
    global _is_held
    if _is_held:
        _is_held = False
        _changed.release()


def _after_in_child() -> None:
    """The threads that the child does not have set nothing up in it."""
    global _changed, _is_held
    _active.intersection_update({_owner.get()})
    _changed, _is_held = threading.Condition(threading.Lock()), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
