"""Products that need no strict zeros: logistic functions, and multiples by finite constants."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.derivatives.reverse_mode import AdjointRequest, vjp
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.reference.interpreter import run

LOGISTIC = """tilewright.ir 1.0
kernel @k(%x: ptr<f32>, %out: ptr<f32>) {
  %a = load %x : f32
  %n = neg %a : f32
  %e = exp %n : f32
  %one = constant 1.0 : f32
  %t = add SUM : f32
  %y = div %one, %t : f32
  store %out, %y
  return
}"""


@pytest.mark.parametrize("order", ["%e, %one", "%one, %e"])
def test_the_derivative_of_a_logistic_function_reads_its_result(order: str) -> None:
    module = parse_module(LOGISTIC.replace("SUM", order))
    adjoint = vjp(module, AdjointRequest(("out",), ("x",)))
    text = print_module(adjoint, locations=False)
    assert "select" not in text
    assert text.count("div") == 1
    for x in (-200.0, -1.5, 0.0, 2.0, 200.0):  # of which the first overflows
        d_x, out = np.zeros(1, "f4"), np.zeros(1, "f4")
        run(adjoint, [np.array([x], "f4"), out, np.full(1, 3.0, "f4"), d_x], (1, 1, 1))
        y = 1 / (1 + np.exp(-x))
        np.testing.assert_allclose(d_x, 3 * y * (1 - y), rtol=1e-5, atol=1e-30)


def test_other_quotients_of_exponentials_are_strict() -> None:
    """``2 / (1 + exp(x))`` is not taken for a logistic function."""
    text = LOGISTIC.replace("SUM", "%e, %one").replace(
        "%y = div %one, %t", "%two = constant 2.0 : f32\n  %y = div %two, %t"
    )
    adjoint = vjp(parse_module(text), AdjointRequest(("out",), ("x",)))
    assert "select" in print_module(adjoint, locations=False)


ROW = """tilewright.ir 1.0
kernel @k(%x: ptr<f32>, %out: ptr<f32>, %eps: f32) {
  %i = arange {start = 0, end = 4} : tile<4xi32>
  %xs = splat %x : tile<4xptr<f32>>
  %ps = addptr %xs, %i : tile<4xptr<f32>>
  %a = load %ps : tile<4xf32>
  %q = mul %a, %a : tile<4xf32>
  %s = reduce %q {axis = 0} : f32 combine(%l: f32, %r: f32) {
    %t = add %l, %r : f32
    yield %t
  }
  %e = add STATISTIC, %eps : f32
  %n = rsqrt %e : f32
  %w = splat %n : tile<4xf32>
  %y = mul %a, %w : tile<4xf32>
  %os = splat %out : tile<4xptr<f32>>
  %qs = addptr %os, %i : tile<4xptr<f32>>
  store %qs, %y
  return
}"""


@pytest.mark.parametrize(("statistic", "is_strict"), [("%s", False), ("%eps", True)])
def test_a_statistic_of_all_lanes_is_taken_for_finite(statistic: str, is_strict: bool) -> None:
    module = parse_module(ROW.replace("STATISTIC", statistic))
    adjoint = vjp(module, AdjointRequest(("out",), ("x",)))
    assert ("select" in print_module(adjoint, locations=False)) is is_strict
