"""The package of ``tilewright new-backend`` in a new environment.

It installs, registers, claims nothing, and passes all style checks.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: With what the text of the package leaves undecided: names short and long, with what package names
#: cannot have.
NAMES = ["x", "vega", "a-rather-long-name-of-a_backend-0123456"]


@pytest.fixture(scope="module")
def project(environment: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package ``tilewright-vega``, installed."""
    folder: Path = tmp_path_factory.mktemp("new")
    environment.python("-m", "tilewright.tools.cli", "new-backend", "vega", "--directory", folder)
    environment.install(folder / "tilewright-vega", "pytest")
    return folder / "tilewright-vega"


@pytest.mark.slow
def test_it_is_listed_with_what_to_do_first(environment: Any, project: Path) -> None:
    report = environment.backends()
    assert report["disabled"] == {}
    (entry,) = [entry for entry in report["backends"] if entry["name"] == "vega"]
    assert entry["distribution"] == "tilewright-vega 0.1.0" and len(entry["devices"]) == 1
    assert "backend 'vega' makes no code of a kernel yet: write assemble()" in entry["status"]
    assert report["default_order"]["cpu"][-1] == "vega"


@pytest.mark.slow
def test_it_passes_nothing_and_says_what_is_missing(environment: Any, project: Path) -> None:
    expectations = ("--expectations", project / "expectations.toml")
    report = environment.conformance(
        "--backend", "vega", "--case", "elementwise/*", "--quick", *expectations, code=1
    )
    assert len(report["results"]) > 100
    assert {
        (result["status"], result["verdict"], result["exception"])
        for result in report["results"]
        if "f64" not in result["case"]
    } == {("error", "bad", "LoweringError")}
    assert {result["status"] for result in report["results"]} == {
        "error",
        "not-supported",
    }  # f64 is not declared
    assert all(
        "write a function for it, marked @lowers(" in result["message"]
        for result in report["results"]
        if result["status"] == "error"
    )
    assert not any(claim["holds"] for claim in report["claims"])


@pytest.mark.slow
def test_its_own_tests_pass(environment: Any, project: Path) -> None:
    environment.python("-m", "pytest", "-q", "-p", "no:cacheprovider", project / "tests")


@pytest.mark.slow
def test_its_files_are_clean(tmp_path: Path) -> None:
    new_backends(tmp_path)
    for command in (
        ("ruff", "check", "--no-cache", "."),
        ("ruff", "format", "--no-cache", "--check", "."),
    ):
        clean(tmp_path, command)


@pytest.mark.slow
@pytest.mark.full
def test_its_types_are_right(tmp_path: Path) -> None:
    new_backends(tmp_path)
    for name in NAMES:  # what they import is known from the first one on
        clean(tmp_path / f"tilewright-{name}", ("mypy", "--cache-dir", tmp_path / "mypy"))


def new_backends(folder: Path) -> None:
    """Create a package for each of the names."""
    for name in NAMES:
        subprocess.run(
            [sys.executable, "-m", "tilewright.tools.cli", "new-backend", name],
            cwd=folder,
            check=True,
            capture_output=True,
        )


def clean(folder: Path, command: tuple[object, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
