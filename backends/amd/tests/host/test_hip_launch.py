"""Launches through unmodified hip-python on a mock HIP runtime with an emulated device.

Also tests the messages on machines without a runtime.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from amd_support import emulating

_there = (
    importlib.util.find_spec("rocm") is not None
    and importlib.util.find_spec("rocm.bindings.hip") is not None
)


@pytest.mark.each_value
@pytest.mark.skipif(
    not _there or shutil.which("cc") is None, reason="rocm-bindings-hip and a C compiler are needed"
)
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("launcher", ["native", "python"])
def test_programs_run_through_hip_python(arch: str, launcher: str) -> None:
    program = str(Path(__file__).resolve().parents[1] / "hip_program.py")
    done = emulating(program, arch, TILEWRIGHT_AMD_LAUNCHER=launcher)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all right"
