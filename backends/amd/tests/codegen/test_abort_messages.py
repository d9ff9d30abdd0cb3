"""The message of a failed assertion if the runtime aborts the process first, as HSA does."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from amd_kernels import checks
from amd_support import emulating

from tilewright_amd.codegen import abort_messages

_there = (
    importlib.util.find_spec("rocm") is not None
    and importlib.util.find_spec("rocm.bindings.hip") is not None
)
pytestmark = [
    pytest.mark.skipif(
        not _there or shutil.which("cc") is None,
        reason="rocm-bindings-hip and a C compiler are needed",
    ),
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or os.uname().machine not in abort_messages._MACHINES,
        reason="for Linux on x86-64 and aarch64",
    ),
]
LINE = "tilewright: kernel checks: an assertion failed: too great ("


def ended(what: str, *options: str, launcher: str = "native") -> subprocess.CompletedProcess[str]:
    program = str(Path(__file__).resolve().parents[1] / "abort_program.py")
    if not options:
        return emulating(program, "gfx942", what, TILEWRIGHT_AMD_LAUNCHER=launcher)
    environment = {
        **os.environ,
        "TILEWRIGHT_AMD_LAUNCHER": launcher,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    environment.pop("TILEWRIGHT_BACKEND", None)
    return subprocess.run(
        [sys.executable, *options, program, "gfx942", what],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


@pytest.mark.parametrize("launcher", ["native", "python"])
def test_an_abort_names_the_assertion_that_failed(launcher: str) -> None:
    done = ended("assertion", launcher=launcher)
    assert done.returncode == -signal.SIGABRT and done.stdout == "before\n", done.stderr
    number = checks.fn.__code__.co_firstlineno + 3
    assert done.stderr.count(LINE) == 1, done.stderr
    assert f"amd_kernels.py:{number}, in checks)" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("what", "options"), [("assertion", ("-X", "faulthandler")), ("handler after", ())]
)
def test_handlers_of_others_do_their_work(what: str, options: tuple[str, ...]) -> None:
    done = ended(what, *options)
    assert done.returncode == -signal.SIGABRT, done.stderr
    assert (
        done.stderr.count(LINE) == 1
        and "Fatal Python error: Aborted" in done.stderr
        and "abort_program.py" in done.stderr
    ), done.stderr


@pytest.mark.parametrize("what", ["address", "other"])
def test_other_aborts_are_as_they_were(what: str) -> None:
    done = ended(what)
    assert done.returncode == -signal.SIGABRT and "tilewright:" not in done.stderr, done.stderr


def test_a_child_leaves_its_parents_kernels_alone() -> None:
    done = ended("child")
    assert done.returncode == 0 and "tilewright:" not in done.stderr, done.stderr
