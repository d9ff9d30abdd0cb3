"""Calls that no interrupt (``KeyboardInterrupt``) cuts short.

LLVM is called under a lock of llvmlite's, which a KeyboardInterrupt between taking it and the call
would leave taken: every other thread that compiles would wait for good. There are two ways round
that:

- Short calls are :func:`uninterrupted`: while one lasts an interrupt of the main thread is noted;
  it is raised when the call has ended.
- Long ones, which generate code, are :func:`abandonable`: the main thread has another thread make
  the call, and waits for it with signals handled. Where a handler raises, the other thread is left
  to itself: it ends its call, releases the lock and throws the result away. LLVM cannot be
  stopped, so that until then others that need it wait, and so does the interpreter's end.
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
    """A ``with`` block that defers interrupts to its end.

    Only the main thread has any.
    """

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


#: Threads whose calls were abandoned, and may not have ended yet.
_abandoned: list[threading.Thread] = []
#: Seconds between looks for signals, where a system does not wake who waits for a lock.
_LOOK = 0.1


class _Call(threading.Thread):
    """A call in a thread of its own. The interpreter ends after it."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(name="tilewright code generation", daemon=False)
        self.call, self.result, self.error = call, None, None
        self.ended = threading.Event()

    result: object
    error: BaseException | None

    def run(self) -> None:
        try:
            self.result = self.call()
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()


def abandonable(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function: its calls from the main thread end at once when a signal handler raises."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if threading.current_thread() is not threading.main_thread():
            return function(*args, **kwargs)
        work = _Call(functools.partial(function, *args, **kwargs))
        try:
            try:
                work.start()
            except RuntimeError:  # no threads here, or no more: the interpreter ends
                return uninterrupted(function)(*args, **kwargs)
            while not work.ended.wait(_LOOK):
                pass
        except BaseException:
            if not work.ended.is_set():
                _abandoned.append(work)
            raise
        if work.error is not None:
            try:
                raise work.error
            finally:
                del work.error  # whose traceback holds this frame
        return work.result  # type: ignore[return-value]

    return call


def let_abandoned_end() -> None:
    """Wait, with signals handled, until no abandoned call needs LLVM any more.

    It is for callers of LLVM without the means to be interrupted.
    """
    while _abandoned:
        work = _abandoned[0]
        while work.is_alive():
            work.join(_LOOK)
        if work in _abandoned:
            _abandoned.remove(work)


def uninterrupted(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that interrupts are delivered after its calls, not during them."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _Deferred():
            return function(*args, **kwargs)

    return call
