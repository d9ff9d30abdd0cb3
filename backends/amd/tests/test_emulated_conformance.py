"""The conformance suite through hip-python on emulated devices: random and sensitive cases."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from amd_support import emulating

from tilewright_conformance.suite.case import Status

PROFILES = (
    "core",
    "math",
    "memory",
    "control",
    "matmul",
    "atomics",
    "descriptors",
    "fp8",
    "launch",
    "exact",
)
#: Loads that were moved behind a barrier; a lock whose data came late; words at odd addresses;
#: registers that are exchanged; small quotients; 16 bits; prints; waits at the top of a loop for
#: what its end began.
TELLING = (
    "access/barrier/i32/64", "atomics/lock", "atomics/poll/time/waiting", "branches/for/bounds/i8",
    "control/inline_asm/exchange/pure",
    "math/div_rn/f32/values", "scans/recurrence/i16/32x1_0", "control/print/programs",
    "dots/product/u8/into_i32/2x2x16x32x16",
    "dots/loop/f32/blocks_of_64",
)  # fmt: skip

_there = (
    importlib.util.find_spec("rocm") is not None
    and importlib.util.find_spec("rocm.bindings.hip") is not None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not _there or shutil.which("cc") is None,
        reason="rocm-bindings-hip and a C compiler are needed",
    ),
]


#: Runs cases in the process of the device, without the workers of the suite. The arguments: the
#: target, the seed, how many cases of the profiles are drawn, and the profiles or names of cases.
RUN = """
import sys
from tilewright_conformance.suite.case import PROFILES, Status
from tilewright_conformance.suite.catalogue import catalogue, drawn
from tilewright_conformance.suite.engine.judge import execute
from tilewright_conformance.suite.engine.setup import Setup, load_plugins
from tilewright_conformance.suite.session import Session, Subject

target, seed, sample, *names = sys.argv[1:]
seed = int(seed)
setup = Setup("amd", seed=seed, quick=sample != "0", emulate=target)
emulated, subject = load_plugins(setup), Subject("amd")
if setup.quick:
    cases = catalogue().select(profiles=names, quick=True)
    cases = drawn(cases, int(sample), seed)
else:
    cases = [catalogue()[name] for name in names]
for case in cases:
    found = execute(case, Session(subject, case.id, seed, quick=setup.quick))
    emulated.recover()
    wrong = found.status not in (Status.PASSED, Status.NOT_SUPPORTED)
    print("WRONG" if wrong else "right", case.id, found.status, found.message, emulated.error)
"""


def conforms(target: str, seed: int, sample: int, *names: str) -> None:
    done = emulating("-c", RUN, target, str(seed), str(sample), *names)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("WRONG", "right"))]
    assert done.returncode == 0 and len(lines) == (sample or len(names)), done.stderr
    assert not [line for line in lines if line.startswith("WRONG")], done.stdout + done.stderr
    assert [line for line in lines if f" {Status.PASSED} " in line], done.stdout


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arch", "seed"), [("gfx942", 1), ("gfx950", 2), ("gfx1100", 3), ("gfx1201", 4)]
)
def test_a_part_of_the_suite(arch: str, seed: int) -> None:
    conforms(arch, seed, 16, *PROFILES)


def test_the_suites_command(tmp_path: Path) -> None:
    """Its worker has an emulated device of its own."""
    done = emulating(
        *("-m", "tilewright_conformance", "run", "--backend", "amd", "--emulate", "gfx942"),
        *("-j", "1", "--report", str(tmp_path), "--case", "elementwise/neg/i32/*"),
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", ["gfx1100", "gfx942:lockstep"])
def test_cases_that_told_most(target: str) -> None:
    conforms(target, 0, 0, *TELLING)


@pytest.mark.full
def test_random_programs(tmp_path: Path) -> None:
    done = emulating(
        "-m",
        "tilewright_conformance.fuzz",
        "--backend",
        "amd",
        "--emulate",
        "gfx1100",
        "--count",
        "5",
        "--seed",
        "5",
        "--out",
        str(tmp_path),
    )
    assert done.returncode == 0 and "5 programs, 0 failing" in done.stdout, (
        done.stdout + done.stderr
    )


@pytest.mark.parametrize(
    ("target", "names", "counts"),
    [
        (
            "gfx942",
            ("prefix sum: blocks of 256", "softmax: online, blocks of 64", "softmax: padding"),
            "pairs equal 2/2, bugs caught 1/1",
        ),
        (
            "gfx1100:lockstep",
            ("matmul of float16: blocks of (64*", "group_scale: group", "prefix: carry"),
            "pairs equal 1/1, bugs caught 2/2",
        ),
    ],
)
def test_exact_mode(target: str, names: tuple[str, ...], counts: str) -> None:
    compared = compare(target, *(part for name in names for part in ("--only", name)))
    assert counts in compared


@pytest.mark.full
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1100:lockstep"])
def test_every_comparison_in_exact_mode(target: str) -> None:
    assert "pairs equal 71/71, atomic pairs equal 6/6, bugs caught 17/17" in compare(
        target, timeout=3600
    )


def compare(target: str, *arguments: str, timeout: float = 900) -> str:
    command = ("-m", "tilewright_conformance.exact", "--backend", "amd", "--emulate", target)
    done = emulating(*command, *arguments, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_run_tests(arch: str) -> None:
    done = emulating("-m", "tilewright_conformance.runtests", "--backend", "amd", "--emulate", arch)
    assert done.returncode == 0 and " 0 failed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--backend", "amd", "--emulate", "gfx906"),
            "backend 'amd' has no target 'gfx906'; it has gfx90a,",
        ),
        (
            ("--backend", "amd", "--emulate", "gfx942:sideways"),
            "has no schedule 'sideways'; it has random and lockstep",
        ),
        (("--backend", "cpu", "--emulate", "gfx942"), "backend 'cpu' has no emulator"),
    ],
)
def test_what_cannot_be_emulated_is_refused(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = emulating("-m", "tilewright_conformance", "run", "--report", str(tmp_path), *arguments)
    assert done.returncode == 2 and message in done.stderr, done.stdout + done.stderr
