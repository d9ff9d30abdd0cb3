"""Operators on pairs of number types where the suite's family of them does not go: what is refused,
limits of another type, and NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.errors import CompilationError
from tilewright_conformance.cases.core.operators.kernels import (
    PAIRS,
    common,
    limited,
    meet,
    not_numbers,
    one_division,
    usual,
)
from tilewright_conformance.oracles.dtypes import FLOATS, INTEGERS, SIGNED, UNSIGNED, kind

Run = Callable[..., None]

BLOCK = 64
SOME = [(a, b) for place, (a, b) in enumerate(PAIRS) if a == b or place % 4 == 0]


def draw(name: str, seed: int) -> Any:
    """Numbers of the whole range of an integer type, and of a usual range of a float type, none of
    them 0."""
    return usual(np.random.default_rng(seed), name, BLOCK)


@pytest.mark.parametrize(
    ("a", "b"),
    [(a, b) for a, b in SOME if {a, b} <= set(INTEGERS) and (a in SIGNED) != (b in SIGNED)],
)
def test_signed_and_unsigned_are_not_divided(launch: Run, a: str, b: str) -> None:
    with pytest.raises(
        CompilationError,
        match=r"Cannot use /, // or % with .* because they have different signedness",
    ):
        launch(one_division, (1,), draw(a, 3), draw(b, 4), np.zeros(1, np.float32))


@pytest.mark.parametrize(
    ("a", "b"), [(a, b) for a, b in SOME if common(a, b) not in UNSIGNED and b not in UNSIGNED]
)
def test_limits_of_another_type(launch: Run, a: str, b: str) -> None:
    name = common(a, b)
    x, y = draw(a, 7), np.abs(draw(b, 8))
    if b in SIGNED:
        y[y < 0] = 1  # the minimum has no opposite
    held = np.zeros(BLOCK, kind(name))
    launch(limited, (1,), x, -y, y, held, BLOCK=BLOCK, rtol=0, atol=0)
    p, q = meet(x, name), meet(y, name)
    assert np.array_equal(held, np.minimum(np.maximum(p, -q), q))


@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("name", FLOATS)
def test_nan_is_passed_on_or_passed_over(launch: Run, name: str, propagate: bool) -> None:
    x, y = draw(name, 10), draw(name, 11)
    x[::3], y[::4] = np.nan, np.nan
    out = np.zeros((3, BLOCK), kind(name))
    launch(not_numbers, (1,), x, y, out, PROPAGATE=propagate, BLOCK=BLOCK, rtol=0, atol=0)
    p, q = x.astype(np.float64), y.astype(np.float64)
    highest, lowest = (np.maximum, np.minimum) if propagate else (np.fmax, np.fmin)
    limited = np.clip(p, -1, 1)
    wanted = [highest(p, q), lowest(p, q), limited]
    for i in range(3 if propagate else 2):  # without it, what a limited NaN becomes is not said
        np.testing.assert_array_equal(out[i].astype(np.float64), wanted[i])
