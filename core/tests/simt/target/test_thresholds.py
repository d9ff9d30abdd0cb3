"""Thresholds of heuristics: a target's numbers decide, not those of the toolkit."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.parser import parse_module
from tilewright.simt.emulator.target import EmulatedTarget
from tilewright.simt.passes.inline_and_expand import prepare
from tilewright.simt.target.thresholds import Thresholds

LOOP = """tilewright.ir 1.0
kernel @k(%p: ptr<f32>, %q: ptr<f32>) {
  %zero = constant 0 : i32
  %four = constant 4 : i32
  %one = constant 1 : i32
  %o = arange {start = 0, end = 128} : tile<128xi32>
  %s = splat %p : tile<128xptr<f32>>
  %a = addptr %s, %o : tile<128xptr<f32>>
  %t = splat %q : tile<128xptr<f32>>
  %b = addptr %t, %o : tile<128xptr<f32>>
  for %zero, %four, %one body(%i: i32) {
    %m = splat %i : tile<128xi32>
    %r = addptr %a, %m : tile<128xptr<f32>>
    %x = load %r : tile<128xf32>
    store %b, %x
    yield
  }
  return
}
"""


def _loops_left(thresholds: Thresholds) -> int:
    target = EmulatedTarget()
    target.costs = replace(target.costs, thresholds=thresholds)
    module = parse_module(LOOP)
    prepare(module, target)
    return sum(operation.name == "for" for operation in module.kernel.walk())


def test_a_target_says_how_long_a_short_loop_is() -> None:
    assert _loops_left(Thresholds()) == 0
    assert _loops_left(Thresholds(short_loop_trips=3)) == 1
    assert _loops_left(Thresholds(short_loop_elements=100)) == 1
