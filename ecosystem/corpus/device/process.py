"""A process of :mod:`corpus.device.worker`, which answers one request after the other."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: Seconds that the start of a process may take beyond the limit of its first request.
_START = 40.0
#: Seconds in which a process that has nothing left to do ends by itself.
_END = 10.0


class DeviceProcess:
    """A process for requests; another takes its place where one dies or takes too long.

    Args:
        tensors: the folder that gets what tensors hold.
        log: the file that what the process prints is appended to.
        variables: its environment.
        worker: the module that is run.
    """

    def __init__(
        self,
        tensors: Path,
        log: Path,
        variables: dict[str, str],
        worker: str = "corpus.device.worker",
    ) -> None:
        self._tensors, self._log, self._variables, self._worker = tensors, log, variables, worker
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1

    def ask(self, action: str, number: str, record: dict[str, Any], limit: float) -> dict[str, Any]:
        """The worker's answer, or ``{"error": ...}`` where the process died of it, or took longer
        than ``limit`` seconds.
        """
        if self._process is None:
            self._start()
            limit += _START
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps([action, number, record]).encode() + b"\n")
            process.stdin.flush()
            answer = self._answer(time.monotonic() + limit)
        except BrokenPipeError:
            answer = b""
        if answer is None:
            self._kill()
            return {"error": f"it took longer than {limit:g} s"}
        if not answer:
            code = process.wait()
            self._kill()
            return {"error": f"the process ended with {code}"}
        found: dict[str, Any] = json.loads(answer)
        if found.pop("last", False):  # the device no longer answers this process
            self._kill()
        return found

    def end(self) -> None:
        """Let the process end."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END)
            self._kill()

    def _start(self) -> None:
        self._answers, theirs = os.pipe()
        command = [sys.executable, "-m", self._worker, str(theirs), str(self._tensors)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._variables,
                pass_fds=[theirs],
            )
        os.close(theirs)

    def _answer(self, until: float) -> bytes | None:
        """The next line; empty where the process has ended, None where it does not come in time."""
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self._answers], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            some = os.read(self._answers, 1 << 16)
            if not some:
                return b""
            line += some
        return line

    def _kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        os.close(self._answers)
        self._process = None
