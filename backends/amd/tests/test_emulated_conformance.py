"""The conformance suite through hip-python on emulated devices: random and sensitive cases."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
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
)
#: Loads that were moved behind a barrier; a lock whose data came late; words at odd addresses; registers that are exchanged; small quotients; 16 bits; prints;
#: waits at the top of a loop for what its end began.
TELLING = (
    "access/barrier/i32/64", "atomics/lock", "atomics/poll/time/waiting", "branches/for/bounds/i8", "control/inline_asm/exchange/pure",
    "math/div_rn/f32/values", "scans/recurrence/i16/32x1_0", "control/print/programs", "dots/product/u8/into_i32/2x2x16x32x16",
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


def started(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process that has an emulated device, or asks for one: no HIP runtime comes into the tests' own, nor what names it into their environment."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for name in ("TILEWRIGHT_BACKEND", "TILEWRIGHT_EMULATION_DIR"):
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=ROOT,
    )


def conforms(report: Path, *arguments: str) -> None:
    done = started(
        "tilewright_conformance",
        "run",
        "--backend",
        "amd",
        "-j",
        "1",
        "--report",
        str(report),
        *arguments,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arch", "seed"), [("gfx942", 1), ("gfx950", 2), ("gfx1100", 3), ("gfx1201", 4)]
)
def test_a_part_of_the_suite(arch: str, seed: int, tmp_path: Path) -> None:
    profiles = [f"--profile={name}" for name in PROFILES]
    conforms(
        tmp_path, "--emulate", arch, "--quick", "--sample", "16", "--seed", str(seed), *profiles
    )


@pytest.mark.parametrize("target", ["gfx942:lockstep", "gfx1100"])
def test_cases_that_told_most(target: str, tmp_path: Path) -> None:
    conforms(tmp_path, "--emulate", target, *(f"--case={name}" for name in TELLING))


def test_random_programs(tmp_path: Path) -> None:
    done = started(
        "tilewright_conformance.fuzz",
        "--backend",
        "amd",
        "--emulate",
        "gfx1100",
        "--count",
        "10",
        "--seed",
        "5",
        "--out",
        str(tmp_path),
    )
    assert done.returncode == 0 and "10 programs, 0 failing" in done.stdout, (
        done.stdout + done.stderr
    )


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_run_tests(arch: str) -> None:
    done = started("tilewright_conformance.runtests", "--backend", "amd", "--emulate", arch)
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
    done = started("tilewright_conformance", "run", "--report", str(tmp_path), *arguments)
    assert done.returncode == 2 and message in done.stderr, done.stdout + done.stderr
