"""``run:`` directives: their values, and the place of each mistake."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tilewright.ir.parser import ParseError
from tilewright_conformance.runtests.directives import Run, parse
from tilewright_conformance.runtests.literals import Literal


def only(text: str) -> Run:
    (run,) = parse(text).runs
    return run


def plain(literal: Literal) -> Any:
    """The Python value of a literal."""
    value = literal.value
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def test_calls_results_and_contents_are_read() -> None:
    run = only(
        "; run: grid(3, 2) @f(1, [2.5, -inf]) == (true, [0x1F] * 3), %p == range(-1, 2) "
        "within 2 ulp"
    )
    assert (run.name, run.grid) == ("f", (3, 2, 1))
    assert [plain(argument) for argument in run.arguments] == [1, [2.5, -math.inf]]
    assert [plain(result.literal) for result in run.results] == [True, [31, 31, 31]]
    assert [(one.name, plain(one.expected.literal), one.expected.ulp) for one in run.contents] == [
        ("p", [-1, 0, 1], 2.0)
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-5", -5), ("0x80000000", 1 << 31), ("1.", 1.0), ("1e-3", 0.001), ("-0x1.8p3", -12.0),
        ("false", False),
        ("[]", []), ("[[1], [2]] * 2", [[1], [2], [1], [2]]), ("range(3, 3)", []),
        ("[range(0, 2)] * 2", [[0, 1], [0, 1]]),
    ],
)  # fmt: skip
def test_values(text: str, value: Any) -> None:
    assert plain(only(f"; run: @f({text}) == 0").arguments[0]) == value


def test_nan_is_a_value() -> None:
    assert math.isnan(plain(only("; run: @f(0) == nan").results[0].literal))


def test_a_directive_goes_on_in_the_next_comments() -> None:
    run = only("; run: @f([1,\n;   2],\n ; 3)\n;  == 4,\n; %p == [5]\n; a comment: with a colon\n")
    assert [plain(argument) for argument in run.arguments] == [[1, 2], 3]
    assert plain(run.results[0].literal) == 4 and run.contents[0].line == 5


def test_the_text_keeps_its_lines_and_columns() -> None:
    found = parse("; title\n  kernel @k() {\n  ; run: @k() == 1\n}")
    assert found.ir == "\n  kernel @k() {\n\n}"
    assert (found.runs[0].line, found.runs[0].column) == (3, 5)


MALFORMED = {
    "; run: f(1) == 2": (1, 8, "expected the function to call, @name, found 'f'"),
    "; run: @f 1": (1, 11, "expected '(', found '1'"),
    "; run: @f(1 2) == 3": (1, 13, "expected ',' or ')', found '2'"),
    "; run: @f(1) = 3": (1, 14, "'=' begins nothing that a directive has"),
    "; run: @f(1)": (
        1,
        13,
        (
            "expected '==' and the expected results, or ',' and a pointer's contents, found the "
            "end of the directive"
        ),
    ),
    "; run: @f(1) ==": (
        1,
        16,
        (
            "expected a value: a number, true, false, or a list in brackets, found the end of "
            "the directive"
        ),
    ),
    "; run: @f(1) == 3 4": (1, 19, "expected ',' or the end of the directive, found '4'"),
    "; run: @f(one) == 3": (
        1,
        11,
        "expected a value: a number, true, false, or a list in brackets, found 'one'",
    ),
    "; run: @f(1) == 3, p == 4": (1, 20, "expected a pointer argument, %name, found 'p'"),
    "; run: @f(1) == 3, %p 4": (1, 23, "expected '==', found '4'"),
    "; run: @f(1) == 3 within nan ulp": (
        1,
        26,
        "expected a positive number of units in the last place",
    ),
    "; run: @f(1) == 3 within 2": (1, 27, "expected 'ulp', found the end of the directive"),
    "; run: grid(0) @f() == 3": (1, 13, "expected a number of programs, at least 1"),
    "; run: grid(1, 1, 1, 1) @f() == 3": (1, 13, "a grid has one to three extents"),
    "; run: @f([1] * 0) == 3": (1, 17, "expected how often the list is repeated, at least 1"),
    "; run: @f([1] * 9999999) == 3": (1, 17, "a list has at most 1048576 elements"),
    "; run: @f(0x1.0p9999) == 3": (1, 11, "0x1.0p9999 is beyond every float"),
    "; run: @f([1,\n;  2\n% 3": (2, 5, "expected ',' or ']', found the end of the directive"),
    "; run: @f([1,\n;  2\n; run: @f(2) == 3": (
        2,
        5,
        "expected ',' or ']', found the end of the directive",
    ),
    "text\n  ; rum: @f(1) == 2": (2, 5, "there is no directive 'rum:', only 'run:'"),
    "; no directive: at all": (1, 1, "the file has no directive '; run: @function(...) == ...'"),
}


@pytest.mark.parametrize("text", MALFORMED)
def test_mistakes_are_reported_with_line_and_column(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column, error.message) == MALFORMED[text]
    assert error.source == text.split("\n")[error.line - 1]
