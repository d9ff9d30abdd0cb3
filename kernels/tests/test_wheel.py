"""The wheel: pure Python, and what a first call takes."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tilewright_kernels.operations.block_records import SHIPPED

DISTRIBUTION = Path(__file__).resolve().parents[1]
PROGRAM = """
import sys
import numpy as np
import tilewright_kernels as tk
x = np.arange(1, 9, dtype=np.float32)
print(tk.__file__)
print(*[each for each in sys.modules if each.startswith(SLOW)])
print(np.allclose(tk.rms_norm(x), tk.rms_norm_reference(x)))
"""
#: Modules that a forward pass needs not, which take a fifth of the import.
SLOW = ("tilewright.derivatives", "tilewright.runtime.derivatives", "torch", "jax")
#: Seconds of processor that starting Python, the import and the first call may take.
LIMIT = 2.0


def test_a_wheel_imports_and_calls_within_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheel,) = WheelBuilder(str(DISTRIBUTION)).build(
        directory=str(tmp_path / "dist"), versions=["standard"]
    )
    assert wheel.endswith("-py3-none-any.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(installed)
    assert all(name.startswith("tilewright_kernels") for name in names)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEWRIGHT_VERIFY", raising=False)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", f"SLOW = {SLOW}{PROGRAM}"],
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    file, slow, equal = done.stdout.splitlines()
    assert Path(file).is_relative_to(installed)
    assert slow == ""
    assert equal == "True"
    taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert taken < LIMIT, f"{taken:.2f} s of processor"


def test_a_wheel_has_the_records_that_the_package_ships(tmp_path: Path) -> None:
    copy = tmp_path / "kernels"
    ignored = shutil.ignore_patterns("__pycache__", "tests", "dist")
    shutil.copytree(DISTRIBUTION, copy, ignore=ignored)
    file = SHIPPED.relative_to(DISTRIBUTION / "src") / "sm_90.json"
    (copy / "src" / file).parent.mkdir(exist_ok=True)
    (copy / "src" / file).write_text("{}")
    builder = WheelBuilder(str(copy))
    (wheel,) = builder.build(directory=str(tmp_path / "dist"), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        assert str(file) in archive.namelist()
