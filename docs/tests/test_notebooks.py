"""Notebooks of the tutorials: their cells run, and print what the pages show."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
try:
    from notebooks import notebook
finally:
    sys.path.pop(0)

TUTORIALS = sorted((ROOT / "docs" / "site" / "tutorials").glob("*.md"))
PAGE = """# Title

See [there](other.md) and [outside](https://example.org).

![A picture](a.svg)

```python
print(1)
```

```output
1
```

The end.
"""


def test_prose_and_code_become_cells() -> None:
    cells = json.loads(notebook(PAGE))["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "markdown"]
    text = "".join(cells[0]["source"])
    assert text == "# Title\n\nSee there and [outside](https://example.org)."
    assert cells[1]["source"] == ["print(1)"] and cells[1]["outputs"] == []
    assert cells[2]["source"] == ["The end."]


def test_there_are_twelve_tutorials() -> None:
    assert len(TUTORIALS) >= 12


@pytest.mark.sampled(1)
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_notebook_prints_what_its_page_shows(page: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    book = nbformat.reads(notebook(page.read_text()), as_version=4)
    nbformat.validate(book)
    nbclient.NotebookClient(book, timeout=600).execute()
    printed = "".join(
        output["text"]
        for cell in book.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output["output_type"] == "stream" and output["name"] == "stdout"
    )
    shown = page.read_text().split("```output\n")[1:]
    assert printed == "".join(block.partition("```")[0] for block in shown)
