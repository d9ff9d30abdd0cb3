"""``tilewright help``: pages, sections and words of the documentation; errors name their page."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import tarfile
import traceback
import zipfile
from pathlib import Path

import pytest

import tilewright
from tilewright.errors import LaunchError, ResidencyError, TilewrightError
from tilewright.tools import help_pages
from tilewright.tools.cli import main
from tilewright.tools.usage import UsageError

ROOT = Path(__file__).resolve().parents[3]

PAGE = """# A page

One.

## Part {#first}

```sh
# no heading
```

### Below

Two words.

## Last, of all

Three.
"""


@pytest.fixture
def documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two pages, which `tilewright help` reads."""
    for name in ("page", "other/index"):
        path = tmp_path / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(PAGE if name == "page" else "# Another\n\nThree words.\n")
    monkeypatch.setattr(help_pages, "folder", lambda: tmp_path)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["help", *words]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_without_a_topic_the_pages_are_listed(documentation, capsys):
    assert told(capsys) == "other  Another\npage   A page\n"


def test_a_page_is_printed_whole(documentation, capsys):
    assert told(capsys, "page") == PAGE
    assert told(capsys, "other") == "# Another\n\nThree words.\n"


def test_a_section_is_printed_with_those_below_it(documentation, capsys):
    part = told(capsys, "page#first")
    assert part.startswith("## Part") and "# no heading" in part
    assert part.endswith("### Below\n\nTwo words.\n")
    assert told(capsys, "page#last-of-all") == "## Last, of all\n\nThree.\n"


def test_words_are_found_in_headings_and_else_in_text(documentation, capsys):
    assert told(capsys, "last") == "page#last-of-all  Last, of all\n"
    assert told(capsys, "Words") == "other       Another\npage#below  Below\n"
    assert told(capsys, "three", "words") == "other  Another\n"


def test_without_all_words_those_with_the_most_are_found(documentation, capsys):
    assert told(capsys, "three", "words", "more") == "other  Another\n"
    assert "no page has 'three more'" in told(capsys, "three", "more", code=2)


def test_a_question_is_searched_by_its_subject(documentation, capsys):
    found = told(capsys, "three", "words")
    assert told(capsys, "Where", "are", "my", "three", "words?") == found
    assert told(capsys, "of") == "page#last-of-all  Last, of all\n"


def test_what_is_not_there_is_said(documentation, capsys):
    assert "no page has 'pagee': did you mean page?" in told(capsys, "pagee", code=2)
    section = told(capsys, "page#second", code=2)
    assert "page page has no section 'second'; it has page#first, page#below," in section


def test_an_installation_without_documentation_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(tilewright, "__file__", str(tmp_path / "a" / "b" / "c" / "__init__.py"))
    with pytest.raises(UsageError, match="documentation is missing"):
        help_pages.folder()


def test_an_error_ends_with_its_page():
    for error in (LaunchError("wrong"), ResidencyError("kernel", (9,), 4, "why")):
        assert traceback.format_exception_only(error)[-1] == (
            f"  see: tilewright help {error.page}\n"
        )
        assert "see:" not in str(error)
    assert traceback.format_exception_only(TilewrightError("wrong"))[-1].endswith("wrong\n")


def test_a_copied_error_names_its_page_once():
    for error in (LaunchError("wrong"), ResidencyError("kernel", (9,), 4, "why")):
        for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert other.__notes__ == [f"  see: tilewright help {error.page}"]


def test_errors_of_commands_name_their_page(monkeypatch, capsys):
    monkeypatch.setenv("TILEWRIGHT_CACHE_SIZE", "plenty")
    assert main(["cache", "info"]) == 2
    assert capsys.readouterr().err.endswith("\n  see: tilewright help reference/environment\n")


def test_the_doctor_names_the_page_of_a_failed_check():
    from tilewright.tools.doctor import CheckResult, doctor_text

    findings = [CheckResult("good", True, "1"), CheckResult("bad", False, "2", "debugging")]
    assert doctor_text(findings).splitlines() == [
        "ok      good  1",
        "BROKEN  bad   2",
        "        see: tilewright help debugging",
        "1 of 2 checks failed",
    ]


@pytest.mark.slow
def test_the_wheel_and_the_source_archive_have_the_pages(tmp_path: Path) -> None:
    pytest.importorskip("build")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run([*command, str(ROOT / "core")], check=True, capture_output=True)
    (archive,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        inside = opened.namelist()
        text = opened.read("tilewright/documentation/debugging.md").decode()
    assert text == (ROOT / "docs" / "site" / "debugging.md").read_text()
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    pages = (ROOT / "docs" / "site").rglob("*.md")
    for page in pages:
        name = f"tilewright/documentation/{page.relative_to(ROOT / 'docs' / 'site').as_posix()}"
        assert name in inside and f"src/{name}" in names
