"""The example backend, installed as a vendor's would be: its wheel and the core's in a fresh environment, then gone again."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples" / "backend_c"

SCRIPT = """
import numpy as np
import tilewright as tw
import tilewright.language as tl

@tw.jit
def row_kernel(x_ptr, out_ptr, n, stride, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row * stride + columns, mask=inside, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    for i in range(2):
        e = e * scale
    if row > 1:
        e = e + 0.0
    tl.store(out_ptr + row * stride + columns, e / tl.sum(e, axis=0), mask=inside)

@tw.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.trans(tl.load(b_ptr + at))))

rng = np.random.default_rng(0)
x = rng.standard_normal((5, 37), dtype=np.float32)
out = np.full_like(x, np.nan)
with tw.backend("c"):
    row_kernel[(5,)](x, out, 37, 37, 0.5, BLOCK=64)
exact = np.exp(x.astype(np.float64))
exact /= exact.sum(axis=1, keepdims=True)
assert np.abs(out - exact).max() < 1e-6

a, b = rng.standard_normal((2, 16, 16), dtype=np.float32)
c = np.full_like(a, np.nan)
with tw.backend("c"):
    product_kernel[(1,)](a, b, c, N=16)
assert np.abs(c - a.astype(np.float64) @ b.T).max() < 1e-4
print("ran")
"""


def run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def broken_wheel(folder: Path, wheels: Path) -> Path:
    """The wheel of a plugin that fails when it is imported."""
    project = folder / "broken"
    (project / "tilewright_broken").mkdir(parents=True)
    (project / "tilewright_broken" / "__init__.py").write_text("")
    (project / "tilewright_broken" / "plugin.py").write_text('raise OSError("the vendor\'s library is missing")\n')
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "tilewright-broken"\nversion = "0.0.1"\n'
        '[project.entry-points.tilewright]\nbroken = "tilewright_broken.plugin"\n'
    )
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels, project)
    return next(wheels.glob("tilewright_broken*.whl"))


def test_the_package_is_small() -> None:
    lines = sum(len(file.read_text().splitlines()) for file in PACKAGE.rglob("*.py"))
    assert lines <= 300


@pytest.mark.slow
def test_the_wheel_installs_runs_and_uninstalls_without_an_edit_of_the_core(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    for project in (ROOT / "core", PACKAGE):
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels, project)
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env" / "bin"
    python = binaries / "python"
    run(python, "-m", "pip", "install", "--quiet", *sorted(wheels.glob("*.whl")))

    listed = {entry["name"]: entry for entry in json.loads(run(binaries / "tilewright", "backends", "--json"))["backends"]}
    assert set(listed) == {"reference", "c"}
    assert listed["c"]["devices"]

    run(python, "-m", "pip", "install", "--quiet", broken_wheel(tmp_path, wheels))
    report = json.loads(run(binaries / "tilewright", "backends", "--json"))
    assert {entry["name"] for entry in report["backends"]} == {"reference", "c"}
    assert list(report["disabled"]) == ["broken"]
    assert "the vendor's library is missing" in report["disabled"]["broken"]

    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert run(python, script).strip() == "ran"

    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "tilewright-c")
    names = [entry["name"] for entry in json.loads(run(binaries / "tilewright", "backends", "--json"))["backends"]]
    assert names == ["reference"]
