"""Python child processes: their module path, environment and time limit; they end with the parent.

They import what this process would import, and never from the current folder.
"""

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
_PATH_VARIABLE = "PYTHONPATH"
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


def time_limit() -> float | None:
    """Return the seconds that another process may take for a kernel's code; None for no limit.

    Raises:
        VariableError: it is no number of seconds.
    """
    return seconds(VARIABLE, DEFAULT_LIMIT) or None


def python_command(code: str, *arguments: object) -> list[str]:
    """Build the command of an interpreter that runs ``code`` with the module path of this process.

    Until it runs the code, that interpreter searches installed packages only: at its start it would
    otherwise import ``sitecustomize`` from the current folder and follow variables that this
    interpreter ignores.
    """
    return [
        sys.executable,
        *_flags(),
        "-P",
        "-c",
        f"import sys\nsys.path[:] = {module_path()!r}\n{code}",
        *map(str, arguments),
    ]


def _flags() -> list[str]:
    """Return this interpreter's isolation flags, for the command line of another interpreter."""
    if sys.flags.isolated:
        return ["-I"]
    disabled = {
        "-E": sys.flags.ignore_environment,
        "-s": sys.flags.no_user_site,
        "-S": sys.flags.no_site,
    }
    return [flag for flag, is_set in disabled.items() if is_set]


def module_path() -> list[str]:
    """Return the module search path of this process, followed by the current ``PYTHONPATH``.

    Entries that name the current folder implicitly come after the installed packages, so that
    nothing in that folder shadows a package.
    """
    path = [entry for entry in sys.path if entry]
    current = [os.getcwd()] if len(path) != len(sys.path) else []
    said = () if sys.flags.ignore_environment else _absolute(os.environ.get(_PATH_VARIABLE, ""))
    return list(dict.fromkeys([*path, *current, *said]))


def environment() -> dict[str, str]:
    """Return this environment with a ``PYTHONPATH`` without entries relative to the current folder.

    Such entries would let a child import from the folder it runs in.
    """
    said = _absolute(os.environ.get(_PATH_VARIABLE, ""))
    others = {name: value for name, value in os.environ.items() if name != _PATH_VARIABLE}
    return {**others, _PATH_VARIABLE: os.pathsep.join(said)} if said else others


def _absolute(path: str) -> list[str]:
    return [entry for entry in path.split(os.pathsep) if os.path.isabs(entry)]


def end_with_parent(parent: int) -> None:
    """Have Linux kill this process when the thread that started it ends.

    Where the process ``parent`` has ended already, this process exits at once.

    For processes whose parent's thread waits for them: a signal like SIGKILL ends the parent
    without a word to its children.
    """
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(
                _SET_PARENT_DEATH_SIGNAL, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0
            )
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
    """Exit this process once the other end of a pipe closes, whatever the main thread is doing."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            os.read(handle, 1)
        os._exit(1)

    threading.Thread(target=wait, name="tilewright-parent", daemon=True).start()
