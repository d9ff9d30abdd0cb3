"""Executors by name, for command lines: where the work of a fleet is done.

processes[:N]     N processes of this machine, as many as it has processors otherwise
threads[:N]       threads of this process
dask://HOST:PORT  the workers of a Dask cluster, whose scheduler listens there; needs the extra ``tilewright[dask]``
MODULE:NAME       an executor of yours (``concurrent.futures.Executor``), or a function without arguments that makes one
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import multiprocessing
import os
from collections.abc import Iterator

FORMS = "processes[:N], threads[:N], dask://HOST:PORT or MODULE:NAME"


class ExecutorError(ValueError):
    """A text names no executor, or one that is not to be had."""


@contextlib.contextmanager
def opened(text: str) -> Iterator[concurrent.futures.Executor]:
    """The executor that a text names, for the length of a ``with`` block, at whose end it is shut down; what was not begun by then is not done.

    Raises:
        ExecutorError: it names none, or one that is not to be had.
    """
    if text.startswith("dask://"):
        with _dask(text.removeprefix("dask://")) as cluster:
            yield cluster
        return
    kind, colon, rest = text.partition(":")
    executor: concurrent.futures.Executor
    if kind == "processes":
        executor = concurrent.futures.ProcessPoolExecutor(_count(text, rest), mp_context=multiprocessing.get_context("spawn"))
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


def _count(text: str, number: str) -> int:
    if not number:
        return os.cpu_count() or 1
    if not number.isdecimal() or int(number) < 1:
        raise ExecutorError(f"the executor {text!r} needs a number of workers above 0 after the colon")
    return int(number)


def _named(text: str, module: str, name: str) -> concurrent.futures.Executor:
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ExecutorError(f"there is no executor {text!r} ({error})") from error
    if callable(found) and not isinstance(found, concurrent.futures.Executor):
        found = found()
    if not isinstance(found, concurrent.futures.Executor):
        raise ExecutorError(f"{text} is a {type(found).__name__}, and no concurrent.futures.Executor")
    return found


@contextlib.contextmanager
def _dask(address: str) -> Iterator[concurrent.futures.Executor]:
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise ExecutorError(f"dask:// needs the package distributed, which the extra tilewright[dask] brings ({error})") from error
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
