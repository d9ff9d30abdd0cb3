"""Pages of the kernel library's functions: each public name is described, and in an example."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

tk = pytest.importorskip("tilewright_kernels")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
try:
    from reference_pages.library import description, filled, named
finally:
    sys.path.pop(0)

FOLDER = Path(__file__).resolve().parents[1] / "site" / "reference" / "library"
PAGES = {page.stem: page.read_text() for page in sorted(FOLDER.glob("*.md"))}
CODE = re.compile(r"^```(?:python|py)\n(.*?)^```", re.M | re.S)


def test_every_function_is_described_once() -> None:
    found = sorted(name for text in PAGES.values() for name in named(text))
    assert found == sorted(name for name in tk.__all__ if not name.endswith("_reference"))


@pytest.mark.parametrize("page", PAGES)
def test_a_section_has_an_example_of_each_function_that_it_describes(page: str) -> None:
    for section in re.split(r"^## ", PAGES[page], flags=re.M)[1:]:
        code = "".join(CODE.findall(section))
        for name in named(section):
            assert re.search(rf"\btk\.{name}\b", code), name


def test_every_twin_is_in_an_example() -> None:
    code = "".join("".join(CODE.findall(text)) for text in PAGES.values())
    twins = [name for name in tk.__all__ if name.endswith("_reference")]
    assert twins and [name for name in twins if f"tk.{name}(" not in code] == []


def test_a_description_has_signature_parameters_result_and_errors() -> None:
    text = description("softmax")
    assert text.startswith("### tk.softmax\n\nCompute the softmax")
    assert "tk.softmax(x, *, out=None)" in text
    assert "| `x` | of shape (..., columns)" in text and "Returns: An array" in text
    marks = "<!-- function: Epilogue -->\n<!-- function: mean -->"
    assert "|\n\n### tk.mean" in filled(f"a\n{marks}\nb")  # no row of the table before
    assert "`TypeError`: `x` contains integers" in description("mean").replace("``", "`")


@pytest.mark.parametrize("name", [name for page in PAGES.values() for name in named(page)])
def test_parameters_that_a_docstring_names_are_all(name: str) -> None:
    found = getattr(tk, name)
    text = inspect.getdoc(found) or ""
    assert text
    if inspect.isfunction(found) and "Args:" in text:
        words = set(re.findall(r"\w+", text.partition("Args:")[2]))
        assert set(inspect.signature(found).parameters) - {"keywords"} <= words
