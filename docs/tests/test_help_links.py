"""The pages that errors, the doctor and `tilewright help` name are on the site, with anchors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.tools import help_pages

ROOT = Path(__file__).resolve().parents[2]
#: How the sources write a page: of a class of errors, and of a check of the doctor.
NAMED = re.compile(
    r'^(?:    page|    page: str|_MESSAGES) = "(.+)"$|"((?:quickstart|guides/).*)"', re.M
)


def named_pages() -> dict[str, str]:
    """Return page -> the file with the class of errors, or the check, that names it."""
    found: dict[str, str] = {}
    for path in (ROOT / "core" / "src" / "tilewright").rglob("*.py"):
        text = path.read_text()
        if "Error):" in text or "(TilewrightError" in text or path.name == "doctor.py":
            found |= {page or other: path.name for page, other in NAMED.findall(text)}
    found.pop("", None)
    return found


def test_the_pages_that_errors_name_are_on_the_site(site: Path) -> None:
    pages = named_pages()
    assert {"exact#identities-that-exact-mode-keeps", "guides/security", "quickstart"} <= {*pages}
    for page, source in pages.items():
        name, _, anchor = page.partition("#")
        text = (site / name / "index.html").read_text()
        assert not anchor or f' id="{anchor}"' in text, f"{source} names {page}"
        assert help_pages.page_text(page).startswith("#"), f"{source} names {page}"


@pytest.mark.parametrize("topic", help_pages.pages())
def test_sections_have_the_anchors_of_the_site(topic: str, site: Path) -> None:
    text = help_pages.pages()[topic].read_text()
    page = (site / ("" if topic == "index" else topic) / "index.html").read_text()
    for section in help_pages.sections(topic, text):
        anchor = section.topic.partition("#")[2]
        assert not anchor or f' id="{anchor}"' in page, section.topic
