"""The tests that run by default, and those that run with ``--full`` or where they are named."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: A file of tests with each mark.
TESTS = """
import pytest

@pytest.mark.full
def test_full(): pass

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.full)])
def test_partly_full(n): pass

@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", range(9))
def test_sampled(n): pass

@pytest.mark.each_value
@pytest.mark.parametrize("a", "wxyz")
@pytest.mark.parametrize("b", "mn")
def test_each_value(a, b): pass

@pytest.mark.parametrize("a", "xyz")
@pytest.mark.parametrize("b", "mn")
@pytest.mark.parametrize("c", "uv")
def test_pairs(a, b, c): pass

@pytest.mark.parametrize("a", "xyz")
@pytest.mark.parametrize("b", "mn")
def test_all(a, b): pass
"""


def run(folder: Path, *arguments: str) -> list[str]:
    """The names of the tests that pytest collects from a folder of :data:`TESTS`."""
    shutil.copy(ROOT / "conftest.py", folder)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "test_marked.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "--collect-only"]
    command += ["-o", "testpaths=.", "-o", "pythonpath="]
    done = subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return run(tmp_path_factory.mktemp("default"))


def combinations(names: list[str], test: str) -> list[str]:
    """The parameters with which a test runs."""
    return [name[len(test) + 1 : -1] for name in names if name.partition("[")[0] == test]


def test_marked_tests_and_parameters_run_with_the_option_alone(default: list[str]) -> None:
    assert "test_full" not in default
    assert combinations(default, "test_partly_full") == ["1"]


def test_a_sample_is_spread_evenly(default: list[str]) -> None:
    assert combinations(default, "test_sampled") == ["0", "3", "6"]


def test_each_value_is_selected_about_as_often(default: list[str]) -> None:
    found = combinations(default, "test_each_value")
    assert len(found) == 4 and {name[2:] for name in found} == set("wxyz")
    assert sorted(name[0] for name in found) == ["m", "m", "n", "n"]


def test_of_three_marks_every_pair_is_selected(default: list[str]) -> None:
    found = [name.split("-") for name in combinations(default, "test_pairs")]
    assert {(a, b) for _, b, a in found} == {(a, b) for a in "xyz" for b in "mn"}
    assert {(a, c) for c, _, a in found} == {(a, c) for a in "xyz" for c in "uv"}
    assert {(b, c) for c, b, _ in found} == {(b, c) for b in "mn" for c in "uv"}
    assert len(found) < 12


def test_without_marks_all_combinations_run(default: list[str]) -> None:
    assert len(combinations(default, "test_all")) == 6


@pytest.mark.parametrize("argument", ["--full", "test_marked.py::"])
def test_all_run_with_the_option_or_where_they_are_named(argument: str, tmp_path: Path) -> None:
    names = ["test_full", "test_partly_full", "test_sampled", "test_each_value", "test_pairs"]
    given = [argument] if argument == "--full" else [f"{argument}{name}" for name in names]
    found = run(tmp_path, *given)
    assert [len(combinations(found, name)) for name in names[1:]] == [2, 9, 8, 12]
    assert "test_full" in found
