"""Tools for tests and benchmarks of kernels: timing, comparison within tolerances, reports.

What does not live here: anything a kernel needs to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.testing.bench import do_bench
from tilewright.testing.compare import assert_close
from tilewright.testing.report import Benchmark, Mark, perf_report

if TYPE_CHECKING:
    from tilewright.testing.exact import exact_mode, same_algebra
    from tilewright.testing.gradients import assert_gradients, gradcheck

__all__ = [
    "Benchmark",
    "Mark",
    "assert_close",
    "assert_gradients",
    "do_bench",
    "exact_mode",
    "gradcheck",
    "perf_report",
    "same_algebra",
]


def __getattr__(name: str) -> Any:
    if name in ("exact_mode", "same_algebra"):  # which need the passes and the runtime
        from tilewright.testing import exact

        return getattr(exact, name)
    if name in ("assert_gradients", "gradcheck"):
        from tilewright.testing import gradients

        return getattr(gradients, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
