"""The whole text of errors: rule, place, source, caret, chain of calls, remedy. The cases are in ``error_texts.txt``."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import CompilationError


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
        cases.append(pytest.param(source, ast.literal_eval(arguments), kind, cause, expected.rstrip("\n"), id=name))
    return cases


CASES = read_cases()


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 80


@pytest.mark.parametrize(("text", "arguments", "kind", "cause", "expected"), CASES)
def test_the_text_of_an_error(source: Any, text: str, arguments: dict[str, Any], kind: str, cause: str, expected: str) -> None:
    made = source(text)
    error = made.error(**arguments)
    assert str(error).replace(made.__file__, "k.py") == expected
    assert type(error).__name__ == kind
    assert (type(error.__cause__).__name__ if error.__cause__ else "-") == cause


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
    assert (error.message, error.file, error.line, error.column) == ("nothing is not defined", made.__file__, 9, 16)
    assert "  9 |         y = x + nothing\n    |                 ^^^^^^^" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, CompilationError)
    assert (str(again), again.line) == (str(error), 9)


def test_the_compilers_own_frames_are_hidden_unless_asked_for(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = source("@jit\ndef kernel(x):\n    y = x + nothing\n")

    def depth() -> int:
        trace, count = made.error(x="i32").__traceback__, 0
        while trace is not None:
            count, trace = count + 1, trace.tb_next
        return count

    short = depth()
    monkeypatch.setenv("TILEWRIGHT_FRONT_END_DEBUGGING", "1")
    assert depth() > short + 3
