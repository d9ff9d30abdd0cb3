"""Times of calls on a GPU, of the device alone, with a cold L2 cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

#: Cycles that the device waits while the host enqueues a call: at first, and at most.
_LEAD, _LONGEST_LEAD = 600_000, 40_000_000


class DeviceTimer:
    """Measures calls on the GPU."""

    def __init__(self) -> None:
        self._spoiler = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        self._leads: defaultdict[str, int] = defaultdict(lambda: _LEAD)

    def seconds(self, name: str, call: Callable[[], Any]) -> float:
        """Return the seconds that the device takes for a call.

        A call whose lead ended before the host had enqueued all of it is measured again with a
        longer lead: else the time would be the host's.
        """
        while True:
            self._spoiler.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(self._leads[name])
            start.record()
            call()
            end.record()
            is_hidden = not start.query()
            end.synchronize()
            if is_hidden or self._leads[name] >= _LONGEST_LEAD:
                return float(start.elapsed_time(end)) * 1e-3
            self._leads[name] *= 2

    def print_exposed(self) -> None:
        """Print which calls wait for the device, so that the host takes part of their times."""
        for name, lead in self._leads.items():
            if lead >= _LONGEST_LEAD:
                print(f"  {name}: waits for the device, so that its time has the host's part")
