"""Pages and archives with the source of examples."""

import io
import sys
import zipfile
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def source_pages():
    sys.path.insert(0, str(DOCS))
    try:
        import source_pages
    finally:
        sys.path.pop(0)
    return source_pages


def test_an_archive_has_what_its_page_shows(source_pages):
    files = source_pages.files()
    for example in source_pages.SOURCES:
        page, packed = files[f"{example.page}.md"], files[f"{example.page}.zip"]
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            names = archive.namelist()
            assert names, example
            for name in names:
                text = archive.read(name).decode()
                assert text == (DOCS.parent / "examples" / name).read_text()
                assert not text.strip() or f"## examples/{name}\n" in page
                assert text.rstrip() in page
    with zipfile.ZipFile(io.BytesIO(files["sources/backend_c.zip"])) as archive:
        assert {"backend_c/pyproject.toml", "backend_c/src/tilewright_c/lower.py"} <= set(
            archive.namelist()
        )


def test_pages_that_name_a_shown_example_link_to_it(source_pages):
    for example in source_pages.SOURCES:
        shown = f"[`examples/{example.paths[0]}`](../{example.page}.md)"
        texts = [page.read_text() for page in DOCS.joinpath("site").rglob("*.md")]
        assert any(shown in text for text in texts), shown
