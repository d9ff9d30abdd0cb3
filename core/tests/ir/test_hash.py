"""Coverage of the structural hash: the properties that it includes and excludes."""

from __future__ import annotations

import itertools

import pytest

from tilewright.ir.hash import structural_hash
from tilewright.ir.parser import parse_module

TEXT = """tilewright.ir 1.0 {warps = 4}
function @f(%a: i32) -> i32 {
  return %a
}
function @g(%a: i32) -> i32 {
  return %a
}
kernel @k(%x: ptr<f32> {divisibility = 16}, %n: i32, %v: f32) {
  %c = constant 0.0 : f32
  %s = sub %v, %c : f32 loc("a.py":1:2 in "k")
  %m = max %s, %v {nan = propagate} : f32
  %one = constant 1 : i32
  %t = constant true : i1
  %r = call %n {callee = "f"} : i32
  %l = for %n, %r, %one, inits=[%m, %s] : f32, f32 body(%i: i32, %p: f32, %q: f32) {
    yield %q, %p
  }
  store %x, %l, mask=%t
  return
}"""
TEXT = TEXT.replace("%l = for", "%l, %l2 = for")


def hashed(text: str) -> str:
    return structural_hash(parse_module(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%s", "%other"),
        ('loc("a.py":1:2 in "k")', ""),
        ('"a.py":1:2', '"b.py":9:9'),
        ("%one = constant 1 : i32", "%one = constant {value = 1} : i32"),
        ("%p: f32, %q: f32", "%p: f32, %q: f32  // a comment\n"),
        ("%s = sub %v, %c : f32", "%s = sub %v, %c {} : f32"),
    ],
)
def test_blind_to(old: str, new: str) -> None:
    assert old in TEXT
    assert hashed(TEXT.replace(old, new)) == hashed(TEXT)


def test_blind_to_the_order_of_functions() -> None:
    one, two = (
        "function @f(%a: i32) -> i32 {\n  return %a\n}\n",
        "function @g(%a: i32) -> i32 {\n  return %a\n}\n",
    )
    assert hashed(TEXT.replace(one + two, two + one)) == hashed(TEXT)


CHANGES = [
    ("{warps = 4}", "{warps = 8}"),
    ("{warps = 4}", "{warps = 4.0}"),
    ("{warps = 4}", ""),
    ("{divisibility = 16}", "{divisibility = 8}"),
    ("{divisibility = 16}", ""),
    ("@k(", "@kernel("),
    ("constant 0.0", "constant -0.0"),
    ("constant 0.0", "constant nan"),
    ("constant 0.0", "constant nan(0x7ff8000000000001)"),
    ("sub %v, %c", "sub %c, %v"),
    ("sub %v, %c", "add %v, %c"),
    ("{nan = propagate}", ""),
    ("constant 1 : i32", "constant 2 : i32"),
    ("constant true", "constant false"),
    ('callee = "f"', 'callee = "g"'),
    ("yield %q, %p", "yield %p, %q"),
    ("yield %q, %p", "yield %q, %v"),
    (", mask=%t", ""),
    ("store %x, %l,", "store %x, %l2,"),
    ("%v: f32) {\n  %c", "%v: f32, %w: f32) {\n  %c"),
]


def test_sensitive_to() -> None:
    texts = [TEXT, *(TEXT.replace(old, new) for old, new in CHANGES)]
    hashes = [hashed(text) for text in texts]
    for a, b in itertools.combinations(range(len(texts)), 2):
        assert hashes[a] != hashes[b], (CHANGES[a - 1], CHANGES[b - 1])


def test_optional_operands_are_told_apart() -> None:
    text = (
        "tilewright.ir 1.0 kernel @k(%p: ptr<i1>, %m: i1) { %x = load %p, mask=%m, other=%m : i1 "
        "return }"
    )
    assert hashed(text) != hashed(text.replace(", other=%m", ""))


def test_it_is_a_sha256() -> None:
    assert len(hashed(TEXT)) == 64
    assert int(hashed(TEXT), 16)
