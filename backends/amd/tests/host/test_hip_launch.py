"""Launches through unmodified hip-python on a mock HIP runtime with an emulated device.

Also tests the messages on machines without a runtime.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
_there = (
    importlib.util.find_spec("rocm") is not None
    and importlib.util.find_spec("rocm.bindings.hip") is not None
)


@pytest.mark.skipif(
    not _there or shutil.which("cc") is None, reason="rocm-bindings-hip and a C compiler are needed"
)
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("launcher", ["native", "python"])
def test_programs_run_through_hip_python(arch: str, launcher: str) -> None:
    environment = {
        **os.environ,
        "TILEWRIGHT_AMD_LAUNCHER": launcher,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    environment.pop("TILEWRIGHT_BACKEND", None)
    program = str(Path(__file__).resolve().parents[1] / "hip_program.py")
    done = subprocess.run(
        [sys.executable, program, arch],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all right"
