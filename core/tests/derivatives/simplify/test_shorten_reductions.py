"""Loops of matmuls in shorter steps: the same sums, and loops that stay."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.derivatives.simplify.shorten_reductions import shorten_reductions
from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.verifier import verify
from tilewright.passes.pipeline import run as run_passes
from tilewright.reference.interpreter import run

#: out[16, 32] = x[16, n] @ y[n, 32], 128 elements at a time; x is masked, and transposed.
TEXT = """\
tilewright.ir 1.0

kernel @k(%x: ptr<f32>, %y: ptr<f32>, %out: ptr<f32>, %n: i32, %count: i32) {
  %zero_i = constant 0 : i32
  %one_i = constant 1 : i32
  %first = constant 0 : i32
  %step = constant 128 : i32
  %zero = constant 0.0 : f32
  %zeros = splat %zero : tile<16x32xf32>
  %others = splat %zero : tile<128x16xf32>
  %lane = arange {start = 0, end = 128} : tile<128xi32>
  %row = arange {start = 0, end = 16} : tile<16xi32>
  %column = arange {start = 0, end = 32} : tile<32xi32>
  %rows = expand_dims %row {axis = 0} : tile<1x16xi32>
  %stride = splat %n : tile<1x16xi32>
  %starts = mul %rows, %stride : tile<1x16xi32>
  %x_rows = broadcast %starts : tile<128x16xi32>
  %columns = expand_dims %column {axis = 0} : tile<1x32xi32>
  %all_columns = broadcast %columns : tile<128x32xi32>
  %width = constant 32 : i32
  %widths = splat %width : tile<128x1xi32>
  %limit = splat %n : tile<128x1xi32>
  %xs = splat %x : tile<128x16xptr<f32>>
  %ys = splat %y : tile<128x32xptr<f32>>
  %made = for %first, %count, %one_i, inits=[%zeros] : tile<16x32xf32> body(%i: i32, %total: tile<16x32xf32>) {
    %base = mul %i, %step : i32
    %bases = splat %base : tile<128xi32>
    %k = add %lane, %bases : tile<128xi32>
    %tall = expand_dims %k {axis = 1} : tile<128x1xi32>
    %inside = cmp %tall, %limit {predicate = lt} : tile<128x1xi1>
    %x_mask = broadcast %inside : tile<128x16xi1>
    %y_mask = broadcast %inside : tile<128x32xi1>
    %x_k = broadcast %tall : tile<128x16xi32>
    %x_offset = add %x_rows, %x_k : tile<128x16xi32>
    %x_at = addptr %xs, %x_offset : tile<128x16xptr<f32>>
    %y_start = mul %tall, %widths : tile<128x1xi32>
    %y_starts = broadcast %y_start : tile<128x32xi32>
    %y_offset = add %y_starts, %all_columns : tile<128x32xi32>
    %y_at = addptr %ys, %y_offset : tile<128x32xptr<f32>>
    %a = load %x_at, mask=%x_mask, other=%others : tile<128x16xf32>
    %b = load %y_at, mask=%y_mask : tile<128x32xf32>
    %wave = sin %b : tile<128x32xf32>
    %turned = permute %a {order = [1, 0]} : tile<16x128xf32>
    %sum = dot %turned, %WAVE, %total : tile<16x32xf32>
    yield %sum
  }
  %row_starts = expand_dims %row {axis = 1} : tile<16x1xi32>
  %out_width = splat %width : tile<16x1xi32>
  %out_start = mul %row_starts, %out_width : tile<16x1xi32>
  %out_starts = broadcast %out_start : tile<16x32xi32>
  %out_columns = broadcast %columns : tile<16x32xi32>
  %out_offset = add %out_starts, %out_columns : tile<16x32xi32>
  %outs = splat %out : tile<16x32xptr<f32>>
  %out_at = addptr %outs, %out_offset : tile<16x32xptr<f32>>
  store %out_at, %made
  return
}
"""


def module_of(text: str, lanes: int = 128) -> Module:
    """Return the module of a text, with other extents along the axis that is summed over."""
    module = parse_module(text.replace("%WAVE", "%wave").replace("128", str(lanes)))
    verify(module)
    return module


def outcome(module: Module, n: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(16, n)).astype(np.float32), rng.normal(size=(n, 32)).astype(np.float32)
    out = np.zeros((16, 32), np.float32)
    arguments = {"x": x, "y": y, "out": out, "n": n, "count": count}
    run(module, [arguments[value.name] for value in module.kernel.arguments], (1, 1, 1))
    np.testing.assert_allclose(out, x @ np.sin(y), rtol=1e-4, atol=1e-4)
    return out


@pytest.mark.parametrize(("lanes", "width"), [(256, 128), (512, 128), (1024, 128)])
def test_long_steps_are_taken_in_parts(lanes: int, width: int) -> None:
    module = module_of(TEXT, lanes)
    n = 5 * lanes // 2
    outcome(module, n, 3)
    assert shorten_reductions(module)
    verify(module)
    run_passes(module)
    verify(module)
    loop = next(operation for operation in module.kernel.walk() if operation.name == "for")
    shapes = {
        operation.name: str(operation.results[0].type)
        for operation in loop.walk()
        if operation.name in ("load", "permute", "sin")
    }
    assert shapes == {
        "load": f"tile<{width}x32xf32>",
        "permute": f"tile<16x{width}xf32>",
        "sin": f"tile<{width}x32xf32>",
    }
    assert sum(operation.name == "load" for operation in loop.walk()) == 2
    outcome(module, n, 3)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%first = constant 0", "%first = constant 1"),  # which may be negative
        ("%one_i = constant 1", "%one_i = constant 2"),
        ("    yield %sum\n", "    store %out, %zero\n    yield %sum\n"),
        # other lanes than those of the part
        (
            "    %turned",
            "    %wave#1 = gather %b, %k_all {axis = 0} : tile<128x32xf32>\n    %turned",
        ),
        # a total that is read
        ("    yield %sum\n", "    %more = add %sum, %total : tile<16x32xf32>\n    yield %more\n"),
    ],
)
def test_loops_that_stay(old: str, new: str) -> None:
    text = TEXT.replace(old, new)
    assert text != TEXT
    if "gather" in new:
        text = (
            text.replace(
                "    %x_k = broadcast",
                "    %k_all = broadcast %tall : tile<128x32xi32>\n    %x_k = broadcast",
            )
            .replace("%wave#1", "%picked")
            .replace("%WAVE", "%picked")
        )
    module = module_of(text, 512)
    before = str(module)
    assert not shorten_reductions(module)
    assert str(module) == before


def test_short_steps_stay() -> None:
    assert not shorten_reductions(module_of(TEXT, 128))
