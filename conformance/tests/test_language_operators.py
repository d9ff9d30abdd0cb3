"""Operators on pairs of number types, on CPU and GPU and the reference: the type of the result by the rules of C and of this language, its values by NumPy.

The suite's family ``operators`` has every pair; this has each type with itself and one in four of the others."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.errors import CompilationError
from tilewright_conformance.cases.operators.kernels import (
    COMPARISONS,
    PAIRS,
    arithmetic,
    bitwise,
    chosen,
    common,
    compared,
    divided,
    limited,
    meet,
    not_numbers,
    one_division,
    shifted,
    truncated_quotient,
    usual,
)
from tilewright_conformance.kit.numbers import FLOATS, INTEGERS, SIGNED, UNSIGNED, kind

Run = Callable[..., None]

BLOCK = 64
SOME = [(a, b) for place, (a, b) in enumerate(PAIRS) if a == b or place % 4 == 0]
SOME_INTEGERS = list(itertools.product(INTEGERS, INTEGERS))[::3]


def draw(name: str, seed: int) -> Any:
    """Numbers of the whole range of an integer type, and of a usual range of a float type, none of them 0."""
    return usual(np.random.default_rng(seed), name, BLOCK)


@pytest.mark.parametrize(("a", "b"), SOME)
def test_arithmetic_and_comparison(launch: Run, a: str, b: str) -> None:
    name = common(a, b)
    x, y = draw(a, 1), draw(b, 2)
    with np.errstate(over="ignore"):
        y[5:9] = x[5:9].astype(y.dtype)  # so that some are equal
    if y.dtype.kind in "iu":
        y[y == 0] = 1
    numbers, truths = [np.zeros(BLOCK, kind(name)) for _ in range(3)], np.zeros((6, BLOCK), np.int8)
    launch(arithmetic, (1,), x, y, *numbers, TYPE=getattr(tl, name), BLOCK=BLOCK, rtol=0, atol=0)
    launch(compared, (1,), x, y, truths, BLOCK=BLOCK)
    p, q = meet(x, name), meet(y, name)
    with np.errstate(all="ignore"):
        for found, wanted in zip(numbers, (p + q, p - q, p * q), strict=True):
            np.testing.assert_array_equal(found, wanted)
    for found, compare in zip(truths, COMPARISONS, strict=True):
        assert np.array_equal(found != 0, compare(p, q))


@pytest.mark.parametrize(("a", "b"), SOME)
def test_division_and_remainder(launch: Run, a: str, b: str) -> None:
    """``//`` and ``%`` truncate, as C does; ``/`` of integers is of fp32, and of narrow floats too; signed and unsigned do not go together."""
    x, y = draw(a, 3), draw(b, 4)
    if {a, b} <= set(INTEGERS) and (a in SIGNED) != (b in SIGNED):
        with pytest.raises(CompilationError, match=r"Cannot use /, // or % with .* because they have different signedness"):
            launch(one_division, (1,), x, y, np.zeros(1, np.float32))
        return
    name = common(a, b)
    whole = name in INTEGERS
    quotient = "float64" if name == "float64" else "float32"
    rest = name if whole else quotient
    if whole and name in SIGNED:
        y[y == -1] = 3  # the least number has no opposite
    found = [np.zeros(BLOCK, kind(quotient)), np.zeros(BLOCK, kind(rest)), np.zeros(BLOCK, kind(rest))]
    exact = 0 if whole or quotient == "float64" else 3e-7
    launch(divided, (1,), x, y, *found, TYPE=getattr(tl, quotient), REST=getattr(tl, rest), BLOCK=BLOCK, rtol=3e-7, atol=1e-6)
    p, q = meet(x, rest), meet(y, rest)
    np.testing.assert_allclose(found[0], p.astype(quotient) / q.astype(quotient), rtol=3e-7)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found[2], np.fmod(p, q), rtol=exact, atol=exact * 6)
    if whole:
        assert np.array_equal(found[1], truncated_quotient(p, q))


@pytest.mark.parametrize(("a", "b"), SOME_INTEGERS)
def test_bits(launch: Run, a: str, b: str) -> None:
    """``>>`` brings in the sign where the left operand is signed."""
    name = common(a, b)
    x, y = draw(a, 5), draw(b, 6)
    results = [np.zeros(BLOCK, name) for _ in range(5)]
    inverted = np.zeros(BLOCK, a)
    launch(bitwise, (1,), x, y, *results, inverted, TYPE=getattr(tl, name), BLOCK=BLOCK)
    p, q = x.astype(name), y.astype(name)
    amount = (y & y.dtype.type(8 * p.itemsize - 1)).astype(name)
    left, right = shifted(p, amount, arithmetic=a in SIGNED)
    wanted = [p & q, p | q, p ^ q, left, right]
    for found, expected in zip(results, wanted, strict=True):
        assert np.array_equal(found, expected)
    assert np.array_equal(inverted, ~x)


@pytest.mark.parametrize(("a", "b"), [(a, b) for a, b in SOME if common(a, b) not in UNSIGNED])
def test_choice_and_extremes(launch: Run, a: str, b: str) -> None:
    name = common(a, b)
    x, y, condition = draw(a, 7), np.abs(draw(b, 8)), np.random.default_rng(9).integers(0, 2, BLOCK).astype(np.int32)
    if b in SIGNED:
        y[y < 0] = 1  # the least number has no opposite
    found = [np.zeros(BLOCK, kind(name)) for _ in range(3)]
    launch(chosen, (1,), condition, x, y, *found, TYPE=getattr(tl, name), BLOCK=BLOCK, rtol=0, atol=0)
    p, q = meet(x, name), meet(y, name)
    assert np.array_equal(found[0], np.where(condition != 0, p, q))
    assert np.array_equal(found[1], np.minimum(p, q))
    assert np.array_equal(found[2], np.maximum(p, q))
    if b not in UNSIGNED:  # where the opposite of a number is one
        held = np.zeros(BLOCK, kind(name))
        launch(limited, (1,), x, -y, y, held, BLOCK=BLOCK, rtol=0, atol=0)
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
