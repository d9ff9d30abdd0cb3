"""Times of calls that alternate, on a GPU or a CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


class Stopwatch:
    """Measures calls on a device, ``"cuda"`` or ``"cpu"``.

    A time on a GPU is of the device alone with a cold L2 cache, the median of all rounds. On a CPU
    it is the minimum, since other processes only add to it.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        if device == "cuda":
            from device_times import DeviceTimer

            self._timer: Any = DeviceTimer()

    def alternating(self, calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
        """Return the seconds of each call, by its name."""
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                times[name].append(self._seconds(name, call))
        chosen = statistics.median if self.device == "cuda" else min
        return {name: chosen(taken) for name, taken in times.items()}

    def _seconds(self, name: str, call: Callable[[], Any]) -> float:
        if self.device == "cuda":
            return float(self._timer.seconds(name, call))
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
