"""Tilewright's environment variables: their meanings, and readers for booleans and enumerations.

A backend's own variables begin with ``TILEWRIGHT_`` and its name.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping, Sequence

from tilewright.errors import VariableError

PREFIX = "TILEWRIGHT_"
ALLOW_GLOBALS = "TILEWRIGHT_ALLOW_NON_CONSTEXPR_GLOBALS"
CHECKED = "TILEWRIGHT_CHECKED"

#: variable -> (what it may be, what it means), in the order of the page that lists them
VARIABLES: dict[str, tuple[str, str]] = {
    "TILEWRIGHT_BACKEND": (
        "a backend's name",
        "the backend of launches that do not name one; `reference` is the interpreter",
    ),
    "TILEWRIGHT_DEBUG": (
        "0 or 1",
        "1: compile `device_assert`, overflow checks and, on the CPU, bounds checks; if an "
        "argument is a view, these checks allow accesses to the whole array",
    ),
    CHECKED: (
        "0 or 1",
        "1: launches that do not name a backend run on the reference interpreter in checked mode",
    ),
    "TILEWRIGHT_VERIFY": (
        "0, 1 or uses",
        "1: verify the IR before and after every pass, and after every stage of the GPU "
        "toolkit; uses: verify only that values are defined before their uses. With both "
        "values, the GPU toolkit also verifies the proxy fences of shared memory",
    ),
    "TILEWRIGHT_WARN_SLOW": (
        "0 or 1",
        "1: warn of missed optimizations, with the reason, when a kernel is compiled for a GPU",
    ),
    ALLOW_GLOBALS: (
        "0 or 1",
        "1: kernels can read any global variable; its value becomes a constant in the code",
    ),
    "TILEWRIGHT_FRONT_END_DEBUGGING": (
        "0 or 1",
        "1: errors of the frontend keep the traceback of the compiler itself",
    ),
    "TILEWRIGHT_LOG": (
        "compile, cache, tuning or dispatch, separated by commas",
        "enable these loggers of Python's `logging`; they write to standard error unless the "
        "program configures them",
    ),
    "TILEWRIGHT_REPRODUCER_DIR": (
        "a folder",
        "the folder to which reproducers are written: inputs that LLVM or a vendor's tool "
        "rejects. The default is the folder of temporary files",
    ),
    "TILEWRIGHT_CACHE_DIR": (
        "a folder",
        "the folder of compiled kernels and tuning records. The default is in the user's "
        "cache folder",
    ),
    "TILEWRIGHT_CACHE_SIZE": (
        "bytes, or a number with K, M or G",
        "the size limit of the cache; 0: no cache. The default is 2G",
    ),
    "TILEWRIGHT_CACHE_SHARED": (
        "0 or 1",
        "1: use the cache folder even if other users own it or can write to it, see [Cache "
        "security](#cache-security)",
    ),
    "TILEWRIGHT_AUTOTUNE": (
        "on, off, deterministic, refresh, memory or model",
        "the mode of tuning",
    ),
    "TILEWRIGHT_AUTOTUNE_BUDGET": (
        "seconds above 0",
        "the time limit of a tuning",
    ),
    "TILEWRIGHT_AUTOTUNE_CHECK": (
        "off or exact",
        "exact: exclude configurations whose exact results differ from those of the first one",
    ),
    "TILEWRIGHT_AUTOTUNE_INVARIANT": (
        "0 or 1",
        "1: select only configurations that compute the same bits, for all batch sizes",
    ),
    "TILEWRIGHT_TUNING_PATH": (
        "files and folders",
        "tuning records that libraries ship",
    ),
    "TILEWRIGHT_PRINT_AUTOTUNING": (
        "0 or 1",
        "1: print the time of each measured configuration, and the best one",
    ),
    "TILEWRIGHT_PROGRESS": (
        "0 or 1",
        "0: print no progress line while a kernel is tuned",
    ),
    "TILEWRIGHT_WORKERS": (
        "a number of processes",
        "the number of processes that compile for a tuning; 0: threads of this process compile",
    ),
    "TILEWRIGHT_COMPILE_TIME_LIMIT": (
        "seconds; 0 for none",
        "the time limit of a process that generates a kernel's code. The default is 1800",
    ),
    "TILEWRIGHT_PLUGIN_TIME_LIMIT": (
        "seconds; 0 for none",
        "the time limit for importing a plugin and finding its devices. A plugin that exceeds"
        " it is skipped. The default is 60",
    ),
    "TILEWRIGHT_NUM_THREADS": (
        "a number above 0",
        "the number of threads that run kernels on the CPU",
    ),
    "TILEWRIGHT_CORPUS": (
        "a folder",
        "record launches of kernels written for Triton in this folder: names, types, shapes "
        "and options, but no source code",
    ),
    "TILEWRIGHT_TRITON": (
        "0 or 1",
        "1: `import triton` imports Tilewright's implementation in this process",
    ),
}

#: How a backend starts its kernels, as ``TILEWRIGHT_<BACKEND>_LAUNCHER`` says.
LAUNCHERS = ("native", "python")

_ON, _OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


def flag(name: str, default: bool = False) -> bool:
    """Return whether a boolean variable is on.

    Raises:
        VariableError: it is neither on nor off.
    """
    text = os.environ.get(name)
    if text is None:
        return default
    word = text.strip().lower()
    if word not in (*_ON, *_OFF):
        raise refused(name, "0 or 1", text)
    return word in _ON


def chosen(name: str, values: Sequence[str]) -> str:
    """The value of a variable that has a few; the first one where it is not set.

    Raises:
        VariableError: it is another.
    """
    text = os.environ.get(name, "").strip()
    if text and text not in values:
        raise refused(name, values[0] if len(values) == 1 else f"one of {', '.join(values)}", text)
    return text or values[0]


def seconds(name: str, default: float) -> float:
    """A number of seconds, from 0 on.

    Raises:
        VariableError: it is no such number.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= threading.TIMEOUT_MAX:
        raise refused(name, "a number of seconds from 0 on", text)
    return found


def refused(name: str, wanted: str, text: object) -> VariableError:
    """The error for a variable that is to be what ``wanted`` says, and is ``text``."""
    return VariableError(f"{name} must be {wanted}, not {text!r}")


def mistyped(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each unknown variable that is spelled much like a known one.

    Unknown variables without such a resemblance may be a backend's.
    """
    from difflib import get_close_matches

    lines = []
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in VARIABLES:
            meant = get_close_matches(
                name.removeprefix(PREFIX),
                [known.removeprefix(PREFIX) for known in VARIABLES],
                n=1,
                cutoff=0.8,
            )
            if meant:
                lines.append(f"{name} means nothing: did you mean {PREFIX}{meant[0]}?")
    return lines
