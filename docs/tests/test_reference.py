"""The reference is whole: every public name is described, every parameter explained, every example
runs."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import debug, testing
from tilewright.language.definitions.callable import JitCallable
from tilewright_conformance.api_coverage.public_names import Name, names, resolve

DOCS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DOCS))
from reference_pages import docstrings
from reference_pages.examples import program
from reference_pages.pages import example_of, exists, has_own_page, is_compiled, pages, parameters

sys.path.pop(0)

PAGES = pages()
OWN = [name for name in names().values() if has_own_page(name) and exists(name)]
FUNCTIONS = [
    name
    for name in names().values()
    if name.kind == "function" and not name.alias and name.full.startswith("tl.") and exists(name)
]


def test_every_name_is_on_its_page() -> None:
    absent = [
        name.full
        for name in names().values()
        if exists_or_has_no_object(name) and f"{name.page}.md" not in PAGES
    ]
    assert absent == []
    for name in names().values():
        if not exists_or_has_no_object(name):
            continue
        text = PAGES[f"{name.page}.md"].replace("\\|", "|")
        assert (
            f"`{name.full}`" in text
            or f"`{name.last}(" in text
            or f"`tl.{name.last}(" in text
            or f"`tw.{name.full.removeprefix('tilewright.')}(" in text
            or f"`tw.{name.full.removeprefix('tilewright.')}`" in text
            or f"# {name.full}" in text
            or has_own_page(name)
        ), name.full


def exists_or_has_no_object(name: Name) -> bool:
    from tilewright_conformance.api_coverage.shim import shim

    if not name.full.startswith("triton."):
        return exists(name)
    with shim():
        return exists(name)


NAMING_ERRORS = [
    name
    for name in OWN
    if is_compiled(name, resolve(name)) and docstrings.parse(resolve(name)).raises
]


def test_the_errors_of_a_page_are_what_a_wrong_call_in_a_kernel_raises(tmp_path: Path) -> None:
    """An argument that there is not, and none where there have to be some, whatever each function
    asks of the rest."""
    wrong = [
        (name, call)
        for name in NAMING_ERRORS
        for call in (f"{name.full}(nothing_like_it=1)", f"{name.full}()")
    ]
    lines = ["import tilewright as tw", "import tilewright.language as tl", ""]
    for index, (_, call) in enumerate(wrong):
        lines += ["@tw.jit", f"def wrong_{index}():", f"    {call}", ""]
    file = tmp_path / "wrong_calls.py"
    file.write_text("\n".join(lines))
    space: dict[str, Any] = {"__name__": "wrong_calls", "__file__": str(file)}
    exec(compile(file.read_text(), str(file), "exec"), space)
    tried = set()
    for index, (name, call) in enumerate(wrong):
        table = re.findall(
            r"^\| `(\w+)` \|",
            PAGES[f"{name.page}.md"].partition("## Errors")[2].partition("##")[0],
            re.M,
        )
        assert table and all(
            issubclass(getattr(tw.errors, error), tw.TilewrightError) for error in table
        ), name.full
        try:
            with tw.backend("reference"):
                space[f"wrong_{index}"].warmup(grid=(1,))
        except Exception as error:
            assert type(error) is tw.CompilationError, call
            tried.add(name.full)
    assert tried == {name.full for name in NAMING_ERRORS}


@pytest.mark.parametrize("name", OWN, ids=lambda name: name.full)
def test_a_page_has_a_summary_a_signature_and_an_example(name: Name) -> None:
    text = PAGES[f"{name.page}.md"]
    doc = docstrings.parse(resolve(name))
    assert doc.summary.endswith((".", ":", ")", "}")), doc.summary
    assert "```text" in text
    assert example_of(name) is not None, f"no probe shows {name.full}"
    if name.kind == "function":
        assert doc.example, f"{name.full} has no line that shows its use"


@pytest.mark.parametrize("name", FUNCTIONS, ids=lambda name: name.full)
def test_a_docstring_names_the_parameters(name: Name) -> None:
    found = resolve(name)
    text = inspect.getdoc(found) or ""
    assert text, f"{name.full} has no docstring"
    if not has_own_page(name) and name.page != "language/math":
        return  # a row of a table: one sentence
    doc = docstrings.parse(found)
    written = {parameter.lstrip("*").partition("=")[0] for parameter in parameters(found)}
    assert written == set(doc.parameters), (
        f"{name.full} has the parameters {sorted(written)} and explains {sorted(doc.parameters)}"
    )


@pytest.mark.parametrize(
    "name", [name for name in OWN if name.page.startswith("host/")], ids=lambda name: name.full
)
def test_functions_of_the_host_name_their_parameters(name: Name) -> None:
    found = resolve(name)
    if isinstance(found, type) or not callable(found):
        return  # their docstrings tell of attributes
    text = inspect.getdoc(found) or ""
    unnamed = [
        parameter
        for parameter in parameters(found)
        if parameter.lstrip("*").partition("=")[0] not in text
    ]
    assert set(unnamed) <= {"fn=None", "**options"}, (
        unnamed
    )  # `jit` is used bare or with the options it lists


def test_the_debugging_page_has_the_options_of_each_function() -> None:
    text = PAGES["host/debug.md"]
    assert "`tw.debug.watch(kernel)`" in text
    assert "`tw.debug.bisect(kernel, *, exact=False)`" in text and "| `exact` |" in text
    for name in debug.__all__:
        assert f"\n## {name}\n" in text
        for attribute in getattr(getattr(debug, name), "__dataclass_fields__", ()):
            assert re.search(rf"\| `(\w+, )*{attribute}(, \w+)*` \|", text), (name, attribute)
    for method in ("conclusions()", "conclusion()", "culprit", "nan_origins", "written_nan"):
        assert re.search(rf"\| `{re.escape(method)}` \| [A-Z]", text), method


def test_the_testing_page_has_every_function_of_the_module() -> None:
    text = PAGES["host/testing.md"]
    for name in testing.__all__:
        assert f"\n## {name}\n" in text and f"`tw.testing.{name}" in text
    assert "`tw.testing.gradcheck(kernel, grid, *args, outputs, wrt, " in text
    assert "| `directions` |" in text


@pytest.mark.parametrize("name", OWN, ids=lambda name: name.full)
def test_the_example_of_a_page_runs(name: Name, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGES[f"{name.page}.md"], re.M | re.S)
    example = example_of(name)
    assert example is not None and blocks == [program(example).rstrip() + "\n"]
    _run(blocks[0], tmp_path)


_WRAPPER = """
import math

import tilewright as tw
import tilewright.language as tl


@tw.jit
def combine(a, b):
    return a + b


@tw.jit
def use(x_ptr, out_ptr, lock_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    y = x * 2
"""


@pytest.mark.parametrize(
    "name",
    [name for name in FUNCTIONS if has_own_page(name) or name.page == "language/math"],
    ids=lambda name: name.full,
)
def test_the_lines_that_show_the_use_of_a_function_run(name: Name, tmp_path: Path) -> None:
    example = docstrings.parse(resolve(name)).example
    assert name.last in example
    module = _run(_WRAPPER + textwrap.indent(example, "    ") + "\n", tmp_path)
    x, out, lock = (
        np.linspace(0.1, 0.9, 16, dtype=np.float32),
        np.zeros(16, np.float32),
        np.zeros(1, np.int32),
    )
    kernel: Any = module.use
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", DeprecationWarning)
        if name.last == "inline_asm_elementwise":  # assembly of one kind of target
            pytest.importorskip("tilewright_nvidia")
            from tilewright_conformance.api_coverage.probes import TargetMachine

            TargetMachine("nvidia", "sm_90a").compile(kernel, (x, out, lock, 16), {"BLOCK": 16})
            return
        with tw.backend("reference"):
            kernel[(1,)](x, out, lock, 16, BLOCK=16)


def _run(text: str, folder: Path) -> ModuleType:
    """Run a program from a file, as its author would."""
    file = folder / "example.py"
    file.write_text(text)
    module = ModuleType("example")
    module.__file__ = str(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, str(file), "exec"), module.__dict__)
    return module


def test_kernels_are_recognised() -> None:
    assert sum(isinstance(resolve(name), JitCallable) for name in FUNCTIONS) > 20
