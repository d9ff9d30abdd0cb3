"""Progress line of a tuning on a terminal."""

from __future__ import annotations

import sys
import time

from tilewright.environment import flag

#: Seconds before a tuning shows its progress line, and between updates of the line.
_FIRST, _AGAIN = 0.5, 0.1
_WIDTH = 20


class Progress:
    """Progress line on standard error.

    It is drawn on a terminal if ``TILEWRIGHT_PROGRESS`` is not 0, and wiped at the end.
    """

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done, self.failed = name, total, 0, 0
        self._begun = time.perf_counter()
        self._shown, self._next = False, self._begun + _FIRST
        self._on = (
            flag("TILEWRIGHT_PROGRESS", True) and sys.stderr is not None and sys.stderr.isatty()
        )

    def step(self, best: str, *, failed: bool = False) -> None:
        """Advance by one configuration; ``best`` describes the fastest so far."""
        self.done += 1
        self.failed += failed
        if not self._on or time.perf_counter() < self._next:
            return
        self._next, self._shown = time.perf_counter() + _AGAIN, True
        import shutil

        filled = _WIDTH * self.done // max(1, self.total)
        failures = f", {self.failed} failed" if self.failed else ""
        left = (time.perf_counter() - self._begun) / self.done * (self.total - self.done)
        counts = f"{self.done}/{self.total}{failures}, {_spelt(left)} left"
        text = (
            f"tuning {self.name} [{'#' * filled}{'.' * (_WIDTH - filled)}] "
            f"{counts}{f', best {best}' if best else ''}"
        )
        sys.stderr.write("\r\x1b[K" + text[: max(1, shutil.get_terminal_size().columns - 1)])
        sys.stderr.flush()

    def end(self) -> None:
        """Wipe the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _spelt(seconds: float) -> str:
    """Format a duration to the second."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
