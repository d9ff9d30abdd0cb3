"""Simplifications of finished kernels: text in, text out, and the same results."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.derivatives.simplify.masks import delay_masks, drop_masks
from tilewright.derivatives.simplify.simplify_kernel import simplify_kernel
from tilewright.derivatives.simplify.spread_accumulators import release_accumulators
from tilewright.derivatives.simplify.uniform_factors import pull_out_factors
from tilewright.ir.core import Module, Value
from tilewright.ir.parser import parse_module
from tilewright.ir.types import FloatType
from tilewright.ir.verifier import verify
from tilewright.passes.pipeline import run as run_passes
from tilewright.reference.interpreter import run

#: Weights of scores, masked along their rows by %MASK, times others; stored where %inside holds.
ROWS = """\
tilewright.ir 1.0

kernel @k(%x: ptr<f32>, %y: ptr<f32>, %out: ptr<f32>, %n: i32, %scale: f32) {
  %lane = arange {start = 0, end = 16} : tile<16xi32>
  %sixteen = constant 16 : i32
  %zero = constant 0.0 : f32
  %infinity = constant -inf : f32
  %zeros = splat %zero : tile<16x16xf32>
  %infinities = splat %infinity : tile<16x16xf32>
  %stride = splat %sixteen : tile<16x1xi32>
  %limit = splat %n : tile<16xi32>
  %inside = cmp %lane, %limit {predicate = lt} : tile<16xi1>
  %row = expand_dims %lane {axis = 1} : tile<16x1xi32>
  %start = mul %row, %stride : tile<16x1xi32>
  %starts = broadcast %start : tile<16x16xi32>
  %column = expand_dims %lane {axis = 0} : tile<1x16xi32>
  %columns = broadcast %column : tile<16x16xi32>
  %offset = add %starts, %columns : tile<16x16xi32>
  %xs = splat %x : tile<16x16xptr<f32>>
  %ys = splat %y : tile<16x16xptr<f32>>
  %outs = splat %out : tile<16x16xptr<f32>>
  %x_at = addptr %xs, %offset : tile<16x16xptr<f32>>
  %y_at = addptr %ys, %offset : tile<16x16xptr<f32>>
  %out_at = addptr %outs, %offset : tile<16x16xptr<f32>>
  %tall = expand_dims %inside {axis = 1} : tile<16x1xi1>
  %rows = broadcast %tall : tile<16x16xi1>
  %wide = expand_dims %inside {axis = 0} : tile<1x16xi1>
  %row_columns = broadcast %wide : tile<16x16xi1>
  %rows_of_column = broadcast %row : tile<16x16xi32>
  %below = cmp %rows_of_column, %columns {predicate = ge} : tile<16x16xi1>
  %a = load %x_at : tile<16x16xf32>
  %b = load %y_at : tile<16x16xf32>
  %scales = splat %scale : tile<16x16xf32>
  %lse = reduce %b {axis = 1} : tile<16xf32> combine(%p: f32, %q: f32) {
    %sum = add %p, %q : f32
    yield %sum
  }
  %lse_tall = expand_dims %lse {axis = 1} : tile<16x1xf32>
  %lses = broadcast %lse_tall : tile<16x16xf32>
  BODY
  return
}
"""


def module_of(body: str) -> Module:
    module = parse_module(ROWS.replace("  BODY\n", body))
    verify(module)
    run_passes(module)
    return module


def names_of(module: Module) -> list[str]:
    return [operation.name for operation in module.kernel.walk()]


def outcome(module: Module, count: int = 11) -> np.ndarray:
    """Run a module on the reference; return what it stores."""
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(-1, 1, (16, 16)).astype(np.float32) for _ in range(2))
    x[count:] = 200.0  # whose exponential is infinite
    out = np.zeros((16, 16), np.float32)
    arguments = {"x": x, "y": y, "out": out, "n": count, "scale": 0.25}
    run(module, [arguments[value.name] for value in module.kernel.arguments], (1, 1, 1))
    return out


def simplified(module: Module) -> Module:
    """Simplify a module, and check that it computes the same finite results."""
    made = simplify_kernel(module, lambda factor, narrow: True)
    verify(made)
    expected = outcome(module)
    assert np.isfinite(expected).all()
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(outcome(made), expected, rtol=1e-5, atol=1e-6)
    return made


MASKED = """\
  %scores = mul %a, %scales : tile<16x16xf32>
  %masked = select %MASK, %scores, %infinities : tile<16x16xf32>
  %shifted = sub %masked, %lses : tile<16x16xf32>
  %weights = exp %shifted : tile<16x16xf32>
"""
STORED = "  store %out_at, %result, mask=%rows\n"


def test_masks_move_behind_exponentials() -> None:
    module = module_of(MASKED.replace("%MASK", "%below") + STORED.replace("%result", "%weights"))
    assert delay_masks(module)
    run_passes(module)
    select = next(op for op in module.kernel.walk() if op.name == "select")
    assert select.operands[1].definition is not None
    assert select.operands[1].definition.name == "exp"
    assert select.result.name == "weights"


@pytest.mark.parametrize("other", ["%zeros", "%b"])
def test_masks_with_other_values_stay(other: str) -> None:
    body = MASKED.replace("%MASK", "%below").replace("%infinities", other)
    module = module_of(body + STORED.replace("%result", "%weights"))
    assert not delay_masks(module)


def test_rows_that_are_not_stored_are_not_masked() -> None:
    body = MASKED.replace("%MASK", "%rows") + (
        "  %result = dot %weights, %b, %zeros : tile<16x16xf32>\n" + STORED
    )
    assert "select" not in names_of(simplified(module_of(body)))


def test_a_part_of_a_mask_is_dropped() -> None:
    body = (
        "  %both = and %below, %rows : tile<16x16xi1>\n"
        + MASKED.replace("%MASK", "%both")
        + ("  %result = dot %weights, %b, %zeros : tile<16x16xf32>\n" + STORED)
    )
    made = simplified(module_of(body))
    assert names_of(made).count("select") == 1
    assert "and" not in names_of(made)


@pytest.mark.parametrize(
    "rest",
    [
        # the masked rows are summed over
        "  %turned = permute %weights {order = [1, 0]} : tile<16x16xf32>\n"
        "  %result = dot %turned, %b, %zeros : tile<16x16xf32>\n" + STORED,
        "  %result = dot %b, %weights, %zeros : tile<16x16xf32>\n" + STORED,
        # all rows are stored
        "  store %out_at, %weights\n",
        "  store %out_at, %weights, mask=%row_columns\n",
        # other lanes read them
        "  %total = reduce %weights {axis = 0} : tile<16xf32> combine(%s: f32, %t: f32) {\n"
        "    %u = add %s, %t : f32\n"
        "    yield %u\n"
        "  }\n"
        "  %totals = expand_dims %total {axis = 0} : tile<1x16xf32>\n"
        "  %result = broadcast %totals : tile<16x16xf32>\n" + STORED,
    ],
)
def test_rows_that_are_observed_stay_masked(rest: str) -> None:
    made = simplified(module_of(MASKED.replace("%MASK", "%rows") + rest))
    assert names_of(made).count("select") == 1


def test_masks_of_loops_whose_masks_change_stay() -> None:
    body = """\
  %zero_i = constant 0 : i32
  %one_i = constant 1 : i32
  %made = for %zero_i, %n, %one_i, inits=[%zeros] : tile<16x16xf32> body(%i: i32, %t: tile<16x16xf32>) {
    %bound = splat %i : tile<16xi32>
    %early = cmp %lane, %bound {predicate = lt} : tile<16xi1>
    %early_tall = expand_dims %early {axis = 1} : tile<16x1xi1>
    %early_rows = broadcast %early_tall : tile<16x16xi1>
    store %out_at, %t, mask=%early_rows
    %kept = select %early_rows, %b, %zeros : tile<16x16xf32>
    %next = add %t, %kept : tile<16x16xf32>
    yield %next
  }
"""
    assert names_of(simplified(module_of(body))).count("select") == 1


def test_masks_of_what_is_zero_are_dropped() -> None:
    body = MASKED.replace("%MASK", "%below") + (
        "  %product = mul %weights, %b : tile<16x16xf32>\n"
        "  %masked_product = select %below, %product, %zeros : tile<16x16xf32>\n"
        "  %turned = permute %masked_product {order = [1, 0]} : tile<16x16xf32>\n"
        "  %result = dot %b, %turned, %zeros : tile<16x16xf32>\n"
        "  store %out_at, %result, mask=%rows\n"
    )
    module = module_of(body)
    assert delay_masks(module)
    run_passes(module)
    assert names_of(module).count("select") == 2
    assert drop_masks(module)
    assert names_of(module).count("select") == 1


@pytest.mark.parametrize("factor", ["log %b", "exp %b"])
def test_masks_of_what_may_not_be_finite_stay(factor: str) -> None:
    body = MASKED.replace("%MASK", "%below") + (
        f"  %factor = {factor} : tile<16x16xf32>\n"
        "  %product = mul %weights, %factor : tile<16x16xf32>\n"
        "  %result = select %below, %product, %zeros : tile<16x16xf32>\n" + STORED
    )
    module = module_of(body)
    assert delay_masks(module)
    run_passes(module)
    assert not drop_masks(module)


LOOP = """\
  %zero_i = constant 0 : i32
  %one_i = constant 1 : i32
  %made = for %zero_i, %n, %one_i, inits=[%INIT] : tile<16x16xf32> body(%i: i32, %t: tile<16x16xf32>) {
    %y_next = addptr %y_at, %lanes_of_i : tile<16x16xptr<f32>>
    %c = load %y_at : tile<16x16xf32>
    %half = mul %c, %FACTOR : tile<16x16xf32>
    %narrow = cast %half : tile<16x16xf16>
    %a_narrow = cast %a : tile<16x16xf16>
    %sum = dot %narrow, %a_narrow, %t : tile<16x16xf32>
    yield %sum
  }
  store %out_at, %made, mask=%rows
""".replace("    %y_next = addptr %y_at, %lanes_of_i : tile<16x16xptr<f32>>\n", "")


def loop(factor: str = "%scales", init: str = "%zeros") -> Module:
    # without passes, which would hoist the multiplication
    module = parse_module(
        ROWS.replace("  BODY\n", LOOP.replace("%FACTOR", factor).replace("%INIT", init))
    )
    verify(module)
    return module


def in_loop(module: Module, name: str) -> int:
    loops = [operation for operation in module.kernel.walk() if operation.name == "for"]
    return sum(operation.name == name for operation in loops[0].walk())


def test_factors_are_pulled_out_of_sums() -> None:
    module = loop()
    expected = outcome(module)
    asked: list[tuple[Value, FloatType]] = []
    assert pull_out_factors(module, lambda *what: asked.append(what) is None)
    verify(module)
    assert in_loop(module, "mul") == 0
    assert [(factor.name, str(narrow)) for factor, narrow in asked] == [("scale", "f16")]
    np.testing.assert_allclose(outcome(module), expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("module", "allows"),
    [
        (loop(), False),
        (loop(init="%a"), True),  # it is no multiple of the factor
        (loop(factor="%b"), True),  # not uniform
    ],
)
def test_factors_that_stay(module: Module, allows: bool) -> None:
    assert not pull_out_factors(module, lambda factor, narrow: allows)


def test_accumulators_do_not_begin_with_what_spreads() -> None:
    body = "  %result = dot %a, %b, %lses : tile<16x16xf32>\n" + STORED
    module = module_of(
        body.replace("%a", "%below_a").replace(
            "  %result", "  %below_a = select %rows, %a, %zeros : tile<16x16xf32>\n  %result"
        )
    )
    assert release_accumulators(module)
    verify(module)
    dot = next(operation for operation in module.kernel.walk() if operation.name == "dot")
    assert dot.next is not None
    assert dot.next.name == "sub"
    simplified(module)
