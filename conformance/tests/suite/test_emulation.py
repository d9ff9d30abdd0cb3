"""``--emulate`` with an unknown simulator: the reference interpreter as a device."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import fork_server
import pytest

BACKEND = """
import dataclasses
from tilewright.plugins.hooks import hookimpl
from tilewright.runtime import reference_backend
from tilewright.runtime.reference_backend import tilewright_launcher, tilewright_load, tilewright_lower, tilewright_memory
import vega_driver

@hookimpl
def tilewright_backend():
    return dataclasses.replace(
        reference_backend.tilewright_backend(), name="vega", targets=("v1", "v2"), options={}, priority=-900, ops=(),
        status="" if vega_driver.target else "there is no driver", emulator="vega-emulator",
    )

@hookimpl
def tilewright_devices():
    found = reference_backend.tilewright_devices()
    return [dataclasses.replace(device, backend="vega", name="emulated Vega") for device in found]

@hookimpl
def tilewright_target(device):
    target = reference_backend.tilewright_target(device)
    return dataclasses.replace(target, backend="vega", arch=vega_driver.target)
"""
EMULATOR = """
from tilewright.errors import BackendError
from tilewright.plugins.hooks import hookimpl
import vega_driver

class Device:
    def __init__(self, mode):
        self.error = ValueError("a lane reads r7 before it is written") if mode == "strict" else None

    def recover(self):
        self.error = None

@hookimpl
def tilewright_emulate(target, mode):
    if mode not in ("", "strict"):
        raise BackendError(f"the emulator has no mode {mode!r}; it has strict")
    vega_driver.target = target
    return Device(mode)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two installed distributions: the backend, and its emulator."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "vega_driver.py").write_text("target = ''\n")
    (folder / "vega_backend.py").write_text(BACKEND)
    for name, group, module in (
        ("vega", "tilewright", "vega_backend"),
        ("vega-emulator", "tilewright.emulators", "vega_emulator"),
    ):
        info = (
            folder
            / ("" if name == "vega" else "emulator")
            / f"{name.replace('-', '_')}-1.0.dist-info"
        )
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text("")
        (info / "entry_points.txt").write_text(f"[{group}]\nvega = {module}\n")
    (folder / "emulator" / "vega_emulator.py").write_text(EMULATOR)
    return folder


def run(
    site: Path, out: Path, *arguments: str, emulator: bool = True
) -> subprocess.CompletedProcess[str]:
    folders = [site, *([site / "emulator"] if emulator else [])]
    path = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "TILEWRIGHT_CACHE_DIR": str(out / "cache")}
    server = fork_server.server(
        "tilewright_conformance.suite",
        code="from tilewright_conformance.suite.catalogue import catalogue\nlist(catalogue())",
    )
    return server.run(["-m", *arguments], env=environment, cwd=out)


SUITE = (
    "tilewright_conformance",
    "run",
    "--backend",
    "vega",
    "-j",
    "1",
    "--case",
    "elementwise/neg/i32/*",
    "--report",
    "report",
    "--emulate",
)


def test_cases_run_on_the_emulated_target(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, *SUITE, "v2")
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "report" / "report.json").read_text()
    assert '"emulated Vega"' in report and '"v2"' in report


def test_faults_that_the_emulator_found_are_reported(site: Path, tmp_path: Path) -> None:
    run(site, tmp_path, *SUITE, "v1:strict")
    assert (
        "The emulated device found: a lane reads r7 before it is written"
        in (tmp_path / "report" / "report.json").read_text()
    )


def test_the_fuzzer_runs_on_it_too(site: Path, tmp_path: Path) -> None:
    done = run(
        site,
        tmp_path,
        "tilewright_conformance.fuzz",
        "--backend",
        "vega",
        "--emulate",
        "v1",
        "--count",
        "3",
    )
    assert done.returncode == 0 and "vega: 3 programs, 0 failing" in done.stdout, (
        done.stdout + done.stderr
    )


@pytest.mark.parametrize(
    ("emulate", "emulator", "message"),
    [
        ("v1", False, "the emulator of backend 'vega' is not installed: pip install vega-emulator"),
        ("v3", True, "backend 'vega' has no target 'v3'; it has v1, v2"),
        ("v1:fast", True, "the emulator has no mode 'fast'; it has strict"),
    ],
)
def test_what_is_missing_is_named(
    site: Path, tmp_path: Path, emulate: str, emulator: bool, message: str
) -> None:
    done = run(site, tmp_path, *SUITE, emulate, emulator=emulator)
    assert done.returncode == 2 and message in done.stderr, done.stdout + done.stderr
