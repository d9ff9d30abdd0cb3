"""Every source file that a page of the site names exists, under the name that the page gives it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted((ROOT / "docs" / "site").rglob("*.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]
NAMED = re.compile(r"`([\w/]+\.py)`")
SOURCES = {
    f"/{file.relative_to(ROOT)}"
    for folder in (
        "core",
        "backends",
        "conformance",
        "kernels",
        "docs",
        "examples",
        "benchmarks",
        "ecosystem",
        "tools",
    )
    for file in (ROOT / folder).rglob("*.py")
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    # a page that shows how something is built names the files that its reader writes, above their
    # text
    written = {
        *re.findall(r'title="([^"]+)"', text),
        *re.findall(r"^# ([\w/]+\.py)$", text, re.M),
    }
    missing = [
        name
        for name in NAMED.findall(text)
        if name not in written and not any(source.endswith(f"/{name}") for source in SOURCES)
    ]
    assert not missing, f"{page.relative_to(ROOT)} names {', '.join(missing)}"
