"""Timing kernels; the clock itself is the runtime's, because the autotuner needs it too."""

from __future__ import annotations

from tilewright.runtime.devices.timing import RETURN_MODES, WallTimer, do_bench, summarize

__all__ = ["RETURN_MODES", "WallTimer", "do_bench", "summarize"]
