"""Successive elimination: slow configurations are timed briefly, and the fastest in full."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright.plugins.manifest import Timer
from tilewright.runtime.devices.timing import OVERHEAD, summarize

#: The quantiles that are reported for each configuration.
QUANTILES: Final = (0.5, 0.2, 0.8)
#: A configuration is dropped if its minimum of the first few times exceeds the best median by this
#: factor.
HOPELESS: Final = 2.0
_FIRST: Final = 3
#: Check interval in repetitions, and factor: a configuration is slower if its lower quantile
#: exceeds the best one's upper quantile by this factor.
_ROUND: Final = 10
_SLOWER: Final = 1.03
#: Time limit of a trial whose ``warmup`` and ``rep`` are not given: ``BASE`` milliseconds plus
#: ``MOST`` times the kernel's time. The first run, all flushes and the caller's work count, loading
#: the kernel does not. At minimum three times are measured.
MOST, BASE = 20.0, 50.0
#: Milliseconds to warm up and to measure for, if time allows.
_WARMUP, _REP = 25.0, 100.0
#: Maximum flushes before a call, and maximum repetitions of late measurements per trial.
_FLUSHES, _ANEW = 16, 10


class _Lead:
    """Cache flushes before each call, which keep the device busy while the host prepares it.

    Time that the device waits for the host would count as the kernel's.


    Attributes:
        flush: milliseconds of one flush on the device; 0 where calls are synchronous, so that the
            host is never late.
        count: the number of flushes.
    """

    def __init__(self, timer: Timer, runs_ahead: bool) -> None:
        self.timer, self.count = timer, 1
        self.flush = timer.measure(timer.flush_cache, 1)[0] if runs_ahead else 0.0

    def measure(self, call: Callable[[], Any]) -> tuple[float, bool]:
        """Measure a call in ms; also return whether the device may have waited for the host.

        The host is late where other threads delay it.
        """
        for _ in range(self.count):
            self.timer.flush_cache()
        prepared = 0.0

        def timed() -> None:
            nonlocal prepared
            begun = time.perf_counter()
            call()
            prepared = (time.perf_counter() - begun) * 1e3

        (taken,) = self.timer.measure(timed, 1)
        late = 0.0 < self.count * self.flush < prepared
        if late:
            self.count = min(_FLUSHES, math.ceil(2 * prepared / self.flush))
        return taken, late


def race(
    timer: Timer,
    call: Callable[[], Any],
    best: Sequence[float] | None,
    *,
    warmup: float | None = None,
    rep: float | None = None,
    deadline: float | None = None,
    runs_ahead: bool = False,
    began: float | None = None,
    after: float = 0.0,
) -> list[float]:
    """Return the median, 20 % and 80 % quantile in ms of ``call()`` with flushed caches.

    Args:
        best: those of the best configuration so far: the measurement ends early where this one is
            clearly slower.
        warmup, rep: milliseconds to warm up and to measure for, however long that takes; where
            neither is given, ``MOST`` and ``BASE`` limit the time.
        deadline: when to end, by ``time.perf_counter``; at minimum one time is taken.
        runs_ahead: whether calls return before the kernel has run, as on a GPU.
        began: when the trial began, by ``time.perf_counter``; where None, now.
        after: milliseconds of the caller's work after the measurement.
    """
    before = 0.0 if began is None else time.perf_counter() - began
    call()  # loads the kernel
    lead, anew = _Lead(timer, runs_ahead), _ANEW
    all_times: list[float] = []
    minimum = math.inf
    bounded = warmup is None and rep is None
    started = last = time.perf_counter()
    longest = 0.0

    def is_spent() -> bool:
        """Return whether another repetition as long as the longest exceeds the time limit."""
        nonlocal last, longest
        now = time.perf_counter()
        last, longest = now, max(longest, now - last)
        if not bounded or len(all_times) < _FIRST:
            return False
        return (before + now - started + longest) * 1e3 + minimum + after > BASE + MOST * minimum

    def measure_for(milliseconds: float) -> tuple[list[float], bool]:
        """Measure until the times add up; also return whether the trial has ended early."""
        nonlocal minimum, anew
        begun, times, total = time.perf_counter(), list[float](), 0.0
        while True:
            taken, late = lead.measure(call)
            if late and anew and (deadline is None or time.perf_counter() < deadline):
                anew -= 1
                continue
            times.append(taken)
            all_times.append(taken)
            minimum = min(minimum, times[-1])
            total += times[-1]
            if (
                (best is not None and _is_lost(all_times, best))
                or (deadline is not None and time.perf_counter() > deadline)
                or is_spent()
            ):
                return times, True
            if total >= milliseconds or (
                len(times) >= 2 * _ROUND
                and (time.perf_counter() - begun) * 1e3 > OVERHEAD * milliseconds
            ):
                return times, False

    wanted = _REP if rep is None else rep
    times, over = measure_for(_WARMUP if warmup is None else warmup)
    if not over and sum(times) < wanted:
        times, over = measure_for(wanted)
        if over:
            times = all_times
    found: list[float] = summarize(times, QUANTILES)
    return found


def _is_lost(times: Sequence[float], best: Sequence[float]) -> bool:
    """Return whether a configuration with these times is slower than the best."""
    if len(times) == _FIRST and min(times) > HOPELESS * best[0]:
        return True
    if len(times) % _ROUND:
        return False
    _, lower, _ = summarize(times, QUANTILES)
    return bool(lower > _SLOWER * best[2])
