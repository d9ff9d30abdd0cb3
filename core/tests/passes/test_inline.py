"""Calls replaced by bodies."""

from __future__ import annotations

import pytest

from tilewright.ir import Location, verify
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.passes.inline import inline


def test_bodies_with_regions_and_several_results() -> None:
    module = parse_module(
        """tilewright.ir 1.0
        kernel @k(%i: i32, %f: f32) {
          %x, %y = call %i, %f {callee = "swap"} : f32, i32
          %a, %b = call %y, %x {callee = "swap"} : f32, i32
          print %a, %b {prefix = ""}
          return
        }
        function @swap(%a: i32, %b: f32) -> (f32, i32) {
          %z = call %a {callee = "twice"} : i32
          %s = for %a, %z, %a, inits=[%b] : f32 body(%n: i32, %acc: f32) {
            %t = add %acc, %b : f32
            yield %t
          }
          return %s, %z
        }
        function @twice(%a: i32) -> i32 {
          %r = add %a, %a : i32
          return %r
        }"""
    )
    verify(module)
    assert inline(module)
    verify(module)
    assert (
        print_module(module)
        == """\
tilewright.ir 1.0

kernel @k(%i: i32, %f: f32) {
  %r = add %i, %i : i32
  %s = for %i, %r, %i, inits=[%f] : f32 body(%n: i32, %acc: f32) {
    %t = add %acc, %f : f32
    yield %t
  }
  %r#1 = add %r, %r : i32
  %s#1 = for %r, %r#1, %r, inits=[%s] : f32 body(%n#1: i32, %acc#1: f32) {
    %t#1 = add %acc#1, %s : f32
    yield %t#1
  }
  print %s#1, %r#1 {prefix = ""}
  return
}
"""
    )
    assert not inline(module)


def test_calls_in_regions_and_arguments_returned_as_they_are() -> None:
    module = parse_module(
        """tilewright.ir 1.0
        function @same(%a: i32) -> i32 { return %a }
        kernel @k(%c: i1, %i: i32) {
          if %c then { %x = call %i {callee = "same"} : i32 print %x {prefix = ""} yield } else { yield }
          return
        }"""
    )
    inline(module)
    verify(module)
    assert "print %i" in print_module(module)
    assert list(module.functions) == ["k"]


def test_locations_carry_the_call_chain() -> None:
    module = parse_module(
        """tilewright.ir 1.0
        function @inner(%a: i32) -> i32 { %r = neg %a : i32 loc("lib.py":3:4 in "inner" at "lib.py":9:0 in "helper") return %r }
        function @outer(%a: i32) -> i32 { %r = call %a {callee = "inner"} : i32 loc("mid.py":5:1 in "outer") return %r }
        kernel @k(%i: i32) { %x = call %i {callee = "outer"} : i32 loc("top.py":7:2 in "k") print %x {prefix = ""} return }"""
    )
    inline(module)
    first = module.kernel.body.first
    assert first is not None
    assert isinstance(first.location, Location)
    assert [str(place) for place in first.location.chain()] == [
        "lib.py:3:4 in inner",
        "lib.py:9:0 in helper",
        "mid.py:5:1 in outer",
        "top.py:7:2 in k",
    ]


def test_recursion_is_refused() -> None:
    module = parse_module(
        """tilewright.ir 1.0
        function @f(%a: i32) -> i32 { %r = call %a {callee = "g"} : i32 return %r }
        function @g(%a: i32) -> i32 { %r = call %a {callee = "f"} : i32 return %r }
        kernel @k(%i: i32) { %x = call %i {callee = "f"} : i32 return }"""
    )
    with pytest.raises(
        ValueError, match=r"@f calls itself \(@k -> @f -> @g -> @f\) and cannot be inlined"
    ):
        inline(module)
