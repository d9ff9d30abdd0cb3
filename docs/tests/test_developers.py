"""The developers' pages are true: each says which files a change touches, and its own blocks,
applied to a copy of the sources, are that change.

A block of a page with a title is one of these:

- ```` ```diff title="core/src/…/file.py" ````: lines of that file with ``-`` and ``+`` before what
goes and what comes; lines before and after find the
  place, which has to be the only one. ``@@`` stands between places. A file that is not there
  consists of lines with ``+``.
- ```` ```python title="try.py" ````: a program that works with the change, and compares with NumPy.
It fails without.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "site" / "developers"
SOURCES = (
    "core/src",
    "backends/cpu/src",
    "backends/nvidia/src",
    "backends/amd/src",
    "backends/amd/emulator/src",
    "conformance/src",
)
#: Where a page puts a package of its own, which is no change of the sources.
PACKAGE = "backends/slate/src"
BLOCK = re.compile(r'^```(diff|python) title="([^"]+)"\n(.*?)^```$', re.M | re.S)
LISTED = re.compile(r"^\| `((?:core|backends|conformance)/[^`]+)` \|", re.M)

#: Page -> how many files its change may touch at most.
LIMITS = {
    "operation": 5,
    "mma": 2,
    "heuristic": 3,
    "analysis": 3,
    "async_copy": 1,
    "completion": 3,
    "option": 4,
    "instruction": 2,
    "dtype": 8,
    "pass": 2,
    "backend": 2,
}


class Page(NamedTuple):
    """What a page says: the files that its table lists, the edits of its blocks by file, and its
    program."""

    listed: list[str]
    edits: dict[str, list[str]]
    program: str


def read(name: str) -> Page:
    text = (PAGES / f"{name}.md").read_text()
    edits: dict[str, list[str]] = {}
    programs = []
    for kind, title, body in BLOCK.findall(text):
        if kind == "diff":
            edits.setdefault(title, []).extend(re.split(r"^@@\n", body, flags=re.M))
        else:
            programs.append(body)
    (program,) = programs
    return Page(LISTED.findall(text), edits, program)


def apply(edit: str, text: str | None, where: str) -> str:
    """The text of a file after an edit; ``text`` is None for a file that is not there."""
    lines = [line or " " for line in edit.splitlines()]
    assert all(line[0] in " +-" for line in lines), (
        f"{where}: lines of a diff begin with a space, + or -"
    )
    before = "".join(f"{line[1:]}\n" for line in lines if line[0] != "+")
    after = "".join(f"{line[1:]}\n" for line in lines if line[0] != "-")
    if text is None:
        assert not before, f"{where}: there is no such file"
        return after
    found = len(re.findall(f"(?=\n{re.escape(before)})", f"\n{text}"))
    assert before and found == 1, f"{where}: {found} places have the lines\n{before}"
    return f"\n{text}".replace(f"\n{before}", f"\n{after}")[1:]


def changed_copy(page: Page, folder: Path) -> Path:
    """A copy of the sources with the changes of a page."""
    for source in SOURCES:
        shutil.copytree(
            ROOT / source, folder / source, ignore=shutil.ignore_patterns("*.pyc.*", "*.egg-info")
        )
    for name, edits in page.edits.items():
        file = folder / name
        assert any(name.startswith(f"{source}/") for source in (*SOURCES, PACKAGE)), name
        file.parent.mkdir(parents=True, exist_ok=True)
        for edit in edits:
            text = apply(edit, file.read_text() if file.exists() else None, name)
            file.write_text(text)
    return folder


def run(program: str, copy: Path) -> subprocess.CompletedProcess[str]:
    """Run a program on a copy of the sources."""
    file = copy / "try.py"
    file.write_text(program)
    start = copy / "start.py"
    start.write_text(
        "import runpy, sys\nimport tilewright, tilewright_cpu\n"
        f"assert all(module.__file__.startswith({str(copy)!r}) for module in (tilewright, "
        "tilewright_cpu)), tilewright.__file__\n"
        "runpy.run_path(sys.argv[1], run_name='__main__')\n"
    )
    path = os.pathsep.join(str(copy / source) for source in (*SOURCES, PACKAGE))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "TILEWRIGHT_CACHE_DIR": str(copy / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, str(start), str(file)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=copy,
        timeout=600,
    )


@pytest.mark.parametrize("name", LIMITS)
def test_the_change_of_a_page_works(name: str, tmp_path: Path) -> None:
    page = read(name)
    done = run(page.program, changed_copy(page, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stdout, "a program compares; it prints nothing"


@pytest.mark.parametrize("name", LIMITS)
def test_a_page_lists_the_files_that_its_change_touches(name: str) -> None:
    page = read(name)
    assert page.listed == list(page.edits)
    assert len(page.edits) <= LIMITS[name], (
        f"{name} touches {len(page.edits)} files, and {LIMITS[name]} may be touched"
    )


def test_the_overview_counts_the_files_of_each_page() -> None:
    rows = re.findall(
        r"^\| [^|]+ \| (\d+) \| \[[^]]+\]\((\w+)\.md\) \|$", (PAGES / "index.md").read_text(), re.M
    )
    assert {name: int(count) for count, name in rows} == {
        name: len(read(name).edits) for name in LIMITS if name != "backend"
    }
    assert not any(file.startswith(source) for file in read("backend").edits for source in SOURCES)


@pytest.mark.parametrize(
    ("edit", "text", "expected"),
    [
        (" a\n+b\n c\n", "a\nc\n", "a\nb\nc\n"),
        (" a\n-b\n+c\n", "x\na\nb\n", "x\na\nc\n"),
        ("+new\n\n+file\n", None, None),
        ("+new\n+\n+file\n", None, "new\n\nfile\n"),
        (" a\n+b\n", "a\na\n", None),
        (" z\n+b\n", "a\n", None),
        (" a\n+b\n", "ba\n", None),
    ],
)
def test_an_edit_has_one_place(edit: str, text: str | None, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(AssertionError):
            apply(edit, text, "file")
    else:
        assert apply(edit, text, "file") == expected
