"""One worker process as the pool sees it: it starts, gets a case, is watched, and stops."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tilewright.child_process import environment as child_environment
from tilewright.child_process import python_command
from tilewright_conformance.suite.case import Case, Outcome, Status
from tilewright_conformance.suite.engine.setup import Setup

_WORKER = "from tilewright_conformance.suite.engine.worker import serve; serve()"
#: Seconds between two looks at the memory of a worker that runs a case.
_LOOK = 0.05
#: Bytes that a worker grows by during one case from which on the outcome says so.
_NOTED = 256 << 20
#: Characters of a dead worker's standard error that its outcome quotes.
_QUOTED = 1500


class WorkerRefusedError(RuntimeError):
    """A worker could not start: the backend is missing or broken, or has no device."""


class WorkerProcess:
    """A worker, whose :meth:`run` returns an outcome whatever the backend does to the process.

    A worker that is not :attr:`alive` after it must be replaced.

    Args:
        environment: variables of the process beyond this one's.

    Attributes:
        passed: how many runs of the last case have passed, those of earlier processes among them.

    Raises:
        WorkerRefusedError: the backend cannot be loaded; the message is the backend's own.
    """

    def __init__(self, setup: Setup, environment: dict[str, str] | None = None) -> None:
        self._setup = setup
        # Closed by stop. Appended to, since reading moves the place where the process writes.
        self._errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self._mark, self.passed = 0, 0
        self._process = subprocess.Popen(
            python_command(_WORKER, setup.as_text(), os.getpid()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**child_environment(), **(environment or {})},
            start_new_session=True,
        )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._start()

    @property
    def alive(self) -> bool:
        """Return whether it can take another case."""
        return self._process.poll() is None

    @property
    def memory(self) -> int:
        """Bytes of the process in main memory; 0 where the system does not tell."""
        return resident(self._process.pid)

    def run(self, case: Case, passed: int = 0) -> Outcome:
        """Run a case. The process is killed where it takes too long or too much memory.

        Args:
            passed: how many runs of it have passed in earlier processes.
        """
        self.passed = passed
        started, before = time.monotonic(), self.memory
        self._mark = self._errors.seek(0, os.SEEK_END)
        limit = case.time_limit * self._setup.patience
        try:
            assert self._process.stdin is not None
            self._process.stdin.write((json.dumps([case.id, passed]) + "\n").encode())
            self._process.stdin.flush()
        except OSError:
            return self._died(case, started, "before it could start the case")
        while True:
            left = started + limit - time.monotonic()
            try:
                answer = self._answers.get(timeout=max(0.0, min(_LOOK, left)))
            except queue.Empty:
                grown = self.memory - before
                if grown > self._setup.memory:
                    return self._too_big(case, grown, started)
                if left <= 0:
                    self.kill()
                    text = (
                        f"no result within {limit:g} seconds (--time-scale allows a slow "
                        f"machine more){self._quote()}"
                    )
                    return Outcome(
                        case.id, Status.TIMED_OUT, text, "TimeLimit", {}, time.monotonic() - started
                    )
                continue
            if answer is None:
                return self._died(case, started, "while it ran the case")
            outcome: Outcome | None
            spent, reported = bool(answer.pop("spent", False)), answer.pop("passed", None)
            try:
                outcome = Outcome.from_json(answer)
            except (TypeError, ValueError):
                outcome = None  # not even of the right form
            if (
                outcome is not None
                and outcome.case == case.id
                and isinstance(reported, int)
                and reported >= passed + (outcome.status is Status.PASSED)
            ):
                self.passed = reported
                grown = self.memory - before
                if grown > self._setup.memory:
                    return self._too_big(case, grown, started)
                if spent:
                    self.kill()
                if grown >= _NOTED:
                    outcome = dataclasses.replace(
                        outcome, numbers={**outcome.numbers, "grown_mib": grown >> 20}
                    )
                return outcome
            self.kill()
            return Outcome(
                case.id,
                Status.CRASHED,
                f"the worker process answered {answer!r:.200}, which is no outcome of the case",
                "Garbage",
            )

    def stop(self) -> None:
        """End the process, with every process it has started."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self.kill()
        self._errors.close()

    def kill(self) -> None:
        """End the process at once, with every process of its group."""
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()

    def _start(self) -> None:
        try:
            answer = self._answers.get(timeout=self._setup.start_limit)
        except queue.Empty:
            self.kill()
            raise WorkerRefusedError(
                f"backend {self._setup.backend!r} was not loaded within "
                f"{self._setup.start_limit:g} seconds{self._quote()}"
            ) from None
        if answer is not None and "ready" in answer:
            return
        if answer is not None and "refused" in answer:
            self.stop()
            raise WorkerRefusedError(str(answer["refused"]))
        self._process.wait()
        raise WorkerRefusedError(
            f"loading backend {self._setup.backend!r} ended the process "
            f"({self._ending()}){self._quote()}"
        )

    def _read(self) -> None:
        """Take answers from the process until it ends; on a thread of its own."""
        assert self._process.stdout is not None
        with self._process.stdout as lines, contextlib.suppress(OSError, ValueError):
            for line in lines:
                try:
                    answer = json.loads(line)
                except ValueError:
                    answer = line.decode(errors="replace")
                self._answers.put(answer if isinstance(answer, dict) else {"garbage": str(answer)})
        self._answers.put(None)

    def _too_big(self, case: Case, grown: int, started: float) -> Outcome:
        self.kill()
        text = (
            f"the worker process grew by {grown >> 20} MiB, and one case may take "
            f"{self._setup.memory >> 20} MiB"
        )
        return Outcome(case.id, Status.CRASHED, text, "MemoryLimit", {}, time.monotonic() - started)

    def _died(self, case: Case, started: float, when: str) -> Outcome:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(
                timeout=2
            )  # its output ends a moment before it does; a signal of ours would hide how it ended
        self.kill()
        text = f"the worker process died {when} ({self._ending()}){self._quote()}"
        return Outcome(
            case.id, Status.CRASHED, text, self._ending(), {}, time.monotonic() - started
        )

    def _ending(self) -> str:
        code = self._process.returncode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return signal.Signals(-code).name
        return f"exit code {code}"

    def _quote(self) -> str:
        """The end of what the process wrote to standard error since it was given its case."""
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(max(self._mark, self._errors.seek(0, os.SEEK_END) - _QUOTED))
            text = self._errors.read().decode(errors="replace").strip()
            if text:
                return f"; it wrote:\n{text}"
        return ""


def resident(pid: int) -> int:
    """Bytes of a process in main memory; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
