"""Threads that use the backend under test at once."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.testing import threads
from tilewright_conformance.suite.session import Session


def side_by_side(session: Session, count: int, work: Callable[[int], None]) -> None:
    """:func:`tilewright.testing.threads.side_by_side`, inside of ``session.use()``."""

    def run(own: int) -> None:
        with session.use():
            work(own)

    threads.side_by_side(count, run)
