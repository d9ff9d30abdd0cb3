"""Launches on a mock HIP runtime with an emulated device.

They go through unmodified hip-python, and through the mock's own bindings where it is missing.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest
from amd_support import emulating

_there = (
    importlib.util.find_spec("rocm") is not None
    and importlib.util.find_spec("rocm.bindings.hip") is not None
)


_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler is needed")
_TESTS = Path(__file__).resolve().parents[1]
_PROGRAM, _WITHOUT = str(_TESTS / "hip_program.py"), str(_TESTS / "without_hip_python.py")


@_compiler
@pytest.mark.each_value
@pytest.mark.skipif(not _there, reason="rocm-bindings-hip is needed")
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("launcher", ["native", "python"])
def test_programs_run_through_hip_python(arch: str, launcher: str) -> None:
    done = emulating(_PROGRAM, arch, TILEWRIGHT_AMD_LAUNCHER=launcher)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all right"


@_compiler
@pytest.mark.parametrize("launcher", ["native", "python"])
def test_programs_run_through_the_mocks_bindings(launcher: str) -> None:
    done = emulating(_WITHOUT, _PROGRAM, "gfx942", TILEWRIGHT_AMD_LAUNCHER=launcher)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all right"


def test_a_device_is_absent_where_hip_python_is_and_nothing_is_emulated() -> None:
    code = "from tilewright.plugins.registry import registry; "
    code += "print(registry().get('amd').manifest.status)"
    done = emulating(_WITHOUT, "-c", code)
    assert "rocm-bindings-hip is not installed: pip install tilewright-amd[hip]" in done.stdout
    done = emulating("-c", code, TILEWRIGHT_AMD_BINDINGS="nobody_has.bindings")
    assert "TILEWRIGHT_AMD_BINDINGS names no module: nobody_has.bindings" in done.stdout


@pytest.mark.skipif(not _there, reason="rocm-bindings-hip is needed")
def test_the_mocks_bindings_number_as_hip_python() -> None:
    code = """
import ctypes
from rocm.bindings import hip
from tilewright_amd_emulator.hip import hip_bindings as own

for name in ("hipError_t", "hipDeviceAttribute_t", "hipFunction_attribute"):
    for member in getattr(own, name):
        assert int(getattr(getattr(hip, name), member.name)) == member, member
properties = own.hipDeviceProp_t(gcnArchName=b"gfx942:sramecc+:xnack-")
found = hip.hipDeviceProp_t.fromObj(ctypes.addressof(properties)).gcnArchName
assert (found if isinstance(found, str) else found.decode()) == "gfx942:sramecc+:xnack-", found
functions = [name for name in vars(own) if name.startswith("hip") and not name.endswith("_t")]
print(sum(callable(getattr(hip, name)) for name in functions))
"""
    done = emulating("-c", code)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d\d\n", done.stdout), done.stdout
