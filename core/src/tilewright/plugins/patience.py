"""Time limits on the set-up of plugins: one that hangs is named, with where it hangs, and skipped.

Work runs in a thread of its own, which cannot be ended: where the limit is over it is left behind,
as a thread that does not keep the process from ending. Work runs in the calling thread, and without
a limit, where there is none, where no thread can be started, and while a module is imported: the
thread might wait for a lock of that import, which the caller holds.
"""

from __future__ import annotations

import _imp
import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any

from tilewright.environment import seconds

#: Seconds that importing a plugin, and asking it for its devices, may take each.
DEFAULT_LIMIT = 60.0
VARIABLE = "TILEWRIGHT_PLUGIN_TIME_LIMIT"


class HangingError(Exception):
    """Work took longer than its limit; the message says how long, and where it was."""


def time_limit() -> float:
    """The limit in seconds that the environment says; 0 is none.

    Raises:
        VariableError: it is no such number.
    """
    return seconds(VARIABLE, DEFAULT_LIMIT)


def within_limit(limit: float, work: Callable[[], Any]) -> Any:
    """Run ``work`` within a time limit, and return its result or raise its exception.

    Args:
        limit: seconds; 0 is none.

    Raises:
        HangingError: it did neither within the limit.
    """
    if not limit or _importing():
        return work()
    outcome: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            outcome.append((work(), None))
        except BaseException as error:  # the caller's to handle, whatever it is
            outcome.append((None, error))

    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(run,), name="tilewright-plugin", daemon=True
    )
    try:
        thread.start()
    except RuntimeError:  # no more threads, or a platform without them
        return work()
    thread.join(limit)
    if not outcome:
        raise HangingError(f"it did not end within {limit:g} seconds{_where(thread)}")
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


#: Module -> a weak reference to its lock, which a thread holds while it looks for the module, or
#: runs its code to import it; of CPython.
_locks: dict[str, Callable[[], Any]] | None = getattr(
    sys.modules.get("_frozen_importlib"), "_module_locks", None
)


def _importing() -> bool:
    """Return whether any thread is importing a module, or looking for one."""
    if _imp.lock_held():
        return True
    if _locks is None:
        return any(
            getattr(getattr(module, "__spec__", None), "_initializing", False)
            for module in list(sys.modules.values())
        )
    return any(
        getattr(reference(), "owner", None) is not None for reference in list(_locks.values())
    )


def _where(thread: threading.Thread) -> str:
    """The line of Python that a thread is at."""
    frame = sys._current_frames().get(thread.ident or 0)
    return (
        ""
        if frame is None
        else f"; it is at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
    )
