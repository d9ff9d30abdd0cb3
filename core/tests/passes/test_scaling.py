"""The laws of scaled numbers hold to the last bit: before and after on the reference, with numbers
that underflow, overflow and are none."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.parser import parse_module
from tilewright.passes.canonicalize import canonicalize
from tilewright.reference.interpreter import run

ROWS, COLUMNS = 64, 32
KERNEL = """tilewright.ir 1.0
kernel @k(%x: ptr<f32>, %m: ptr<f32>, %y: ptr<f32>, %r: ptr<f32>) {
  %rows = arange {start = 0, end = 64} : tile<64xi32>
  %columns = arange {start = 0, end = 32} : tile<32xi32>
  %0 = expand_dims %rows {axis = 1} : tile<64x1xi32>
  %1 = broadcast %0 : tile<64x32xi32>
  %2 = constant 32 : i32
  %3 = splat %2 : tile<64x32xi32>
  %4 = mul %1, %3 : tile<64x32xi32>
  %5 = expand_dims %columns {axis = 0} : tile<1x32xi32>
  %6 = broadcast %5 : tile<64x32xi32>
  %7 = add %4, %6 : tile<64x32xi32>
  %8 = splat %x : tile<64x32xptr<f32>>
  %9 = addptr %8, %7 : tile<64x32xptr<f32>>
  %scores = load %9 : tile<64x32xf32>
  %mask = cmp %1, %6 {predicate = ge} : tile<64x32xi1>
  %10 = constant FIRST : f32
  %11 = splat %10 : tile<64x32xf32>
  %12 = mul %scores, %11 : tile<64x32xf32>
  %13 = constant -inf : f32
  %14 = splat %13 : tile<64x32xf32>
  %15 = select %mask, %12, %14 : tile<64x32xf32>
  %16 = constant SECOND : f32
  %17 = splat %16 : tile<64x32xf32>
  %18 = mul %15, %17 : tile<64x32xf32>
  %19 = reduce %18 {axis = 1} : tile<64xf32> combine(%20: f32, %21: f32) {
    %22 = max %20, %21 : f32
    yield %22
  }
  %23 = splat %r : tile<64xptr<f32>>
  %24 = addptr %23, %rows : tile<64xptr<f32>>
  store %24, %19
  %25 = splat %m : tile<64xptr<f32>>
  %26 = addptr %25, %rows : tile<64xptr<f32>>
  %27 = load %26 : tile<64xf32>
  %28 = expand_dims %27 {axis = 1} : tile<64x1xf32>
  %29 = broadcast %28 : tile<64x32xf32>
  %30 = sub %18, %29 : tile<64x32xf32>
  %31 = exp2 %30 : tile<64x32xf32>
  %32 = splat %y : tile<64x32xptr<f32>>
  %33 = addptr %32, %7 : tile<64x32xptr<f32>>
  store %33, %31
  return
}
"""
SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1.1754944e-38,
    -1.1754944e-38,
    3.4028235e38,
    -3.4028235e38,
    1.0,
]


def run_on(
    text: str, simplified: bool, scores: np.ndarray, subtracted: np.ndarray
) -> tuple[int, np.ndarray, np.ndarray]:
    """Return (multiplications of whole tiles, exponentials, row maxima)."""
    module = parse_module(text)
    if simplified:
        canonicalize(module)
    y, r = np.zeros_like(scores), np.zeros(ROWS, np.float32)
    with np.errstate(all="ignore"):
        run(module, [scores, subtracted, y, r], (1, 1, 1))
    count = sum(
        one.name == "mul" and str(one.result.type) == "tile<64x32xf32>"
        for one in module.kernel.walk()
    )
    return count, y, r


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("0.125", "1.44269504", 1),
        ("0.0884", "1.44269504", 2),
        ("1e-30", "0.7", 2),
        ("0.0009765625", "1e19", 1),
    ],
)
def test_scores_are_scaled_as_before(first: str, second: str, left: int) -> None:
    text = KERNEL.replace("FIRST", first).replace("SECOND", second)
    generator = np.random.default_rng(7)
    exponents = generator.integers(-149, 128, (ROWS, COLUMNS))
    scores = np.ldexp(generator.uniform(-2, 2, (ROWS, COLUMNS)), exponents).astype(np.float32)
    scores[: len(SPECIAL)] = np.asarray(SPECIAL, np.float32)[:, None]
    scores[np.arange(ROWS), generator.integers(0, COLUMNS, ROWS)] = generator.choice(
        np.asarray(SPECIAL, np.float32), ROWS
    )
    subtracted = np.ldexp(
        generator.uniform(-2, 2, ROWS), generator.integers(-149, 20, ROWS)
    ).astype(np.float32)
    subtracted[::4] = 0.0
    before, after = (run_on(text, simplified, scores, subtracted) for simplified in (False, True))
    assert (before[0], after[0]) == (2, left)
    for expected, found in zip(before[1:], after[1:], strict=True):
        np.testing.assert_array_equal(found, expected)
