"""Threads that use the backend under test at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tilewright_conformance.session import Session


def side_by_side(session: Session, count: int, work: Callable[[int], None]) -> None:
    """Call ``work(0)`` to ``work(count - 1)``, each in a thread of its own; all begin together, inside of ``session.use()``.

    Raises:
        BaseException: of the first thread that raised, when all have ended.
    """
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(own: int) -> None:
        try:
            start.wait()
            with session.use():
                work(own)
        except BaseException as error:  # handed to the case's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(own,)) for own in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
