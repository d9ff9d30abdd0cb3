"""Running many cases on several worker processes, each case isolated from the others."""

from __future__ import annotations

import contextlib
import queue
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from tilewright_conformance.suite.case import Case, Outcome, Status
from tilewright_conformance.suite.engine.process import WorkerProcess, WorkerRefusedError
from tilewright_conformance.suite.engine.setup import Setup

#: Workers in a row that may fail to start before a lane stops.
_ATTEMPTS = 3


def default_workers() -> int:
    """The default number of concurrent workers: one for each processor."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def fresh_caches() -> Iterator[dict[str, str]]:
    """Environment variables for workers that share a kernel cache of their own.

    No run sees a result of an older compiler.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-conformance-") as folder:
        yield {"TILEWRIGHT_CACHE_DIR": folder}


class Lane:
    """Runs cases one after the other on a worker process, replaced when it is lost or has grown.

    Raises:
        WorkerRefusedError: (on construction, and from :meth:`run` after several attempts) no worker
            can be started.
    """

    def __init__(self, setup: Setup, environment: dict[str, str]) -> None:
        self._setup, self._environment = setup, environment
        self._worker: WorkerProcess | None = None
        self._first_memory = 0
        self._renew()

    def run(self, case: Case) -> Outcome:
        """Run a case on this lane's worker, as often as the setup says.

        Where a run that passes ends the worker, the next one takes over.
        """
        passed = 0
        while True:
            if self._worker is None or not self._worker.alive:
                self._renew()
            assert self._worker is not None
            outcome = self._worker.run(case, passed)
            passed = self._worker.passed
            if (
                outcome.status in (Status.CRASHED, Status.TIMED_OUT)
                or self._worker.memory - self._first_memory > self._setup.memory // 2
            ):
                self.stop()
            if outcome.status is not Status.PASSED or passed >= self._setup.repeat:
                return outcome

    def stop(self) -> None:
        """End the worker; the next case starts another one."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def abort(self) -> None:
        """End the worker at once, from another thread than the one that waits for its case."""
        worker = self._worker
        if worker is not None:
            worker.kill()

    def _renew(self) -> None:
        self.stop()
        for attempt in range(_ATTEMPTS):
            try:
                self._worker = WorkerProcess(self._setup, self._environment)
                self._first_memory = self._worker.memory
                return
            except WorkerRefusedError:
                if attempt == _ATTEMPTS - 1:
                    raise


def run_cases(
    cases: Sequence[Case],
    setup: Setup,
    *,
    workers: int = 0,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run cases in parallel and return the outcomes in the order of ``cases``.

    Args:
        workers: how many processes run at once; as many as there are processors for 0.
        on_outcome: called, on the thread of the caller, for each outcome as it comes.

    Raises:
        WorkerRefusedError: the backend cannot be loaded, at first or any more. ``on_outcome`` has
            received the outcomes until then.
    """
    waiting = deque(cases)
    found: queue.SimpleQueue[Outcome | BaseException | None] = queue.SimpleQueue()
    stopping = threading.Event()

    lanes: list[Lane] = []

    def serve(environment: dict[str, str]) -> None:
        lane: Lane | None = None
        try:
            while waiting and not stopping.is_set():
                if lane is None:
                    lane = Lane(setup, environment)
                    lanes.append(lane)
                try:
                    case = waiting.popleft()
                except IndexError:
                    break
                found.put(lane.run(case))
        except BaseException as error:
            found.put(error)
        finally:
            if lane is not None:
                lane.stop()
            found.put(None)

    outcomes: dict[str, Outcome] = {}
    count = max(1, min(workers or default_workers(), len(waiting)))
    with fresh_caches() as environment:
        threads = [threading.Thread(target=serve, args=(environment,)) for _ in range(count)]
        for thread in threads:
            thread.start()
        running, failure = count, None
        try:
            while running:
                item = found.get()
                if item is None:
                    running -= 1
                elif isinstance(item, Outcome):
                    outcomes[item.case] = item
                    on_outcome(item)
                else:
                    failure = failure or item
                    stopping.set()
        except (
            BaseException
        ):  # an interrupt, or on_outcome failed: nobody waits for what is running
            stopping.set()
            for lane in lanes:
                lane.abort()
            raise
        finally:
            for thread in threads:
                thread.join()
    if failure is not None:
        raise failure
    return [outcomes[case.id] for case in cases]
