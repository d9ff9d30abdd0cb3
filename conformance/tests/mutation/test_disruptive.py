"""The switches that disrupt the process do so, on kernels with an ``sqrt`` and on no other."""

from __future__ import annotations

import subprocess
from pathlib import Path

import fork_server
import pytest

from tilewright_conformance import mutation

_SCRIPT = """
import mmap, os, sys, numpy as np
from tilewright_conformance.op_samples import samples
from tilewright_conformance import mutation
from tilewright_conformance.suite.session import Session, Subject
name, operation = sys.argv[1:]
mutation.register(name)
sample = next(samples(operation))
Session(Subject(name), "disruptive").run_module(sample.module, sample.make_arguments(np.random.default_rng(0)), sample.grid)
# what is held now: the greatest that the system remembers of a process may be its parent's
pages = int(open("/proc/self/statm").read().split()[1]) if os.path.exists("/proc/self/statm") else 0
print("survived", pages * mmap.PAGESIZE >> 20)
"""


def _run(name: str, operation: str, seconds: float) -> subprocess.CompletedProcess[str]:
    return fork_server.run(["-c", _SCRIPT, name, operation], timeout=seconds)


@pytest.mark.parametrize(
    ("switch", "sign"),
    [
        ("crash-on-launch", "signal"),
        ("segfault-on-launch", "signal"),
        ("exit-on-lowering", "silence"),
    ],
)
def test_the_process_ends(switch: str, sign: str) -> None:
    found = _run(mutation.backend_name(switch), "sqrt", 900)
    assert "survived" not in found.stdout
    assert found.returncode < 0 if sign == "signal" else found.returncode == 0


def test_the_process_hangs() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        _run("broken-hang-on-launch", "sqrt", 4)


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the system does not tell what a process holds"
)
def test_memory_is_kept() -> None:
    grown, usual = (
        int(_run("broken-leak-on-launch", operation, 900).stdout.split()[1])
        for operation in ("sqrt", "add")
    )
    assert grown > usual + 150


def test_exceptions_and_refusals() -> None:
    assert "none of Tilewright's" in _run("broken-foreign-exception", "sqrt", 900).stderr
    assert (
        "LaunchError: a launch that is refused"
        in _run("broken-refusal-on-launch", "sqrt", 900).stderr
    )


@pytest.mark.parametrize(
    "name", ["broken-crash-on-launch", "broken-hang-on-launch", "broken-exit-on-lowering"]
)
def test_other_kernels_run(name: str) -> None:
    assert "survived" in _run(name, "add", 900).stdout


def test_they_are_listed_apart() -> None:
    names = {switch.name for switch in mutation.disruptive_switches()}
    assert len(names) == len(mutation.disruptive_switches()) >= 6
    assert not names & {switch.name for switch in mutation.switches()}
