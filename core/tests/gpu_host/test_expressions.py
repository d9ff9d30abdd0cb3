"""Expressions over the words of a launch: Python and machine code agree on their values, and on
whether there is one."""

from __future__ import annotations

import ctypes
import json
import random
from typing import Any

import pytest

from tilewright.gpu_host.expressions import (
    Emitter,
    Expression,
    ExpressionError,
    checked,
    evaluate,
    plain,
    with_words,
    word,
    words_of,
)
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object
from tilewright.llvm.emission.writer import ModuleWriter

LEAST, MOST = -(2**63), 2**63 - 1
OPERATORS = ("add", "sub", "mul", "min", "max", "div")


def machine_values(expressions: list[Expression], words: list[list[int]]) -> list[int | None]:
    """Return the native value of expressions; None if there is none."""
    module = ModuleWriter("nounwind")
    flat = [each for argument in words for each in argument]
    first = [sum(len(argument) for argument in words[:number]) for number in range(len(words))]
    for number, expression in enumerate(expressions):
        w = module.function(f"f{number}", [("ptr", "words"), ("ptr", "value")], "i1")
        emitter = Emitter(
            w,
            lambda argument, index, w=w: w.load(
                "i64", w.gep("i64", "%words", first[argument] + index), 8
            ),
        )  # type: ignore[misc]
        w.store("i64", emitter.emit(expression), "%value", 8)
        w.ret(f"i1 {emitter.fault()}")
    triple, cpu, features = host_target()
    names = [f"f{number}" for number in range(len(expressions))]
    loaded = load_object(
        compile_to_object(module.text(), triple=triple, cpu=cpu, features=features), names
    )
    found: list[int | None] = []
    memory = (ctypes.c_uint64 * len(flat))(*(each % 2**64 for each in flat))
    for name in names:
        value = ctypes.c_int64()
        function = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)(
            loaded.address(name)
        )
        fault = function(ctypes.addressof(memory), ctypes.addressof(value))
        found.append(None if fault else value.value)
    return found


def python_value(expression: Expression, words: list[list[int]]) -> int | None:
    try:
        return evaluate(expression, words)
    except ExpressionError:
        return None


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (("div", -7, 2), -3),
        (("div", 7, -2), -3),
        (("div", -7, -2), 3),
        (("div", 1, 0), None),
        (("div", LEAST, -1), None),
        (("add", MOST, 1), None),
        (("sub", LEAST, 1), None),
        (("mul", 2**40, 2**23), None),
        (("mul", 2**40, -(2**23)), LEAST),
        (("sub", ("add", MOST, 1), 1), None),
        (("min", -1, 3), -1),
        (("max", LEAST, MOST), MOST),
        (word(1, 2), 9),
        (word(2), -1),
        (("mul", word(0), ("sub", word(1, 1), word(1, 1))), 0),
    ],
)
def test_values(expression: Expression, value: int | None) -> None:
    words = [[5], [7, 8, 9], [2**64 - 1]]
    assert python_value(expression, words) == value
    assert machine_values([expression], words) == [value]


def drawn(source: random.Random, depth: int) -> Expression:
    if depth == 0 or source.random() < 0.1:
        if source.random() < 0.5:
            return word(source.randrange(3), source.randrange(2))
        return source.choice(
            [0, 1, -1, 16, LEAST, MOST, source.randrange(-100, 100), source.randrange(LEAST, MOST)]
        )
    return (source.choice(OPERATORS), drawn(source, depth - 1), drawn(source, depth - 1))


def test_random_expressions_are_the_same_in_machine_code() -> None:
    source = random.Random(11)
    words = [
        [source.choice([0, 1, 3, 64, -5, 2**31, MOST, LEAST]) for _ in range(2)] for _ in range(3)
    ]
    expressions = [drawn(source, 1 + number % 4) for number in range(300)]
    expected = [python_value(expression, words) for expression in expressions]
    assert machine_values(expressions, words) == expected
    known = [value for value in expected if value is not None]
    assert len(set(known)) > 30 and len(known) < len(expected)


def test_each_part_is_written_once() -> None:
    part: Expression = ("mul", word(0), word(1))
    w = ModuleWriter("nounwind").function("f", [("i64", "x"), ("i64", "y")], "i64")
    emitter = Emitter(w, lambda argument, _: ("%x", "%y")[argument])
    assert emitter.emit(part) == emitter.emit(part)
    emitter.emit(("add", part, part))
    assert (
        sum("smul.with.overflow" in line for line in w.entry.lines) == 1
        and len(emitter.faults) == 2
    )


def test_round_trip_through_json() -> None:
    source = random.Random(3)
    for _ in range(50):
        expression = drawn(source, 5)
        assert checked(json.loads(json.dumps(plain(expression)))) == expression


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (True, "True"),
        (1.5, "1.5"),
        (None, "None"),
        (2**63, "does not fit 64 bits"),
        (["word", -1, 0], "'word', -1"),
        (["word", 0], "'word', 0"),
        (["word", 0, "x"], "'x'"),
        (["pow", 2, 3], "pow"),
        (["add", 1, ["mul", 2, "y"]], "'y'"),
    ],
)
def test_what_is_no_expression(data: Any, named: str) -> None:
    with pytest.raises(ExpressionError, match=named):
        checked(data)


def test_words_that_a_launch_does_not_have() -> None:
    with pytest.raises(ExpressionError, match="no word 3 of argument 1"):
        evaluate(("add", word(0), word(1, 3)), [[1], [2, 3]])


def test_words_can_be_told_and_renamed() -> None:
    expression: Expression = ("add", word(3), ("mul", word(1, 2), ("min", 4, word(3))))
    assert list(words_of(expression)) == [(3, 0), (1, 2), (3, 0)]
    moved = with_words(
        expression, lambda argument, index: word(argument + 1, index) if argument == 3 else 7
    )
    assert moved == ("add", word(4), ("mul", 7, ("min", 4, word(4))))
