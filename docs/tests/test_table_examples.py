"""Examples of the pages of tables: they print what they show, and public names are in one."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import warnings
from pathlib import Path

import pytest

from tilewright_conformance.api_coverage.public_names import names

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
try:
    from reference_pages.pages import TABLE_EXAMPLES, exists, pages
    from reference_pages.tables import PAGES
finally:
    sys.path.pop(0)

EXAMPLES = sorted(TABLE_EXAMPLES.glob("*.md"))
BLOCK = re.compile(r"^```(python|output)\n(.*?)^```$", re.M | re.S)
CODE = re.compile(r"^```(?:python|py)\n(.*?)^```$", re.M | re.S)
#: Names for programs that generate or inspect kernels, which call them with the compiler's objects.
INTERNAL = re.compile(
    r"tl\.(core|standard|semantic)\.(dispatch|binary_op_type_legalization|check_bit_width"
    r"|slice_type|_log2|_arg\w+|sort_impl|TritonSemantic)|tl\.semantic"
)


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_an_example_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    if page.stem == "extra":
        pytest.importorskip("tilewright_nvidia")
        pytest.importorskip("tilewright_amd")
    space = {"__name__": "__page__"}
    printed, shown = io.StringIO(), ""
    for number, (kind, text) in enumerate(BLOCK.findall(page.read_text())):
        if kind == "output":
            shown += text
            continue
        file = tmp_path / f"block_{number}.py"  # kernels are read from files
        file.write_text(text)
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
            warnings.simplefilter("ignore")
            exec(compile(text, str(file), "exec"), space)
    assert printed.getvalue() == shown


def test_every_example_is_on_a_page() -> None:
    assert {page.name for page in EXAMPLES} <= {path.rpartition("/")[2] for path in PAGES}
    text = pages()["language/math.md"]
    assert "## Example" in text and "math_kernel[(1,)]" in text


def test_every_name_of_the_language_and_the_host_is_in_an_example() -> None:
    texts = [*pages().values(), *(page.read_text() for page in (ROOT / "site").rglob("*.md"))]
    code = "\n".join("\n".join(CODE.findall(text)) for text in texts)
    used = set(re.findall(r"\w+", code))
    missing = [
        name.full
        for name in names().values()
        if not name.full.startswith(("triton.", "JITFunction.", "CompiledKernel."))
        and name.kind not in ("syntax", "operator")
        and exists(name)
        and name.last not in used
        and not INTERNAL.fullmatch(name.full)
    ]
    assert missing == []
