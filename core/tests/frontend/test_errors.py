"""The whole text of errors: rule, place, source, caret, chain of calls, remedy. The cases are in
``error_texts.txt``."""

from __future__ import annotations

import ast
import pickle
import re
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.errors import CompilationError
from tilewright.language.options import Options


def read_cases() -> list[Any]:
    """(source, arguments, kind, cause, text) of each case, with its name as the id."""
    text = (Path(__file__).parent / "error_texts.txt").read_text()
    cases = []
    for part in text.split("\n=== ")[1:]:
        head, _, rest = part.partition("\n---\n")
        name, _, arguments = head.partition("\n")
        source, _, rest = rest.partition("---> ")
        kinds, _, expected = rest.partition("\n")
        kind, cause = kinds.split()
        cases.append(
            pytest.param(
                source, ast.literal_eval(arguments), kind, cause, expected.rstrip("\n"), id=name
            )
        )
    return cases


CASES = read_cases()


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 80


@pytest.mark.parametrize(("text", "arguments", "kind", "cause", "expected"), CASES)
def test_the_text_of_an_error(
    source: Any, text: str, arguments: dict[str, Any], kind: str, cause: str, expected: str
) -> None:
    made = source(text)
    error = made.error(**arguments)
    assert str(error).replace(made.__file__, "k.py") == expected
    assert type(error).__name__ == kind
    assert (type(error.__cause__).__name__ if error.__cause__ else "-") == cause


@pytest.mark.parametrize("before", [0, 100, 300])
def test_of_a_long_line_the_part_around_the_caret_is_shown(source: Any, before: int) -> None:
    made = source(
        f"""
        @jit
        def kernel(x):
            y = {"x + " * before}nothing{" + x" * 100}
        """
    )
    *_, line, carets = (
        text.partition(" | ")[2] for text in str(made.error(x="i32")).splitlines() if " | " in text
    )
    assert len(line) <= 160 and line.endswith("…") and line.startswith("…") == (before > 40)
    start = carets.index("^")
    assert line[start : start + carets.count("^")] == "nothing"


def test_an_error_knows_its_place_and_can_be_pickled(source: Any) -> None:
    made = source(
        """
        class Holder:
            @jit
            def kernel(x):
                y = x + nothing

        kernel = Holder.__dict__["kernel"]
        """
    )
    error = made.error(x="i32")
    assert (error.message, error.file, error.line, error.column) == (
        "nothing is not defined",
        made.__file__,
        9,
        16,
    )
    assert "  9 |         y = x + nothing\n    |                 ^^^^^^^" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, CompilationError)
    assert (str(again), again.line) == (str(error), 9)


def test_the_compilers_own_frames_are_hidden_unless_asked_for(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = source("@jit\ndef kernel(x):\n    y = x + nothing\n")

    def depth() -> int:
        trace, count = made.error(x="i32").__traceback__, 0
        while trace is not None:
            count, trace = count + 1, trace.tb_next
        return count

    short = depth()
    monkeypatch.setenv("TILEWRIGHT_FRONT_END_DEBUGGING", "1")
    assert depth() > short + 3


NESTED = """
@jit
def inner(x):
    y = x + 1
    return tl.arange(0, 3)

@jit
def middle(x):
    return inner(x)

@jit
def kernel(x):
    pass
    y = middle(x)
"""


def test_an_error_inside_a_call_has_the_errors_of_both_places(source: Any) -> None:
    made = source(NESTED)
    outer = made.error(x="i32")
    inner = outer.__cause__
    assert isinstance(inner, CompilationError)
    # The kernel's own error shows every place, the cause its own alone; both count lines of the
    # file.
    assert [line.strip() for line in str(outer).splitlines() if made.__file__ in line] == [
        f"--> {made.__file__}:9:11 in inner",
        f"inlined at {made.__file__}:13:11 in middle",
        f"inlined at {made.__file__}:18:8 in kernel",
    ]
    assert [line.strip() for line in str(inner).splitlines() if "-->" in line] == [
        f"--> {made.__file__}:9:11 in inner"
    ]
    assert (outer.line, inner.line) == (9, 9)
    for error, function, call in (
        (outer, "kernel", "middle(x)"),
        (inner, "inner", "tl.arange(0, 3)"),
    ):
        assert error.error_message.splitlines()[0] == "arange's range must be a power of 2: it is 3"
        assert error.src.startswith(f"def {function}(x):")
        assert ast.unparse(error.node) == call
    # The builtin's message comes last, with the frames that led to it, and states the rule alone.
    root = inner.__cause__
    assert isinstance(root, ValueError) and str(root) == "arange's range must be a power of 2"
    assert any(
        frame.filename.endswith("core.py") for frame in traceback.extract_tb(root.__traceback__)
    )
    again = pickle.loads(pickle.dumps(outer))
    assert (str(again), ast.unparse(again.node)) == (str(outer), "middle(x)")


def test_the_authors_line_comes_before_those_of_the_library(source: Any) -> None:
    made = source(
        """
        @jit
        def last(x):
            return tl.sort(x, dim=2)

        @jit
        def kernel(p):
            tl.store(p, tl.sum(last(tl.load(p + tl.arange(0, 8)))))
        """
    )
    error = made.error(p="*fp32")
    labels = ("-->", "inlined at", "called in", "raised in")
    places = [line.strip() for line in str(error).splitlines() if line.strip().startswith(labels)]
    assert places[:2] == [
        f"--> {made.__file__}:8:11 in last",
        f"inlined at {made.__file__}:12:23 in kernel",
    ]
    library = [
        re.fullmatch(r"(\w+) in .*/(\w+\.py):\d+:\d+ in (\w+)", place) for place in places[2:]
    ]
    assert [match.groups() for match in library if match] == [
        ("called", "sorting.py", "sort"),
        ("raised", "sorting.py", "sort_impl"),
    ]
    assert (error.file, error.line, error.column) == (made.__file__, 8, 11)
    assert "8 |     return tl.sort(x, dim=2)\n    |            ^^^^^^^^^^^^^^^^^" in str(error)


def test_an_error_of_the_kernel_itself_has_no_cause_but_an_exception_of_python(source: Any) -> None:
    assert source("@jit\ndef kernel():\n    tl.static_assert(False)\n").error().__cause__ is None
    assert source("@jit\ndef kernel():\n    -(0, 0)\n").error().__cause__ is None
    assert isinstance(source("@jit\ndef kernel():\n    1.0 << 1\n").error().__cause__, TypeError)


def test_a_function_that_may_end_without_a_return_is_warned_of(source: Any) -> None:
    made = source(
        """
        @jit
        def pick(x):
            if x > 0:
                return x

        @jit
        def kernel(out, x):
            tl.store(out, pick(x))
        """
    )
    with pytest.warns(
        UserWarning,
        match="pick returns a value of type int32 here, but may also end without a return",
    ) as caught:
        module = made.compile(out="*i32", x="i32")
    assert (caught[0].filename, caught[0].lineno) == (made.__file__, 9)
    out = np.zeros(1, np.int32)
    made.interpret(module, [out, 5])
    assert out[0] == 5


def test_programs_written_for_triton_are_told_lines_of_the_function_too(source: Any) -> None:
    error = source(NESTED).error(x="i32", options=Options(named_values=True))
    assert re.findall(r"in (\w+) \(at (\d+:\d+):\)", str(error)) == [
        ("inner", "3:11"),
        ("middle", "2:11"),
        ("kernel", "3:8"),
    ]
