"""Debugging of kernels from Python.

    report = tw.debug.watch(kernel)[grid](x, out, n, BLOCK=1024)
    print(report)

:func:`watch` runs a kernel once and reports the range, the NaN and the infinities of every float
value that it computes, line by line, with the operations in which they begin. :func:`bisect` names
the compilation step that changes a kernel's results.
"""

from __future__ import annotations

from tilewright.tools.bisect.search import Bisection, CompilationStep, bisect
from tilewright.tools.trace.report import ValueStatistics, WatchReport
from tilewright.tools.trace.watch import watch

__all__ = ["Bisection", "CompilationStep", "ValueStatistics", "WatchReport", "bisect", "watch"]
