"""Cooperative threads: one for each program, of which one runs at a time.

A program hands over at the end of each iteration of a ``while`` loop, where it may wait for what
another program writes, and when it has ended. So a barrier of the whole grid opens here as it does
where all programs run at once. Where all programs that have not ended wait and memory does not
change any more, none of them will ever go on, which is an error.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from tilewright.errors import ResidencyError


class _StoppedError(BaseException):
    """The run has failed in another program."""


class Turns:
    """The programs of one run that have not ended, in the order of their turns."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, threading.Event]] = deque()
        self._current: tuple[int, threading.Event] | None = None
        self._stuck: dict[int, int] = {}
        self._finished = threading.Event()
        self._stopped = False
        self._error: BaseException | None = None

    def run(self, kernel: str, grid: tuple[int, int, int], program: Callable[[int], None]) -> None:
        """Run ``program(number)`` for each program of the grid; raise the first failure.

        Raises:
            ResidencyError: there are more programs than the process can start threads. None has
                begun then.
        """
        count = grid[0] * grid[1] * grid[2]
        threads: list[threading.Thread] = []
        turns = [threading.Event() for _ in range(count)]
        try:
            for number in range(count):
                made = threading.Thread(
                    target=self._run, args=(number, turns[number], program), daemon=True
                )
                try:
                    made.start()
                except RuntimeError as error:
                    why = f"the process can start no more threads ({error})"
                    raise ResidencyError(kernel, grid, number, why) from error
                threads.append(made)
            self._waiting.extend(enumerate(turns))
            self._next()
            self._finished.wait()
        finally:
            self._stopped = True
            for turn in turns:
                turn.set()
            for made in threads:
                made.join()
        if self._error is not None:
            raise self._error

    def hand_over(self) -> None:
        """Let the other programs have their turns before the running one goes on."""
        current = self._current
        assert current is not None
        if self._waiting:
            current[1].clear()
            if self._stopped:
                raise _StoppedError
            self._waiting.append(current)
            self._next()
            current[1].wait()
        if self._stopped:
            raise _StoppedError

    def never_goes_on(self, version: int) -> bool:
        """Return whether no program can make progress while memory is in state ``version``.

        The running one cannot before memory changes, and neither can the others.
        """
        assert self._current is not None
        self._stuck[self._current[0]] = version
        return all(self._stuck.get(number) == version for number, _ in self._waiting)

    def _run(self, number: int, turn: threading.Event, program: Callable[[int], None]) -> None:
        turn.wait()
        if self._stopped:
            return
        try:
            program(number)
        except _StoppedError:
            return
        except BaseException as error:
            self._error = error
            self._finished.set()
            return
        self._next()

    def _next(self) -> None:
        if self._waiting:
            self._current = self._waiting.popleft()
            self._current[1].set()
        else:
            self._finished.set()
