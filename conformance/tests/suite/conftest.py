"""A report to test with: a run of a few cases on the CPU backend, made once for all tests of a
process."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tilewright_conformance.suite.engine.setup import Setup
from tilewright_conformance.suite.report.document import Document
from tilewright_conformance.suite.run import Options, run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the run's report, which tests must not change."""
    folder = tmp_path_factory.mktemp("report")
    run(
        Options(
            Setup("cpu", seed=5),
            patterns=("elementwise/sqrt/*", "elementwise/fma/*"),
            workers=1,
            folder=folder,
        )
    )
    return folder


@pytest.fixture
def report(folder: Path) -> Document:
    """The report, a copy for each test."""
    from tilewright_conformance.suite.report.document import read

    return copy.deepcopy(read(folder / "report.json"))
