"""Python processes that this one starts: they import what this one would, never from the current folder, and end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

from tilewright.environment import seconds

VARIABLE = "TILEWRIGHT_COMPILE_TIME_LIMIT"
#: Seconds that another process may take to generate a kernel's code.
DEFAULT_LIMIT = 1800.0
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


def time_limit() -> float | None:
    """Seconds that another process may take for a kernel's code, as the environment says; None where there is no limit.

    Raises:
        VariableError: it is no number of seconds.
    """
    return seconds(VARIABLE, DEFAULT_LIMIT) or None


def python_command(code: str, *arguments: object) -> list[str]:
    """The command of an interpreter that runs code, with no current folder on its path: what lies there would be imported in the standard library's place."""
    return [sys.executable, "-P", "-c", code, *map(str, arguments)]


def module_path() -> list[str]:
    """Where this process looks for modules. The current folder comes last where it is meant by no name, so that nothing in it hides what is installed."""
    path = [entry for entry in sys.path if entry]
    return path if len(path) == len(sys.path) else [*path, os.getcwd()]


def environment() -> dict[str, str]:
    """The variables of a process that looks for modules where this one does, and then where ``PYTHONPATH`` says by now."""
    said = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys([*module_path(), *said]))}


def end_with_parent(parent: int) -> None:
    """Have this process killed when the thread that started it ends, on Linux; and end at once where the process ``parent`` has ended already.

    For processes whose parent's thread waits for them: a signal like SIGKILL ends the parent without a word to its children.
    """
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.name == "posix" and not _is_alive(parent):
        os._exit(1)


def _is_alive(parent: int) -> bool:
    if os.getppid() == parent:
        return True
    try:
        os.kill(parent, 0)  # what starts interpreters may stand between the two
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def end_with_pipe(handle: int) -> None:
    """End this process when nobody has the other end of a pipe any more, whatever its main thread is at."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            os.read(handle, 1)
        os._exit(1)

    threading.Thread(target=wait, name="tilewright-parent", daemon=True).start()
