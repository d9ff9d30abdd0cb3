"""The limit of a compilation's processor time."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from corpus.compilation import _processor_time


def test_a_child_that_ended_as_it_was_asked_for_takes_no_time() -> None:
    """Its number may still be among its parent's children as it ends; the time since the system
    began is more than any limit."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert _processor_time(child.pid) < time.monotonic() / 2
    assert 0 < _processor_time(os.getpid()) < time.monotonic()
