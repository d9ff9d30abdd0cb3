"""Progress of a run: one line that is rewritten on a terminal, a line now and then elsewhere.

Cases that go wrong are printed at once; of those that go wrong in one way, only the first ones.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TextIO

from tilewright_conformance.suite.case import Outcome
from tilewright_conformance.suite.expectations import Verdict
from tilewright_conformance.suite.report.document import BAD
from tilewright_conformance.suite.report.failure_groups import general, missing_operations

#: Seconds between lines, on a terminal and elsewhere.
_ON_TERMINAL, _ELSEWHERE = 0.1, 10.0
#: Cases that go wrong in one way and are printed. A backend that lowers little yet has thousands;
#: the end of a run and its reports have them by cause.
_PRINTED = 5


class Printer:
    """Prints the progress of a run; see ``tilewright_conformance.suite.run.Progress``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._terminal = stream, stream.isatty()
        self._counts: Counter[str] = Counter()
        self._alike: Counter[tuple[str, ...]] = Counter()
        self._started = time.monotonic()
        self._last = self._started
        self._before = 0
        self._open = False

    def __call__(
        self, total: int, done: int, outcome: Outcome | None, verdict: Verdict | None
    ) -> None:
        if outcome is None:
            self._before = done
            print(
                f"{total} cases" + (f", {done} of them done before" if done else ""),
                file=self._stream,
                flush=True,
            )
            return
        self._counts[outcome.status] += 1
        if verdict in BAD:
            self._tell(outcome)
        now = time.monotonic()
        if now - self._last > (_ON_TERMINAL if self._terminal else _ELSEWHERE) or done == total:
            self._last = now
            self._line(total, done, now)

    def _tell(self, outcome: Outcome) -> None:
        """Tell of a case that went wrong, if it is one of the first in its way."""
        family = "/".join(outcome.case.split("/")[:2])
        way = (
            ("lower",)
            if missing_operations(outcome.message)
            else (outcome.status, family, general(outcome.message))
        )
        self._alike[way] += 1
        if self._alike[way] > _PRINTED + 1:
            return
        self.end()
        reason = (
            _headline(outcome.message)
            if outcome.message
            else "the expectations say that it does not pass"
        )
        text = f"{outcome.status.upper()} {outcome.case}: {reason}"
        further = "… and further ones like this, which are counted below and in the report"
        print(text if self._alike[way] <= _PRINTED else further, file=self._stream, flush=True)

    def end(self) -> None:
        """End the line that is being rewritten."""
        if self._open:
            print(file=self._stream, flush=True)
            self._open = False

    def _line(self, total: int, done: int, now: float) -> None:
        left = (now - self._started) / max(1, done - self._before) * (total - done)
        counts = ", ".join(f"{count} {status}" for status, count in sorted(self._counts.items()))
        text = f"{done}/{total}  {counts}  {left:.0f} s left"
        if self._terminal:
            print(f"\r\x1b[K{text[:150]}", end="", file=self._stream, flush=True)
            self._open = True
        else:
            print(text, file=self._stream, flush=True)


def _headline(message: str) -> str:
    """The first line of a message, and the first one below it if the first line announces it."""
    first, *rest = message.splitlines()
    return f"{first} {rest[0].strip()}" if first.endswith(":") and rest else first
