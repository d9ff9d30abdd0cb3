"""Every Python block of the site runs, prints what the page says, and the site builds without a
warning."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from page_scripts import script_and_output

SITE = Path(__file__).resolve().parents[1] / "site"
PAGES = [page for page in sorted(SITE.rglob("*.md")) if "```python" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(SITE)))
def test_the_code_of_a_page_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    script, expected = script_and_output(page)
    file = tmp_path / "page.py"
    file.write_text(script)
    if (
        "tilewright.compat.triton" in script or "tuning_records" in script
    ):  # which changes what a process imports; shows all that a cache has
        environment = (
            {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
            if "tuning_records" in script
            else None
        )
        printed = subprocess.run(
            [sys.executable, str(file)],
            capture_output=True,
            text=True,
            timeout=900,
            check=True,
            env=environment,
        ).stdout
    else:
        captured = io.StringIO()
        with contextlib.redirect_stdout(captured):
            exec(
                compile(script, str(file), "exec"), {"__name__": "__page__", "__file__": str(file)}
            )
        printed = captured.getvalue()
    assert printed == expected


def test_pages_with_code_are_found() -> None:
    assert len(PAGES) >= 5


def test_generated_pages_are_on_the_site_and_in_its_search(site: Path) -> None:
    page = (site / "reference" / "ir" / "index.html").read_text()
    assert "atomic_cas" in page and "descriptor_gather" in page
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    for words, address in (
        ("breakpoint", "debugging/"),
        ("atomic_cas", "reference/language/"),
        ("TILEWRIGHT_DEBUG", "reference/environment/"),
    ):
        found = [entry["location"] for entry in entries if words in entry["title"] + entry["text"]]
        assert any(location.startswith(address) for location in found), (words, found)
    assert 'data-md-component="search"' in (site / "index.html").read_text()
