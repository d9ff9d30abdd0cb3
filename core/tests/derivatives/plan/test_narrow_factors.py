"""Factors of what is cast to f16: pulled out of loops where the launch's number is moderate."""

from __future__ import annotations

from pathlib import Path

import online_softmax_kernels as kernels
import pytest

from tilewright.derivatives.plan.adjoint_plan import AdjointPlan
from tilewright.derivatives.plan.grid_extents import LaunchFacts
from tilewright.derivatives.plan.make_plan import make_plan
from tilewright.derivatives.plan.scalar_expressions import scalar_expression
from tilewright.derivatives.reverse_mode import AdjointRequest
from tilewright.ir.parser import parse_module
from tilewright.ir.types import FloatType

SOURCE = kernels.ATTENTION.replace("tl.dot(weights, v", "tl.dot(weights.to(v.dtype), v")
HALF = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), "*fp16")


def facts(scale: float) -> LaunchFacts:
    return LaunchFacts((3, 1, 1), {"scale": scale, "length": 40}, 16)


def plan_of(folder: Path, scale: float, narrow: bool) -> AdjointPlan:
    types = {**kernels.ATTENTION_TYPES, **(HALF if narrow else {})}
    module = kernels.module_of(folder, SOURCE, types, {"M": 16, "N": 16, "D": 16})
    request = AdjointRequest(
        ("out_ptr",), ("q_ptr", "k_ptr", "v_ptr"), ("lse_ptr", "out_ptr"), prefix="d_"
    )
    return make_plan(module, request, facts(scale))


def multiplications(plan: AdjointPlan) -> list[int]:
    """Return how many tiles each kernel's loop multiplies."""
    loops = [op for kernel in plan.kernels for op in kernel.module.walk() if op.name == "for"]
    return [
        sum(op.name == "mul" and str(op.results[0].type) == "tile<16x16xf32>" for op in loop.walk())
        for loop in loops
    ]


@pytest.mark.parametrize(
    ("scale", "narrow", "pulled"),
    [(0.125, True, True), (2.0**-9, True, False), (300.0, True, False), (2.0**-9, False, True)],
)
def test_factors_are_pulled_out_where_the_narrow_type_has_the_range(
    tmp_path: Path, scale: float, narrow: bool, pulled: bool
) -> None:
    plan = plan_of(tmp_path, scale, narrow)
    # the scores, and the weights times their cotangents; the scale once more where it stays
    assert multiplications(plan) == [2 + (not pulled)] * 2
    assert plan.fits(facts(scale))
    assert plan.fits(facts(1.0)) == (pulled or not narrow)
    assert plan.fits(facts(2.0**-10)) == (not pulled or not narrow)


EXPRESSION = """\
tilewright.ir 1.0

kernel @k(%s: f32, %n: i32, %p: ptr<f32>) {
  %c = constant 3.0 : f32
  %f = cast %n : f32
  %a = div %c, %f : f32
  %b = mul %a, %s : f32
  %l = load %p : f32
  %d = add %b, %l : f32
  %r = sqrt %s : f32
  %e = neg %r : f32
  store %p, %d
  store %p, %e
  return
}
"""


def test_scalars_are_evaluated_in_terms_of_arguments() -> None:
    module = parse_module(EXPRESSION)
    values = {op.results[0].name: op.results[0] for op in module.kernel.walk() if op.results}
    quotient = scalar_expression(values["b"])
    assert quotient is not None
    assert quotient.at({"s": 0.5, "n": 6}) == 0.25
    assert quotient.at({"s": 0.5, "n": 0}) is None
    assert quotient.at({"s": 0.5}) is None
    root = scalar_expression(values["e"])
    assert root is not None
    assert (root.at({"s": 4.0}), root.at({"s": -1.0})) == (-2.0, None)
    assert scalar_expression(values["d"]) is None
    assert isinstance(values["b"].type, FloatType)
