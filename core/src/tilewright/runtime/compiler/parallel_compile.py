"""Parallel compilation of a tuning's configurations: in workers, threads or an executor."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.llvm.codegen.interrupts import uninterrupted
from tilewright.runtime.compiler.compile import build_module, cache_key, compile_job, compile_kernel
from tilewright.runtime.compiler.config import Config
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.storage.artifact import Artifact, unpack
from tilewright.runtime.storage.disk_cache import disk_cache

if TYPE_CHECKING:
    from tilewright.ir import Module
    from tilewright.runtime.compiler.worker_server import LoweringJob
    from tilewright.runtime.compiler.workers import WorkerPool

#: Minimum number of kernels for which starting workers pays off.
WORKERS_FROM = 3
#: Threads that wait for a worker: some link what another has lowered meanwhile.
_WAITING = 2
#: Polling interval in seconds for jobs with a time limit, and for signals where the system does not
#: wake waiting threads.
_LOOK, _LOOK_FOR_SIGNALS = 0.02, 0.2


class Adopter(Protocol):
    """A kernel whose specialisations are compiled elsewhere."""

    def is_compiled(self, selected: Selected) -> bool:
        """Return whether a selection's kernel is in memory."""
        ...

    def adopt(self, compiled: Any, selected: Selected) -> Any:
        """Adopt the kernel of a selection: the result of a :func:`job`."""
        ...


#: While it holds a list, kernels that are warmed up are added to it instead of being compiled.
collecting: contextvars.ContextVar[list[tuple[Adopter, Selected]] | None] = contextvars.ContextVar(
    "tilewright_collecting", default=None
)


@contextlib.contextmanager
def collect() -> Iterator[list[tuple[Adopter, Selected]]]:
    """Collect the kernels that warm-ups in the block request, without compiling them."""
    found: list[tuple[Adopter, Selected]] = []
    token = collecting.set(found)
    try:
        yield found
    finally:
        collecting.reset(token)


@dataclass(eq=False)
class Wanted:
    """A kernel that a trial needs, and its Tile IR once that was made."""

    kernel: Adopter
    selection: Selected
    _module: Module | None = field(default=None, repr=False)

    def module(self) -> Module:
        """The kernel's Tile IR as the frontend built it; must not be modified.

        Raises:
            CompilationError: the source breaks a rule of the language.
        """
        if self._module is None:
            self._module = build_module(
                self.selection.specialization, self.selection.backend, self.selection.target
            )
        return self._module


@dataclass(eq=False)
class Trial:
    """A configuration, and the kernels that a launch of it runs."""

    config: Config
    wanted: list[Wanted]


def trials_of(
    configs: Sequence[Config],
    warmup: Callable[[Config], Any],
    on_error: Callable[[Config, Exception], None],
) -> list[Trial]:
    """Make the trials of configurations.

    Args:
        warmup: warms up the kernel of a configuration; it is called while :func:`collect` is in
            force.
        on_error: called with each configuration that cannot be launched.
    """
    found = []
    for config in configs:
        try:
            with collect() as collected:
                warmup(config)
        except Exception as error:
            on_error(config, error)
            continue
        found.append(Trial(config, [Wanted(kernel, selection) for kernel, selection in collected]))
    return found


def compile_trials(
    trials: Sequence[Trial],
    *,
    executor: concurrent.futures.Executor | None = None,
    time_limit: float | None = None,
    deadline: float | None = None,
    beside: bool = False,
    on_error: Callable[[Config, Exception], None],
) -> Generator[Config, None, None]:
    """Compile every trial; yield each configuration when its kernels are ready.

    Of several that are ready the first in order comes first.

    Closing the iterator abandons the rest and ends their workers. Interrupts are delivered only
    where no lock of a job is held, since it would never be released.

    Args:
        executor: where to compile: where None, worker processes, else a pool of threads. Jobs and
            results can be pickled.
        time_limit: seconds that one compilation may take; a trial that takes longer is given up.
        deadline: when to wait no longer for the rest, by ``time.perf_counter``, once one was given.
        beside: whether to yield ready configurations while others compile, if compiling leaves this
            interpreter idle.
        on_error: called with each configuration that failed (``TimeoutError`` for the limit).
    """
    pending = [
        (trial, wanted)
        for trial in trials
        for wanted in trial.wanted
        if not wanted.kernel.is_compiled(wanted.selection)
    ]
    place = _place(pending, executor)
    try:
        yield from _compiled(
            trials, pending, place, time_limit, deadline, beside and place.beside, on_error
        )
    finally:
        place.end()


@dataclass
class _Place:
    """Executor of compile jobs.

    Attributes:
        submit: starts a job.
        end: abandons unfinished jobs.
        beside: whether jobs leave the interpreter of this process alone.
        limited: whether jobs keep to the time limit by themselves.
    """

    submit: Callable[[Wanted, float | None], concurrent.futures.Future[Any]]
    end: Callable[[], None]
    beside: bool
    limited: bool = False


def _place(
    pending: Sequence[tuple[Trial, Wanted]], executor: concurrent.futures.Executor | None
) -> _Place:
    from tilewright.runtime.compiler.workers import workers_serve

    if executor is not None:
        given = executor
        threads = isinstance(executor, concurrent.futures.ThreadPoolExecutor)
        return _Place(
            lambda wanted, _: given.submit(job(wanted.selection, given)), lambda: None, not threads
        )
    if len(pending) >= WORKERS_FROM and workers_serve(pending[0][1].selection.backend.name):
        return _worker_place(pending[0][1].selection)
    own = concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1)
    return _Place(
        lambda wanted, _: uninterrupted(own.submit)(job(wanted.selection)),
        lambda: own.shutdown(wait=False, cancel_futures=True),
        False,
    )


def _worker_place(first: Selected) -> _Place:
    from tilewright.runtime.compiler.worker_server import give_way
    from tilewright.runtime.compiler.workers import worker_count, worker_pool

    pool = worker_pool()
    pool.prepare(_job_of(first, "", ""))
    threads = concurrent.futures.ThreadPoolExecutor(
        _WAITING * worker_count(), "tilewright-workers", give_way
    )
    futures: list[concurrent.futures.Future[Any]] = []
    lowered: dict[Any, concurrent.futures.Future[Any]] = {}
    owner = threading.Event()

    def submit(wanted: Wanted, time_limit: float | None) -> concurrent.futures.Future[Any]:
        selection = wanted.selection
        key = cache_key(selection.specialization, selection.backend, selection.target)
        kept = (
            disk_cache().get(key, selection.specialization.fn.__name__) if key is not None else None
        )
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        if kept is not None:
            future.set_result(kept)
            return future
        try:
            # here, so that no thread competes with who measures for the interpreter
            module = str(wanted.module())
        except Exception as error:
            future.set_exception(error)
            return future
        same = _what_is_lowered(selection, module)
        if same in lowered:
            return _copied(lowered[same], key or "")
        future = lowered[same] = uninterrupted(threads.submit)(
            _lowered, pool, _job_of(selection, module, key or ""), selection, time_limit, owner
        )
        futures.append(future)
        return future

    def end() -> None:
        threads.shutdown(wait=False, cancel_futures=True)
        if any(not future.done() for future in futures):
            pool.end_busy(owner)

    return _Place(submit, end, True, limited=True)


def _what_is_lowered(selection: Selected, module: str) -> Any:
    """Return a key that is equal for selections of one tuning with the same machine code."""
    backend = selection.backend
    relevant = {
        name: value
        for name, value in selection.specialization.options.items()
        if name not in backend.manifest.ignored
    }
    key = backend.completed(selection.target).key
    return module, backend.name, key, repr(sorted(relevant.items()))


def _copied(first: concurrent.futures.Future[Any], key: str) -> concurrent.futures.Future[Any]:
    """Make a future of another job's artifact under a different key, stored in the disk cache."""
    found: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def copy(done: concurrent.futures.Future[Any]) -> None:
        try:
            artifact: Artifact = done.result()
            code = replace(
                artifact.code,
                stages=dict(artifact.code.stages),
                metadata=dict(artifact.code.metadata),
            )
            mine = replace(artifact, key=key, code=code)
            if key:
                disk_cache().put(mine)
        except BaseException as error:
            found.set_exception(error)
        else:
            found.set_result(mine)

    first.add_done_callback(copy)
    return found


def _job_of(selection: Selected, module: str, key: str) -> LoweringJob:
    from tilewright.runtime.compiler.worker_server import LoweringJob

    target = selection.backend.completed(selection.target)
    return LoweringJob(
        module,
        dict(selection.specialization.options),
        selection.backend.name,
        target,
        key,
        dict(os.environ),
    )


def _lowered(
    pool: WorkerPool,
    job: LoweringJob,
    selection: Selected,
    time_limit: float | None,
    owner: threading.Event,
) -> Artifact:
    """Lower a job in a worker, link it here, and store the artifact in the disk cache."""
    from tilewright.runtime.compiler.workers import UnsendableError

    try:
        artifact = unpack(pool.lower(job, time_limit, owner))
    except UnsendableError:
        return compile_kernel(selection.specialization, selection.backend, selection.target)
    linked = selection.backend.call("tilewright_link", code=artifact.code, target=job.target)
    if linked is not None:
        artifact.code = linked
    if artifact.key:
        disk_cache().put(artifact)
    return artifact


def _compiled(
    trials: Sequence[Trial],
    pending: Sequence[tuple[Trial, Wanted]],
    place: _Place,
    time_limit: float | None,
    deadline: float | None,
    beside: bool,
    on_error: Callable[[Config, Exception], None],
) -> Generator[Config, None, None]:
    ended: queue.SimpleQueue[concurrent.futures.Future[Any]] = queue.SimpleQueue()
    jobs: dict[concurrent.futures.Future[Any], tuple[Trial, Wanted]] = {}
    for trial, wanted in pending:
        future = place.submit(wanted, time_limit)
        jobs[future] = trial, wanted
        uninterrupted(future.add_done_callback)(ended.put)
    waiting = {id(trial): sum(other is trial for other, _ in pending) for trial in trials}
    limit = None if place.limited else time_limit
    begun: dict[concurrent.futures.Future[Any], float] = {}
    over: set[concurrent.futures.Future[Any]] = set()
    failed: set[int] = set()
    todo = list(trials)
    while todo:
        with contextlib.suppress(queue.Empty):
            while True:
                over.add(ended.get_nowait())
        if limit is not None:
            over.update(future for future in jobs if _is_late(future, limit, begun))
        over &= jobs.keys()  # what was late may end after all
        expired = deadline is not None and time.perf_counter() > deadline
        if beside or expired or len(over) == len(jobs):
            for future in [future for future in jobs if future in over]:
                trial, wanted = jobs.pop(future)
                try:
                    wanted.kernel.adopt(_result(future, time_limit), wanted.selection)
                    waiting[id(trial)] -= 1
                except Exception as error:
                    if id(trial) not in failed:
                        failed.add(id(trial))
                        on_error(trial.config, error)
            over.clear()
            todo = [trial for trial in todo if id(trial) not in failed]
            ready = next((trial for trial in todo if not waiting[id(trial)]), None)
            if ready is not None:
                todo.remove(ready)
                yield ready.config
                continue
            if expired and len(todo) + len(failed) < len(trials):
                return
        if jobs:
            looking = limit is not None or deadline is not None
            with contextlib.suppress(queue.Empty):
                over.add(ended.get(timeout=_LOOK if looking else _LOOK_FOR_SIGNALS))


@uninterrupted
def _result(future: concurrent.futures.Future[Any], time_limit: float | None) -> Any:
    if not future.done():
        future.cancel()
        raise TimeoutError(f"compilation took longer than {time_limit} s")
    return future.result()


@uninterrupted
def _is_late(
    future: concurrent.futures.Future[Any],
    limit: float,
    begun: dict[concurrent.futures.Future[Any], float],
) -> bool:
    """Return whether a job has been observed running for longer than its limit."""
    return (
        future.running()
        and time.perf_counter() - begun.setdefault(future, time.perf_counter()) > limit
    )


def job(
    selection: Selected, executor: concurrent.futures.Executor | None = None
) -> Callable[[], Artifact | bytes]:
    """Make the function that compiles a selection in ``executor``, or here.

    :func:`artifact_of` unpacks its result. For an executor of other processes it can be pickled.
    """
    if executor is None or isinstance(executor, concurrent.futures.ThreadPoolExecutor):
        return partial(
            compile_kernel, selection.specialization, selection.backend, selection.target
        )
    return partial(compile_job, selection.specialization, selection.backend.name, selection.target)


def artifact_of(result: Artifact | bytes) -> Artifact:
    """Return the artifact in a :func:`job`'s result."""
    return result if isinstance(result, Artifact) else unpack(result)
