"""Scopes: names that launches are recorded under, for each thread.

They are NVTX ranges, too, where PyTorch or the package ``nvtx`` brings these.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ContextDecorator, contextmanager
from typing import Any

from tilewright.compat.triton import knobs


class _Open(threading.local):
    """The scopes and states that a thread is in, outermost first.

    ``states`` are recorded innermost, below the scopes.
    """

    def __init__(self) -> None:
        self.scopes: list[tuple[str, int]] = []
        self.states: list[str] = []


open_ = _Open()


def path() -> tuple[str, ...]:
    """The names that a launch of this thread is recorded under."""
    return (*(name for name, _ in open_.scopes), *open_.states)


def enter_scope(name: str, *, metrics: Mapping[str, Any] | None = None) -> int:
    """Begin a scope, and return the thread's number of scopes.

    ``metrics`` are added to those of the scope in every active session.
    """
    from tilewright.compat.triton.profiler import session

    open_.scopes.append((name, time.perf_counter_ns()))
    session.add_metrics(path(), metrics)
    _range(True, name)
    return len(open_.scopes)


def exit_scope(name: str | None = None, *, metrics: Mapping[str, Any] | None = None) -> int:
    """End the innermost scope; gives how many are left.

    Raises:
        ValueError: the thread is in no scope, or in another than ``name``.
    """
    from tilewright.compat.triton.profiler import session

    if not open_.scopes:
        raise ValueError("exit_scope() where no scope was entered in this thread")
    if name is not None and open_.scopes[-1][0] != name:
        raise ValueError(
            f"exit_scope({name!r}) in scope {open_.scopes[-1][0]!r}: the innermost scope ends first"
        )
    session.add_metrics(path(), metrics)
    open_.scopes.pop()
    _range(False, "")
    return len(open_.scopes)


class scope(ContextDecorator):  # noqa: N801 (Triton's names)
    """``with scope("name"):``, or a decorator.

    Args:
        metrics: name -> number, which is added to the scope's each time it is entered.
    """

    def __init__(self, name: str, metrics: Mapping[str, Any] | None = None) -> None:
        self.name, self.metrics = name, metrics

    def _recreate_cm(self) -> scope:
        return type(self)(self.name, self.metrics)

    def __enter__(self) -> scope:
        enter_scope(self.name, metrics=self.metrics)
        return self

    def __exit__(self, *error: object) -> None:
        exit_scope(self.name)


class cpu_timed_scope(scope):  # noqa: N801
    """A scope whose own wall time is recorded, as ``cpu_time (ns)``.

    Raises:
        ValueError: ``metrics`` have that name.
    """

    metric = "cpu_time (ns)"

    def __init__(self, name: str, metrics: Mapping[str, Any] | None = None) -> None:
        if metrics and any(key.startswith("cpu_time") for key in metrics):
            raise ValueError(
                f"the scope {name!r} records cpu_time itself: give its metrics other names"
            )
        super().__init__(name, metrics)

    def __exit__(self, *error: object) -> None:
        begun = open_.scopes[-1][1]
        exit_scope(self.name, metrics={self.metric: time.perf_counter_ns() - begun})


def enter_state(name: str) -> None:
    """Record launches of this thread below ``name``, in any scope, until :func:`exit_state`."""
    open_.states.append(name)


def exit_state() -> None:
    """End the innermost state.

    Raises:
        ValueError: the thread is in none.
    """
    if not open_.states:
        raise ValueError("exit_state() where no state was entered in this thread")
    open_.states.pop()


@contextmanager
def state(name: str) -> Iterator[None]:
    """``with state("name"):``, or a decorator; see :func:`enter_state`."""
    enter_state(name)
    try:
        yield
    finally:
        exit_state()


def _range(begins: bool, name: str) -> None:
    if not knobs.proton.enable_nvtx:
        return
    entries = _ranges()
    if entries is not None:
        push, pop = entries
        push(name) if begins else pop()


def _ranges() -> tuple[Callable[[str], Any], Callable[[], Any]] | None:
    """Return the functions that begin and end a range, or None.

    They are of the package ``nvtx`` or of PyTorch, where the program has imported one of them and
    PyTorch has CUDA.
    """
    package = sys.modules.get("nvtx")
    if package is not None:
        return package.push_range, package.pop_range
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.cuda is not None and torch.cuda.is_initialized():
        return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    return None
