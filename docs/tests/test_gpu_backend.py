"""The page on GPU backends shows the example's own code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "site" / "vendors" / "gpu_backend.md"
SOURCES = ROOT / "examples" / "backend_lyra" / "src" / "tilewright_lyra"
SHOWN = re.findall(r'^``` \{\.py title="(\S+)"\}\n(.*?)^```$', PAGE.read_text(), re.M | re.S)


@pytest.mark.parametrize(
    ("file", "text"), SHOWN, ids=[f"{file}-{number}" for number, (file, _) in enumerate(SHOWN)]
)
def test_what_is_shown_of_a_file_is_in_it(file: str, text: str) -> None:
    assert text in (SOURCES / file).read_text()


def test_every_file_that_has_decisions_is_shown() -> None:
    assert {file for file, _ in SHOWN} == {file.name for file in SOURCES.glob("*.py")} - {
        "__init__.py"
    }
