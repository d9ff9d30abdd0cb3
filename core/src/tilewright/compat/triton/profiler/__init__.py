"""``triton.profiler``: the Proton profiler's interface.

Launches are timed by events of their device, and by the wall clock on CPUs.

    import triton.profiler as proton

    proton.start("run", hook="triton")
    with proton.scope("step", {"flops": 2.0 * m * n * k}):
        kernel[grid](...)
    proton.finalize()                                  # run.hatchet

While no session is active nothing is recorded and launches cost what they always do.
"""

from __future__ import annotations

from tilewright.compat.triton.profiler import language, mode, specs
from tilewright.compat.triton.profiler.scope import (
    cpu_timed_scope,
    enter_scope,
    enter_state,
    exit_scope,
    exit_state,
    scope,
    state,
)
from tilewright.compat.triton.profiler.session import (
    DEFAULT_PROFILE_NAME,
    activate,
    data,
    deactivate,
    finalize,
    profile,
    start,
)

__all__ = [
    "DEFAULT_PROFILE_NAME",
    "activate",
    "cpu_timed_scope",
    "data",
    "deactivate",
    "enter_scope",
    "enter_state",
    "exit_scope",
    "exit_state",
    "finalize",
    "language",
    "mode",
    "profile",
    "scope",
    "specs",
    "start",
    "state",
]
