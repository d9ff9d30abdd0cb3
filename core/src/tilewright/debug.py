"""Debugging of kernels from Python.

    report = tw.debug.watch(kernel)[grid](x, out, n, BLOCK=1024)
    print(report)

:func:`watch` runs a kernel once and reports the range, the NaN and the infinities of every float
value that it computes, line by line, with the operations in which they begin.
"""

from __future__ import annotations

from tilewright.tools.trace.report import ValueStatistics, WatchReport
from tilewright.tools.trace.watch import watch

__all__ = ["ValueStatistics", "WatchReport", "watch"]
