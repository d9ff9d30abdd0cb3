"""The oracles of the families of profile core, against NumPy, ml_dtypes and exact fractions where
these round once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright_conformance.cases.core.casts import conversions
from tilewright_conformance.cases.core.operators import kernels
from tilewright_conformance.oracles.dtypes import FLOATS, INTEGERS, NUMBERS, kind
from tilewright_conformance.oracles.formats import FORMATS
from tilewright_conformance.testlib import combining
from tilewright_conformance.testlib.numbers import special, wide

RNG = np.random.default_rng(17)

#: formats that ml_dtypes has
OTHERS = tuple(name for name in FORMATS if name != "float8e4b15")


def assert_same(found: Any, expected: Any) -> None:
    """Equal numbers of equal signs, or NaN both."""
    a, b = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    same = (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))
    assert same.all(), (a[~same][:4], b[~same][:4])


@pytest.mark.parametrize("target", OTHERS)
def test_numbers_of_fp32_become_those_of_a_narrow_format_past_its_ends_too(target: str) -> None:
    x = np.concatenate([conversions.decisive(RNG, "float32", target), special("float32")])
    inside = x
    if FORMATS[target].bits == 8:  # saturates, which the conversions of ml_dtypes do not
        greatest = float(ml_dtypes.finfo(kind(target)).max)
        inside = np.clip(x, -greatest, greatest)
    with np.errstate(all="ignore"):
        assert_same(FORMATS[target].rounded(x), inside.astype(kind(target)).astype(np.float64))


@pytest.mark.parametrize("target", FORMATS)
def test_towards_zero_a_finite_number_stays_finite_and_grows_no_greater(target: str) -> None:
    x = np.concatenate([conversions.decisive(RNG, "float32", target), special("float32")]).astype(
        np.float64
    )
    found = FORMATS[target].rounded(x, "rtz")
    finite = np.isfinite(x)
    assert np.isfinite(found[finite]).all() and (np.abs(found[finite]) <= np.abs(x[finite])).all()
    assert (np.abs(found[finite]) >= np.abs(FORMATS[target].rounded(x[finite] * 0.5, "rtz"))).all()


@pytest.mark.parametrize("source", [*NUMBERS, "bool"])
def test_casts_that_numpy_rounds_once(source: str) -> None:
    for target in (*NUMBERS, "bool"):
        x = conversions.values(RNG, source, target)
        assert len(x) > 3 or source == "bool"
        found = conversions.cast(x, target)
        with np.errstate(all="ignore"):
            if target in INTEGERS or target == "bool":
                assert np.array_equal(found, x.astype(target))
            elif target in ("float32", "float64") or (
                source in FLOATS and (source != "float64" or target == "float16")
            ):
                assert_same(found, x.astype(kind(target)))


@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("source", ["int32", "int64", "uint64"])
def test_integers_round_once(source: str, target: str) -> None:
    """No number of the target is nearer than the one found, and of two that are as near it is the
    even one."""
    fraction = {"float16": 10, "bfloat16": 7, "float32": 23}[target]
    x = conversions.values(RNG, source, target)
    for value, found in zip(x.tolist(), conversions.cast(x, target).tolist(), strict=True):
        unit = 2 ** max(0, abs(value).bit_length() - 1 - fraction)
        quotient, rest = divmod(abs(value), unit)
        quotient += 2 * rest > unit or (2 * rest == unit and quotient % 2)
        assert abs(int(found)) == quotient * unit


def test_values_for_casts_hold_ties_and_ends() -> None:
    x = conversions.values(RNG, "int64", "float32")
    assert {2**24 + 1, 2**25 + 2, 2**63 - 1, -(2**63)} <= set(x.tolist())
    x = conversions.values(RNG, "float64", "float16").astype(np.float64)
    assert {
        65504.0,
        65520.0,
        65488.0,
        np.nextafter(65488.0, 0),
        2.0**-25,
        np.nextafter(2.0**-25, 1),
    } <= set(x.tolist())
    x = conversions.values(RNG, "float32", "uint8").astype(np.float64)
    assert {255.5, -0.5, 0.5} <= set(x.tolist()) and x.max() < 256 and x.min() > -1


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_fused_products_are_rounded_once(name: str) -> None:
    x, y, z = (RNG.uniform(0.5, 2, 300).astype(name) for _ in range(3))
    z[::2] = -(x[::2] * y[::2])
    for a, b, c, found in zip(x, y, z, kernels.fused(x, y, z), strict=True):
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        near = [
            abs(Fraction(float(n)) - exact)
            for n in (
                found,
                np.nextafter(found, kind(name).type(9)),
                np.nextafter(found, kind(name).type(-9)),
            )
        ]
        assert near[0] == min(near)


def test_sums_in_any_order_are_within_the_bound_and_a_lost_term_is_not() -> None:
    x = (RNG.standard_normal((4, 256)) + 0.25).astype(np.float32)
    exact = x.astype(np.float64)
    bound = combining.sum_bound(exact, 1, "float32")
    one_by_one = np.zeros(4, np.float32)
    for column in x.T:
        one_by_one += column
    for found in (one_by_one, x.sum(1), x[:, ::-1].sum(1)):
        assert (np.abs(found - exact.sum(1)) <= bound).all()
    assert (np.abs(x[:, 1:].sum(1) - exact.sum(1)) > bound).any()


@pytest.mark.parametrize("name", [*NUMBERS, "bool"])
def test_wide_numbers_reach_the_ends_of_integers(name: str) -> None:
    x = wide(RNG, name, 1000)
    assert x.dtype == kind(name)
    if name in INTEGERS:
        assert x.min() == np.iinfo(name).min and x.max() == np.iinfo(name).max
    elif name != "bool":
        assert np.isfinite(x.astype(np.float64)).all()
