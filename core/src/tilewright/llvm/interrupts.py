"""Calls that an interrupt does not come in the middle of.

LLVM is called under a lock of llvmlite's, which a KeyboardInterrupt between taking it and the call would leave taken: every other thread that compiles would
wait for good. While such a call lasts an interrupt of the main thread is noted; it is raised when the call has ended.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Deferred:
    """A ``with`` block that notes interrupts and raises them at its end. Elsewhere than in the main thread there are none."""

    def __init__(self) -> None:
        self.came = False
        self.before: Callable[[int, FrameType | None], object] | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGINT)
        if callable(before):
            self.before = before
            try:
                signal.signal(signal.SIGINT, self._note)
            except ValueError:  # not the main interpreter, which gets all signals
                self.before = None

    def __exit__(self, *error: object) -> None:
        if self.before is None:
            return
        signal.signal(signal.SIGINT, self.before)
        if self.came:
            signal.raise_signal(signal.SIGINT)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True


def uninterrupted(function: Callable[P, R]) -> Callable[P, R]:
    """The function, during whose calls interrupts wait."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _Deferred():
            return function(*args, **kwargs)

    return call
