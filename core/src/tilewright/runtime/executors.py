"""Executors by name, for command lines that distribute work.

processes[:N]     N processes of this machine, as many as it has processors otherwise
threads[:N]       threads of this process
dask://HOST:PORT  the workers of a Dask cluster, whose scheduler listens there; needs the extra
                  ``tilewright[dask]``
ray://HOST:PORT   those of a Ray cluster, whose client server listens there; ``ray://auto`` is
                  the cluster of this machine, ``ray://local`` one that is started for it;
                  ``?gpus=N`` assigns each worker N GPUs of its own; needs the extra
                  ``tilewright[ray]``
MODULE:NAME       an executor of yours (``concurrent.futures.Executor``), or a function without
                  arguments that makes one; modules of the directory where the command runs are
                  found, too
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tilewright.errors import TilewrightError

FORMS = "processes[:N], threads[:N], dask://HOST:PORT, ray://HOST:PORT or MODULE:NAME"


class ExecutorError(TilewrightError, ValueError):
    """A text names no executor, or an unavailable one."""

    page = "reference/tuning#share-results-between-machines"


@contextlib.contextmanager
def opened(text: str) -> Iterator[concurrent.futures.Executor]:
    """Open the named executor for a ``with`` block and shut it down at the end.

    Calls that have not begun by then are cancelled.

    Raises:
        ExecutorError: it names no executor, or an unavailable one.
    """
    if text.startswith("dask://"):
        with _dask(text.removeprefix("dask://")) as cluster:
            yield cluster
        return
    if text.startswith("ray://"):
        with _ray(text.removeprefix("ray://")) as cluster:
            yield cluster
        return
    kind, colon, rest = text.partition(":")
    executor: concurrent.futures.Executor
    if kind == "processes":
        executor = concurrent.futures.ProcessPoolExecutor(
            _count(text, rest), mp_context=multiprocessing.get_context("spawn")
        )
        safe_path = os.environ.get("PYTHONSAFEPATH")
        os.environ["PYTHONSAFEPATH"] = "1"  # no imports before the search path arrives
    elif kind == "threads":
        executor = concurrent.futures.ThreadPoolExecutor(_count(text, rest))
    elif colon and rest.isidentifier():
        executor = _named(text, kind, rest)
    else:
        raise ExecutorError(f"an executor is {FORMS}, not {text!r}")
    try:
        yield executor
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
        if kind == "processes":
            os.environ.pop("PYTHONSAFEPATH")
            if safe_path is not None:
                os.environ["PYTHONSAFEPATH"] = safe_path


def _count(text: str, number: str) -> int:
    if not number:
        return os.cpu_count() or 1
    if not number.isdecimal() or int(number) < 1:
        raise ExecutorError(
            f"the executor {text!r} needs a number of workers above 0 after the colon"
        )
    return int(number)


def _named(text: str, module: str, name: str) -> concurrent.futures.Executor:
    sys.path.append(os.getcwd())
    try:
        # computed: the user names the executor
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ExecutorError(f"there is no executor {text!r} ({error})") from error
    finally:
        sys.path.remove(os.getcwd())
    if callable(found) and not isinstance(found, concurrent.futures.Executor):
        found = found()
    if not isinstance(found, concurrent.futures.Executor):
        raise ExecutorError(
            f"{text} is a {type(found).__name__}, and no concurrent.futures.Executor"
        )
    return found


@contextlib.contextmanager
def _dask(address: str) -> Iterator[concurrent.futures.Executor]:
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise ExecutorError(
            "dask:// needs the package distributed, which the extra tilewright[dask] "
            f"brings ({error})"
        ) from error
    try:
        client = distributed.Client(address)
    except OSError as error:
        raise ExecutorError(f"no Dask scheduler answers at {address!r}: {error}") from error
    with client:
        # pure=False: the same call again is another measurement
        executor: concurrent.futures.Executor = client.get_executor(pure=False)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)


class _RayExecutor(concurrent.futures.Executor):
    """Executor that runs calls as tasks of a Ray cluster, one at a time on each worker."""

    def __init__(self, ray: Any, gpus: float) -> None:
        self._ray = ray
        # a call that kills its worker is not retried: the failure is its result
        self._task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_called)
        self._tasks: list[Any] = []

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> concurrent.futures.Future[Any]:
        task = self._task.remote(fn, args, kwargs)
        self._tasks.append(task)
        found: concurrent.futures.Future[Any] = task.future()
        return found

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            for task in self._tasks:
                self._ray.cancel(task)
        if wait and self._tasks:
            self._ray.wait(self._tasks, num_returns=len(self._tasks))
        self._tasks = []


def _called(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


@contextlib.contextmanager
def _ray(text: str) -> Iterator[concurrent.futures.Executor]:
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise ExecutorError(
            f"ray:// needs the package ray, which the extra tilewright[ray] brings ({error})"
        ) from error
    address, mark, query = text.partition("?")
    name, _, number = query.partition("=")
    if not address or (mark and (name != "gpus" or not number.isdecimal())):
        raise ExecutorError(
            "a Ray cluster is ray://HOST:PORT, ray://auto or ray://local, each with ?gpus=N behind "
            f"it if workers need GPUs, not ray://{text}"
        )
    try:
        ray.init(
            address if address in ("auto", "local") else f"ray://{address}",
            include_dashboard=False if address == "local" else None,
        )
    except (OSError, RuntimeError, ImportError, ValueError) as error:
        ray.shutdown()
        raise ExecutorError(f"no Ray cluster answers at {address!r}: {error}") from error
    executor = _RayExecutor(ray, int(number or 0))
    try:
        yield executor
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        ray.shutdown()
