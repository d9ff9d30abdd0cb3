"""Tools for tests and benchmarks of kernels: timing, comparison within tolerances, reports.

What does not live here: anything a kernel needs to run.
"""

from __future__ import annotations

from tilewright.testing.bench import do_bench
from tilewright.testing.compare import assert_close
from tilewright.testing.report import Benchmark, Mark, perf_report

__all__ = ["Benchmark", "Mark", "assert_close", "do_bench", "perf_report"]
