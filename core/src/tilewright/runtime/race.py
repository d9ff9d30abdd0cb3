"""Timing the configurations of a tuning against each other: as long as it takes to know that one is not the fastest, and the fastest in full."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright.plugins.manifest import Timer
from tilewright.runtime.timing import OVERHEAD, summarize

#: The quantiles that are told of each configuration.
QUANTILES: Final = (0.5, 0.2, 0.8)
#: A configuration whose shortest time of the first few is so many times the best one's median is hopeless.
HOPELESS: Final = 2.0
_FIRST: Final = 3
#: After each so many times: one whose lower quantile is above the best one's upper quantile by this factor is slower.
_ROUND: Final = 10
_SLOWER: Final = 1.03


def race(
    timer: Timer, call: Callable[[], Any], best: Sequence[float] | None, *, warmup: float = 25, rep: float = 100, deadline: float | None = None
) -> list[float]:
    """The median, the 20 % and the 80 % quantile of the milliseconds that ``call()`` takes, the device's caches flushed before each.

    Args:
        best: those of the best configuration so far: the measurement ends early where this one is slower beyond doubt.
        warmup, rep: milliseconds to warm up and to measure for.
        deadline: when to end, by ``time.perf_counter``; at least one time is taken.
    """
    call()  # loads the kernel
    all_times: list[float] = []

    def measure_for(milliseconds: float) -> tuple[list[float], bool]:
        """Times that add up to so many milliseconds; and whether the race is lost, or over."""
        begun, times, total = time.perf_counter(), list[float](), 0.0
        while True:
            timer.flush_cache()
            times += timer.measure(call, 1)
            all_times.append(times[-1])
            total += times[-1]
            if (best is not None and _is_lost(all_times, best)) or (deadline is not None and time.perf_counter() > deadline):
                return times, True
            if total >= milliseconds or (len(times) >= 2 * _ROUND and (time.perf_counter() - begun) * 1e3 > OVERHEAD * milliseconds):
                return times, False

    times, over = measure_for(warmup)
    if not over and sum(times) < rep:
        times, over = measure_for(rep)
        if over:
            times = all_times
    found: list[float] = summarize(times, QUANTILES)
    return found


def _is_lost(times: Sequence[float], best: Sequence[float]) -> bool:
    """Whether a configuration of these times is slower than the best, whose quantiles are known."""
    if len(times) == _FIRST and min(times) > HOPELESS * best[0]:
        return True
    if len(times) % _ROUND:
        return False
    _, lower, _ = summarize(times, QUANTILES)
    return bool(lower > _SLOWER * best[2])
