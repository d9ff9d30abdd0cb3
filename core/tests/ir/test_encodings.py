"""Encodings, layouts of values, facts of functions and attributes with a dot: in the text form, in
the structural hash, and where they are wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from tilewright.ir import TABLE
from tilewright.ir.hash import structural_hash
from tilewright.ir.parser import ParseError, parse_module
from tilewright.ir.printer import print_module, print_operation
from tilewright.ir.types import I32, TileType, Type
from tilewright.ir.verifier import VerificationError, verify


@dataclass(frozen=True)
class Stripes:
    """A toolkit's layout: who holds a tile's elements goes by their number modulo ``count``."""

    keyword: ClassVar[str] = "stripes"
    prefix: ClassVar[str] = "T"
    count: int

    def text(self) -> str:
        return str(self.count)

    def misfit(self, type_: Type) -> str:
        return (
            ""
            if isinstance(type_, TileType) and type_.numel % self.count == 0
            else f"{self.count} stripes of {type_}"
        )

    @classmethod
    def parse(cls, text: str) -> Stripes:
        if not text.isdecimal():
            raise ValueError(f"{text!r} is no number of stripes")
        return cls(int(text))


STRIPED = TABLE.extended((), {}, {"stripes": Stripes.parse})

TEXT = """tilewright.ir 1.0
#T0 = stripes<4>
#T1 = stripes<8>

kernel @k(%x: tile<16xi32, #T0>, %n: i32 {divisibility = 16}) attributes {warps = 4, "odd name" = stripes<2>} {
  %y = add %x, %x : tile<16xi32, #T0>
  %z = arange {start = 0, end = 16, vendor.at = #T1, vendor.note = "a", vendor.parts = [#T0, tile<4xi32>, 2]} : tile<16xi32, #T1>
  %c = constant {value = 1, vendor.why = true} : i32
  %r = for %n, %n, %c, inits=[%y] {vendor.depth = 3} : tile<16xi32, #T0> body(%i: i32, %a: tile<16xi32, #T0>) {
    yield %a
  }
  return
}
"""


def read(text: str) -> None:
    verify(parse_module(text, STRIPED))


def test_what_is_printed_reads_back() -> None:
    module = parse_module(TEXT, STRIPED)
    verify(module)
    assert print_module(module) == TEXT
    (add, arange, *_) = module.kernel.body
    assert add.results[0].layout == Stripes(4) and arange.attributes["vendor.parts"] == (
        Stripes(4),
        TileType((4,), I32),
        2,
    )
    assert module.kernel.attributes == {"warps": 4, "odd name": Stripes(2)}


def test_names_follow_from_the_order_of_appearance_and_any_name_may_be_read() -> None:
    renamed = TEXT.replace("#T0", "#even").replace("#T1", "#T0").replace("#even", "#other")
    assert print_module(parse_module(renamed, STRIPED)) == TEXT


def test_an_encoding_may_be_written_in_full_anywhere() -> None:
    full = (
        TEXT.replace("#T0 = stripes<4>\n#T1 = stripes<8>\n", "")
        .replace("#T0", "stripes<4>")
        .replace("#T1", "stripes<8>")
    )
    assert print_module(parse_module(full, STRIPED)) == TEXT
    (add, *_) = parse_module(full, STRIPED).kernel.body
    assert print_operation(add) == "%y = add %x, %x : tile<16xi32, stripes<4>>"


HEAD = "tilewright.ir 1.0\n#T0 = stripes<4>\n"

#: (text, line, column, message)
WRONG = [
    (
        HEAD + "kernel @k(%x: tile<8xi32, #T9>) { return }",
        3,
        15,
        "#T9 is not defined before it is read here; did you mean #T0?",
    ),
    (
        HEAD + "kernel @k(%x: tile<8xi32, 4>) { return }",
        3,
        15,
        "'4' is no encoding; there are stripes",
    ),
    (
        HEAD + "kernel @k(%x: tile<8xi32, bands<4>>) { return }",
        3,
        15,
        "'bands<4>' is no encoding; there are stripes",
    ),
    (HEAD + "kernel @k(%x: tile<6xi32, #T0>) { return }", 3, 15, "4 stripes of tile<6xi32>"),
    (HEAD + "#T0 = stripes<2>\nkernel @k() { return }", 3, 1, "#T0 is defined already"),
    (HEAD + "#T1 = stripes<a>\nkernel @k() { return }", 3, 7, "'a' is no number of stripes"),
    (
        HEAD + "#T1 = tile<4xi32>\nkernel @k() { return }",
        3,
        7,
        "'tile<4xi32>' is no encoding; there are stripes",
    ),
    (
        HEAD + "#T1 = 4\nkernel @k() { return }",
        3,
        7,
        "expected an encoding, keyword<...>, found '4'",
    ),
    (
        HEAD + "#T1 stripes<4>\nkernel @k() { return }",
        3,
        5,
        "expected '=' and what #T1 is, found 'stripes<4>'",
    ),
    (HEAD + "function @f() -> tile<8xi32, #T0> { return }", 3, 18, "a layout has no place here"),
    (
        HEAD
        + (
            "kernel @k(%x: i32) {\n  %y = add %x, %x {vendor.t = tile<8xi32, #T0>} : i32\n"
            "  return\n}"
        ),
        4,
        31,
        "a layout has no place here",
    ),
    (
        HEAD + "kernel @k() attributes {a = 1, a = 2} { return }",
        3,
        32,
        "attribute a is given twice",
    ),
    (
        HEAD + "kernel @k() attributes { return }",
        3,
        33,
        "expected '=' and the value of return, found '}'",
    ),
    (
        HEAD + "kernel @k() attributes {\n  return\n}",
        5,
        1,
        "expected '=' and the value of return, found '}'",
    ),
    (
        HEAD + "kernel @k(%x: i32) {\n  %y = add %x, %x {v.a = 1, v.a = 1} : i32\n  return\n}",
        4,
        29,
        "attribute v.a is given twice",
    ),
    (
        HEAD + "kernel @k(%x: i32) {\n  %y = add %x, %x {va = 1} : i32\n  return\n}",
        4,
        20,
        "add has no attribute 'va'",
    ),
]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"), WRONG, ids=[case[3][:40] for case in WRONG]
)
def test_errors_have_a_caret(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_module(text, STRIPED)
    assert (caught.value.line, caught.value.column, caught.value.message) == (line, column, message)
    assert str(caught.value).splitlines()[-1] == " " * (column + 1) + "^"


def test_tables_without_encodings_read_none() -> None:
    with pytest.raises(ParseError, match="is no encoding"):
        parse_module(HEAD + "kernel @k() { return }")


def test_the_verifier_refuses_a_layout_that_does_not_fit() -> None:
    for index in (0, 1):
        module = parse_module(TEXT, STRIPED)
        (add, *_) = module.kernel.body
        (module.kernel.arguments[0] if index == 0 else add.results[0]).layout = Stripes(3)
        with pytest.raises(VerificationError, match="3 stripes of tile<16xi32>"):
            verify(module)
    module = parse_module(TEXT, STRIPED)
    (loop,) = (operation for operation in module.kernel.walk() if operation.name == "for")
    loop.regions[0].arguments[0].layout = Stripes(1)
    with pytest.raises(VerificationError, match=r"for in @k: 1 stripes of i32"):
        verify(module)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("%y = add %x, %x : tile<16xi32, #T0>", "%y = add %x, %x : tile<16xi32, #T1>", False),
        ("%y = add %x, %x : tile<16xi32, #T0>", "%y = add %x, %x : tile<16xi32>", False),
        ("(%x: tile<16xi32, #T0>", "(%x: tile<16xi32, #T1>", False),
        ("body(%i: i32, %a: tile<16xi32, #T0>)", "body(%i: i32, %a: tile<16xi32, #T1>)", False),
        ("#T0 = stripes<4>", "#T0 = stripes<2>", False),
        ("vendor.at = #T1", "vendor.at = #T0", False),
        ("vendor.depth = 3", "vendor.depth = 4", False),
        ("{vendor.depth = 3} ", "", False),
        ("warps = 4", "warps = 8", False),
        (' attributes {warps = 4, "odd name" = stripes<2>}', "", False),
        ("#T0", "#Z5", True),
        ("%y", "%sum", True),
    ],
)
def test_the_structural_hash_sees_layouts_and_decisions_and_not_their_names(
    old: str, new: str, same: bool
) -> None:
    changed = TEXT.replace(old, new)
    assert changed != TEXT
    assert (
        structural_hash(parse_module(changed, STRIPED))
        == structural_hash(parse_module(TEXT, STRIPED))
    ) is same
