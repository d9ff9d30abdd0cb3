"""The programs for PyTorch on the pages about the library."""

import contextlib
import io
import re
from pathlib import Path

import pytest

SITE = Path(__file__).resolve().parents[2] / "docs" / "site"
PAGES = [
    page
    for folder in ("kernels", "reference/library")
    for page in sorted((SITE / folder).glob("*.md"))
]
#: A program, and the text that it prints.
PROGRAM = re.compile(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if PROGRAM.search(page.read_text())],
    ids=lambda page: page.stem,
)
def test_programs_for_pytorch_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for number, (text, expected) in enumerate(PROGRAM.findall(page.read_text())):
        if "import transformers" in text or "from transformers" in text:
            pytest.importorskip("transformers")
        file = tmp_path / f"program_{number}.py"  # kernels are read from files
        file.write_text(text)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, str(file), "exec"), {"__name__": "page", "__file__": str(file)})
        assert printed.getvalue() == expected
