"""Messages that the page of questions explains are those of the sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "site" / "guides" / "faq.md"
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.M)


@pytest.fixture(scope="module")
def sources() -> str:
    """All strings of the packages, with what continues on the next line joined."""
    files = [*ROOT.glob("core/src/**/*.py"), *ROOT.glob("backends/*/src/**/*.py")]
    text = "\n".join(file.read_text() for file in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_the_page_lists_messages() -> None:
    assert len(MESSAGES) >= 10


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_stands_in_the_sources(message: str, sources: str) -> None:
    for part in message.split("…"):
        assert part.strip() in sources
