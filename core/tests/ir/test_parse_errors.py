"""Errors of the parser."""

from __future__ import annotations

import random

import pytest

from tilewright.ir.parser import ParseError, parse_module
from tilewright.ir.printer import print_module
from tilewright_conformance.op_samples import samples

HEAD = "tilewright.ir 1.0\nkernel @k(%i: i32, %p: ptr<f32>, %t: tile<8xf32>) {\n"

#: (text after the head, line, column, message)
CASES = [
    (
        "  %x = addpt %p, %i : ptr<f32>\n",
        3,
        8,
        "there is no operation 'addpt'; did you mean addptr?",
    ),
    (
        "  %x = add %i, %ii : i32\n",
        3,
        16,
        "%ii is not defined before it is read here; did you mean %i?",
    ),
    ("  %x = add %x, %i : i32\n", 3, 12, "%x is not defined before it is read here"),
    ("  %i = add %i, %i : i32\n", 3, 3, "%i is defined already"),
    ("  %x = add %i : i32\n", 3, 8, "add takes 2 operands without a name (a, b), 1 are given"),
    ("  %x = neg : i32\n", 3, 8, "neg takes 1 operand, 0 are given"),
    ("  %x = add %i, : i32\n", 3, 16, "expected an operand, found ':'"),
    ("  %x = add %i, %i\n  return", 4, 3, "expected ':' and the type of %x, found 'return'"),
    ("  %x, %y = add %i, %i : i32\n", 3, 12, "add has 1 result types for 2 named results"),
    ("  add %i, %i : i32\n", 3, 14, "add has result types but no named results"),
    (
        "  %x = add %i, %i : i33\n",
        3,
        21,
        (
            "unknown float type 'i33'; known: f16, bf16, f32, f64, f8e4m3fn, f8e5m2, f8e4m3fnuz, "
            "f8e5m2fnuz, f8e4b15"
        ),
    ),
    ("  %x = add %i, %i : tile<0xi32>\n", 3, 21, "a tile has rank >= 1 and extents >= 1, not (0,)"),
    ("  %x = add %i, %i : tile<4xi32\n", 3, 21, "this type has no closing '>'"),
    (
        "  %x = load %p, msk=%i : f32\n",
        3,
        17,
        "load has no operand that is written msk=; it has mask, other",
    ),
    ("  %x = load %p, mask=%i, mask=%i : f32\n", 3, 26, "operand mask is given twice"),
    (
        "  %x = load pointer=%p : f32\n",
        3,
        13,
        "load has no operand that is written pointer=; it has mask, other",
    ),
    ("  %x = for %i, %i, %i, inits=%t : f32\n", 3, 30, "expected '[' and the values, found '%t'"),
    (
        "  %x = arange {start = 0, stop = 8} : tile<8xi32>\n",
        3,
        27,
        "arange has no attribute 'stop'; it has start, end",
    ),
    (
        "  %x = arange {start = 0, start = 8} : tile<8xi32>\n",
        3,
        27,
        "attribute start is given twice",
    ),
    (
        "  %x = arange {start 0} : tile<8xi32>\n",
        3,
        22,
        "expected '=' and the value of start, found '0'",
    ),
    (
        "  %x = arange {start = 0 end = 8} : tile<8xi32>\n",
        3,
        26,
        "expected ',' or '}', found 'end'",
    ),
    ("  %x = arange {start = } : tile<8xi32>\n", 3, 24, "expected an attribute's value, found '}'"),
    ("  for %i, %i, %i {\n", 4, 1, "expected an attribute's name, found the end of the text"),
    (
        "  for %i, %i, %i bdy(%n: i32) { yield }\n",
        3,
        18,
        "expected 'body' and that region of for, found 'bdy'",
    ),
    (
        "  for %i, %i, %i body(%n i32) { yield }\n",
        3,
        26,
        "expected ':' and the argument's type, found 'i32'",
    ),
    ("  for %i, %i, %i body(%i: i32) { yield }\n", 3, 23, "%i is defined already"),
    ("  assume %i loc(3:4)\n", 3, 17, "expected a file's name, found '3'"),
    ('  assume %i loc("f":3.5:4)\n', 3, 21, "expected a line, found '3.5'"),
    ('  assume %i loc("f":3:4 of "x")\n', 3, 25, "expected 'at' or ')', found 'of'"),
    (
        '  print %i {prefix = "\\q"}\n',
        3,
        22,
        "'\\q' is no escape; there are \\\" \\\\ \\n \\t \\r and \\u{hex}",
    ),
    ('  print %i {prefix = "\\u{110000}"}\n', 3, 22, "no character has the code 110000"),
    ('  print %i {prefix = "abc\n', 3, 22, "'\"' begins nothing that the text form has"),
    ("  ; %x\n", 3, 3, "';' begins nothing that the text form has"),
    ("  return\n", 4, 1, "expected an operation or '}', found the end of the text"),
    ("  return\n}\nkernel @k() { return }", 5, 1, "the module has a function @k already"),
    ("  return\n}\nfun @f() { return }", 5, 1, "expected 'kernel' or 'function', found 'fun'"),
    (
        "  return\n}\nfunction f() { return }",
        5,
        10,
        "expected the function's name, @name, found 'f'",
    ),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), CASES)
def test_message(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_module(HEAD + text)
    assert (caught.value.message, caught.value.line, caught.value.column) == (message, line, column)


def test_the_source_line_is_shown() -> None:
    with pytest.raises(ParseError) as caught:
        parse_module(HEAD + "  %x = selct %i, %i : i32\n}\n")
    where, line, caret = str(caught.value).split("\n")
    assert where == "line 3, column 8: there is no operation 'selct'; did you mean select?"
    assert line == "    %x = selct %i, %i : i32"
    assert caret == "         ^"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tilewright.ir 2.0\n",
            "the text is of Tile IR version 2.0; this compiler reads 1.0 to 1.0",
        ),
        (
            "tilewright.ir 1.7\n",
            "the text is of Tile IR version 1.7; this compiler reads 1.0 to 1.0",
        ),
        ("tilewright.ir 1\n", "expected the IR's version, MAJOR.MINOR"),
        ("kernel @k() { return }", "expected 'tilewright.ir' and the version, found 'kernel'"),
        ("", "expected 'tilewright.ir' and the version, found the end of the text"),
    ],
)
def test_header(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_module(text)
    assert caught.value.message == message


def test_a_value_is_forgotten_behind_its_region() -> None:
    with pytest.raises(ParseError, match="%y is not defined"):
        parse_module(
            "tilewright.ir 1.0 kernel @k(%c: i1, %i: i32) { if %c then { %y = neg %i : i32 "
            "yield } else { yield %y } return }"
        )
    with pytest.raises(ParseError, match="%n is not defined"):
        parse_module(
            "tilewright.ir 1.0 kernel @k(%i: i32) { for %i, %i, %i body(%n: i32) { yield } "
            "print %n return }"
        )


PIECES = [
    *'%@{}()[]<>=,:"#.-0x',
    "\n",
    "loc(",
    "->",
    "tile<",
    "%x",
    "add",
    "for",
    "nan",
    "1e",
    "\\",
    "{value = ",
    "yield",
    "0.5",
    "body",
]


@pytest.mark.parametrize("seed", range(40))
def test_damaged_text_gives_parse_errors_alone(seed: int) -> None:
    rng = random.Random(seed)
    sample = rng.choice(
        [
            sample
            for name in ("for", "reduce", "call", "print", "dot", "while", "inline_asm")
            for sample in samples(name)
        ]
    )
    text = print_module(sample.module)
    for _ in range(60):
        damaged = text
        for _ in range(rng.randint(1, 3)):
            start = rng.randrange(len(damaged))
            end = start + rng.choice([0, 1, 1, 2, 5, 40])
            damaged = damaged[:start] + rng.choice(["", *PIECES]) + damaged[end:]
        try:
            module = parse_module(damaged)
        except ParseError as error:
            lines = damaged.split("\n")
            assert 1 <= error.line <= len(lines)
            assert 1 <= error.column <= len(lines[error.line - 1]) + 1
        else:
            assert print_module(parse_module(print_module(module))) == print_module(module)
