"""Expressions of command lines: what they mean, and that they cannot do anything else."""

import pytest

from tilewright.runtime.integers import cdiv
from tilewright.tools.expressions import evaluate

NAMES = {"n": 1000, "BLOCK": 64, "scale": 0.5, "array": [1]}
FUNCTIONS = {"cdiv": cdiv, "min": min}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" n // BLOCK + 1", 16),
        ("(cdiv(n, BLOCK), -n % 7, 2 ** 3)", (16, -1000 % 7, 8)),
        ("()", ()),
        ("n > 3", True),
        ("BLOCK if n < 5 else min(n, 3.5)", 3.5),
        ("1 << 10 | ~0 & 5 ^ 1", 1 << 10 | ~0 & 5 ^ 1),
        ("None", None),
        ("not True", False),
        ("scale / 2", 0.25),
    ],
)
def test_values(text, value):
    assert evaluate(text, NAMES, FUNCTIONS) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__.__base__.__subclasses__()",
        "n.real",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "[1][0]",
        "'text'",
        "f'{n}'",
        "min(*(1, 2))",
        "min(1, key=n)",
        "(n := 1)",
        "n < 2 < 3",
        "open('/etc/passwd')",
        "exit()",
        "n n",
        "",
    ],
)
def test_everything_else_is_refused(text):
    with pytest.raises(SyntaxError):
        evaluate(text, NAMES, FUNCTIONS)


@pytest.mark.parametrize("text", ["9 ** 9 ** 9", "1 << 10 ** 12", "10 ** 1000 * 10 ** 1000"])
def test_numbers_are_not_made_too_large(text):
    with pytest.raises(OverflowError):
        evaluate(text, NAMES, FUNCTIONS)


def test_what_has_no_value_says_why():
    with pytest.raises(NameError, match="'m' is not known"):
        evaluate("n + m", NAMES, FUNCTIONS)
    with pytest.raises(TypeError, match="list is no number"):
        evaluate("array * 2", NAMES, FUNCTIONS)
    with pytest.raises(ZeroDivisionError):
        evaluate("1 // 0", NAMES, FUNCTIONS)
