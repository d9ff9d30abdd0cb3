"""Work that threads do at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Seconds after which a thread is taken to hang.
_PATIENCE = 900


def side_by_side(count: int, work: Callable[[int], object]) -> None:
    """Call ``work(0)`` to ``work(count - 1)``, each in a thread of its own; all begin together.

    Raises:
        BaseException: of the first thread that raised, when all have ended.
        TimeoutError: a thread has not ended after a quarter of an hour.
    """
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(own: int) -> None:
        try:
            start.wait()
            work(own)
        except BaseException as error:  # raised where all are waited for
            failures.append(error)

    threads = [threading.Thread(target=run, args=(own,), daemon=True) for own in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE)
    if failures:
        raise failures[0]
    if any(thread.is_alive() for thread in threads):
        raise TimeoutError(f"a thread has not ended after {_PATIENCE} s")
