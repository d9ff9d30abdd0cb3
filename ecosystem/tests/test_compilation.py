"""The limit of a compilation's processor time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpus.compilation import _processor_time, _run_worker


def test_a_child_that_ended_as_it_was_asked_for_takes_no_time() -> None:
    """Its number may still be among its parent's children as it ends; the time since the system
    began is more than any limit."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert _processor_time(child.pid) < time.monotonic() / 2
    assert 0 < _processor_time(os.getpid()) < time.monotonic()


def test_what_a_worker_has_started_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, worker = tmp_path / "started", tmp_path / "worker"
    worker.write_text(
        f"#!/bin/sh\nsleep 300 & echo $! > {started}\n"
        'echo a result >> "$4"\nwhile true; do true; done\n'
    )
    worker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(worker))
    code = tmp_path / "code" / "tilewright"
    code.mkdir(parents=True)
    ended = _run_worker([], "tilewright", code, 0.1, tmp_path)
    assert "processor time" in ended.why and ended.results == ["a result"]
    child = int(started.read_text())
    deadline = time.monotonic() + 60
    while _is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_running(process: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
