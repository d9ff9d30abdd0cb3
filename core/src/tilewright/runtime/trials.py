"""Compiling the configurations of a tuning ahead of measuring them, many at a time."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright.runtime.artifact import Artifact, unpack
from tilewright.runtime.compile import compile_job, compile_kernel
from tilewright.runtime.selection import Selected

if TYPE_CHECKING:
    from tilewright.runtime.jit import JITFunction

T = TypeVar("T")

#: While it holds a list, kernels that are warmed up are added to it instead of being compiled.
collecting: contextvars.ContextVar[list[tuple[JITFunction, Selected]] | None] = contextvars.ContextVar("tilewright_collecting", default=None)


@contextlib.contextmanager
def collect() -> Iterator[list[tuple[JITFunction, Selected]]]:
    """Find out what warm-ups in the block would compile, without compiling."""
    found: list[tuple[JITFunction, Selected]] = []
    token = collecting.set(found)
    try:
        yield found
    finally:
        collecting.reset(token)


def compile_all(
    trials: Sequence[T],
    warmup: Callable[[T], Any],
    *,
    executor: concurrent.futures.Executor | None = None,
    time_limit: float | None = None,
    on_error: Callable[[T, Exception], None],
) -> list[T]:
    """Compile every trial; gives the ones that compiled, in order.

    Args:
        warmup: warms up the kernel of a trial; it is called while :func:`collect` is in force.
        executor: where to compile; a pool of threads, one a core, where None. Jobs and results can be pickled.
        time_limit: seconds that one compilation may take; a trial that takes longer is given up, though its thread or process runs on.
        on_error: called with each trial that failed (``TimeoutError`` for the limit).
    """
    selected: list[tuple[T, JITFunction, Selected]] = []
    for trial in trials:
        try:
            with collect() as found:
                warmup(trial)
        except Exception as error:
            on_error(trial, error)
            continue
        selected.extend((trial, kernel, selection) for kernel, selection in found)
    pending = [(trial, kernel, selection) for trial, kernel, selection in selected if not kernel.is_compiled(selection)]
    failed: set[int] = set()
    if pending:
        own = concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) if executor is None else None
        pool = executor if executor is not None else own
        assert pool is not None
        try:
            jobs = [(trial, kernel, selection, pool.submit(job(selection, pool))) for trial, kernel, selection in pending]
            for trial, kernel, selection, future in jobs:
                try:
                    kernel.adopt(_wait(future, time_limit), selection)
                except concurrent.futures.TimeoutError:
                    future.cancel()
                    failed.add(id(trial))
                    on_error(trial, TimeoutError(f"compilation took longer than {time_limit} s"))
                except Exception as error:
                    failed.add(id(trial))
                    on_error(trial, error)
        finally:
            if own is not None:
                own.shutdown(wait=False, cancel_futures=True)
    done = {id(trial) for trial, _, _ in selected} - failed
    return [trial for trial in trials if id(trial) in done]


def job(selection: Selected, executor: concurrent.futures.Executor | None = None) -> Callable[[], Artifact | bytes]:
    """What compiles a selection in ``executor``, or here; :func:`artifact_of` takes what it gives. For an executor of other processes it can be pickled."""
    if executor is None or isinstance(executor, concurrent.futures.ThreadPoolExecutor):
        return partial(compile_kernel, selection.specialization, selection.backend, selection.target)
    return partial(compile_job, selection.specialization, selection.backend.name, selection.target)


def artifact_of(result: Artifact | bytes) -> Artifact:
    """The artifact that a :func:`job` made."""
    return result if isinstance(result, Artifact) else unpack(result)


def _wait(future: concurrent.futures.Future[Any], time_limit: float | None) -> Any:
    """The result, waiting at most ``time_limit`` seconds from when the job is seen to run."""
    if time_limit is None:
        return future.result()
    while not future.running() and not future.done():
        time.sleep(0.005)
    return future.result(timeout=time_limit)
