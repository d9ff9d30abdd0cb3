"""Launches through hip-python, unmodified, on a stand-in HIP runtime whose device is one of emulated waves; and what is said where there is none."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright_amd import driver

ROOT = Path(__file__).resolve().parents[3]
_there = importlib.util.find_spec("rocm") is not None and importlib.util.find_spec("rocm.bindings.hip") is not None


@pytest.mark.skipif(not _there or shutil.which("cc") is None, reason="rocm-bindings-hip and a C compiler are needed")
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("launcher", ["native", "python"])
def test_programs_run_through_hip_python(arch: str, launcher: str) -> None:
    environment = {
        **os.environ,
        "TILEWRIGHT_AMD_LAUNCHER": launcher,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    environment.pop("TILEWRIGHT_BACKEND", None)
    program = str(Path(__file__).with_name("hip_program.py"))
    done = subprocess.run([sys.executable, program, arch], capture_output=True, text=True, env=environment, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all right"


def test_a_second_runtime_is_not_loaded(tmp_path: Path) -> None:
    first, second = tmp_path / "first" / "libamdhip64.so.7", tmp_path / "second" / "libamdhip64.so"
    for file in (first, second):
        file.parent.mkdir()
        file.touch()
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f01 r-xp 00000000 08:01 12 {first}\n7f02-7f03 r-xp 00000000 08:01 13 /lib/libc.so.6\n")
    assert driver.mapped_elsewhere(str(second), maps) == str(first)
    assert driver.mapped_elsewhere(str(first), maps) == ""
    assert driver.mapped_elsewhere(str(second), tmp_path / "nowhere") == ""
