"""Intervals of bits that integers share, and of shifted ones."""

from __future__ import annotations

import pytest

from tilewright.ir.parser import parse_module
from tilewright.passes.analysis.intervals import Interval, interval_of

CASES = {
    "a mask": ("%r = and %x, %seven : i32", (0, 7)),
    "the mask first": ("%r = and %seven, %x : i32", (0, 7)),
    "a negative mask": ("%r = and %x, %minus : i32", (-(1 << 31), (1 << 31) - 1)),
    "a shift": ("%r = shr %x, %sixteen : i32", (-(1 << 15), (1 << 15) - 1)),
    "a shift of a masked one": ("%m = and %x, %seven : i32\n%r = shr %m, %one : i32", (0, 3)),
    "a shift of bytes": ("%r = shr %b, %two : u8", (0, 63)),
    "an unknown shift": ("%r = shr %x, %y : i32", (-(1 << 31), (1 << 31) - 1)),
    "a shift by all bits": ("%r = shr %x, %all : i32", (-(1 << 31), (1 << 31) - 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_interval(case: str) -> None:
    lines, wanted = CASES[case]
    module = parse_module(f"""tilewright.ir 1.0
    kernel @k(%x: i32, %y: i32, %b: u8) {{
      %seven = constant 7 : i32
      %minus = constant -8 : i32
      %sixteen = constant 16 : i32
      %one = constant 1 : i32
      %two = constant 2 : u8
      %all = constant 32 : i32
      {lines}
      return
    }}
    """)
    found: Interval = None
    for operation in module.kernel.walk():
        if operation.results and operation.name in ("and", "shr"):
            found = interval_of(operation.results[0])
    assert found == wanted
