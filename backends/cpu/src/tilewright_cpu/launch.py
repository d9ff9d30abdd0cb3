"""Launchers: from a grid and argument values to the pool running the kernel.

There are two. The Python launcher (:mod:`.python_launch`) takes every kind of argument and reports
every error. The native launcher (:mod:`.native_launch`) takes what most launches are made of and
hands everything else to the Python launcher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.environment import LAUNCHERS, chosen
from tilewright.errors import LaunchError
from tilewright.plugins.manifest import Launcher, Parameter
from tilewright_cpu.native_launch import native_launcher
from tilewright_cpu.python_launch import PythonLauncher
from tilewright_cpu.runtime import LoadedKernel
from tilewright_cpu.threading.pool import pool


def make_launcher(
    loaded: LoadedKernel, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher:
    """The callable that starts a loaded kernel: native where that is possible.

    ``TILEWRIGHT_CPU_LAUNCHER=python`` selects the Python launcher.

    Raises:
        LaunchError: the option num_threads is not a number of threads.
    """
    threads = options.get("num_threads") or 0
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 0:
        raise LaunchError(
            f"{loaded.name}: option num_threads must be 0 (all) or a positive number, not "
            f"{threads!r}"
        )
    loaded.record.limit = threads
    running = pool()
    slow = PythonLauncher(loaded, parameters, running)
    if "waits" in loaded.metadata or "cooperative" in loaded.metadata:
        return slow
    if chosen("TILEWRIGHT_CPU_LAUNCHER", LAUNCHERS) != "python" and "bounds" not in loaded.metadata:
        fast = native_launcher(loaded, parameters, slow)
        if fast is not None:
            return fast
    return slow
