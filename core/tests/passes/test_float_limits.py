"""Limits of floats: clamps have them whatever is clamped, and what may let a larger number through
has none."""

from __future__ import annotations

import math

import pytest

from tilewright.ir.parser import parse_module
from tilewright.passes.analysis.intervals import Limits, float_limits

INF = math.inf
CASES = {
    "a clamp": ("%r = max %x, %low : f32", "%s = min %r, %high : f32", (-2.0, 3.0)),
    "the other order": ("%r = min %x, %high : f32", "%s = max %r, %low : f32", (-2.0, 3.0)),
    "one side": ("%r = max %x, %low : f32", "%s = max %low, %y : f32", (-2.0, INF)),
    # of NaN and y the result is y
    "an operand that may be NaN": (
        "%r = min %x, %high : f32",
        "%s = min %r, %y : f32",
        (-INF, INF),
    ),
    "crossed limits": ("%r = min %x, %low : f32", "%s = max %r, %high : f32", (3.0, 3.0)),
    "a choice": ("%r = select %c, %low, %high : f32", "%s = mul %x, %y : f32", (-2.0, 3.0)),
    "a choice with anything": (
        "%r = select %c, %low, %x : f32",
        "%s = mul %x, %y : f32",
        (-INF, INF),
    ),
    "narrowed, then widened": ("%r = cast %high : f16", "%s = cast %r : f32", (-INF, INF)),
}


def limits(lines: tuple[str, ...], name: str) -> Limits:
    text = "\n      ".join(lines)
    module = parse_module(f"""tilewright.ir 1.0
    kernel @k(%out: ptr<f32>, %x: f32, %y: f32, %c: i1) {{
      %low = constant -2.0 : f32
      %high = constant 3.0 : f32
      {text}
      store %out, %{name}
      return
    }}
    """)
    (store,) = [operation for operation in module.kernel.walk() if operation.name == "store"]
    return float_limits(store.operands[1])


@pytest.mark.parametrize("name", CASES)
def test_limits(name: str) -> None:
    first, second, expected = CASES[name]
    assert limits((first, second), "r" if name.startswith("a choice") else "s") == expected


def test_tiles_and_wider_types_keep_limits() -> None:
    lines = (
        "%h = cast %x : f16", "%one = constant 1.0 : f16", "%t = splat %h : tile<4xf16>",
        "%ones = splat %one : tile<4xf16>",
        "%r = min %t, %ones : tile<4xf16>", "%m = max %r, %ones : tile<4xf16>",
        "%w = cast %m : tile<4xf32>",
        "%p = splat %out : tile<4xptr<f32>>", "store %p, %w",
    )  # fmt: skip
    text = "\n      ".join(lines)
    module = parse_module(
        f"tilewright.ir 1.0\n    kernel @k(%out: ptr<f32>, %x: f32) {{\n      {text}\n"
        f"      return\n    }}\n"
    )
    (store,) = [operation for operation in module.kernel.walk() if operation.name == "store"]
    assert float_limits(store.operands[1]) == (1.0, 1.0)
