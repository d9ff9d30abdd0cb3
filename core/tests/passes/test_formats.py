"""Rounding to float formats, and their encodings, against NumPy, ml_dtypes and the reference."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tilewright.ir.types import BF16, F16, F32, F64, FLOATS, FloatType
from tilewright.passes.math.float_formats import (
    contains,
    from_bits,
    max_finite,
    min_exponent,
    round_to,
    to_bits,
)
from tilewright.reference.numerics import decode

DTYPES = {
    "f16": np.float16,
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
SMALL = [type_ for type_ in FLOATS if type_.bits <= 16]


def same(a: float, b: float) -> bool:
    return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize("type_", SMALL, ids=str)
def test_every_encoding(type_: FloatType) -> None:
    codes = np.arange(1 << type_.bits, dtype=np.uint16).astype(f"u{type_.bits // 8}")
    if type_ is F16:
        numbers = codes.view(np.float16).astype(np.float64)
    else:
        numbers = decode(codes, type_).astype(np.float64)
    for code, number in zip(codes.tolist(), numbers.tolist(), strict=True):
        found = from_bits(code, type_)
        assert (found is None) == math.isnan(number)
        if found is not None:
            assert same(found, number)
            assert to_bits(found, type_) == code
            assert same(round_to(found, type_), found)
            assert same(round_to(found, type_, towards_zero=True), found)
    assert to_bits(math.nan, type_) is None
    finite = numbers[np.isfinite(numbers)]
    assert max_finite(type_) == finite.max()
    assert math.ldexp(1.0, min_exponent(type_)) == finite[finite > 0].min()


@pytest.mark.parametrize("name", DTYPES)
def test_rounding(name: str) -> None:
    type_ = FloatType(name)
    rng = np.random.default_rng(3)
    greatest = max_finite(type_)
    numbers = np.concatenate(
        [
            rng.standard_normal(4000)
            * np.exp2(rng.integers(min_exponent(type_) - 3, math.frexp(greatest)[1] + 2, 4000)),
            [0.0, -0.0, math.inf, -math.inf, math.nan, greatest, -greatest, greatest * 1.01],
            np.ldexp(1.0, np.arange(min_exponent(type_) - 3, 3)),
            np.ldexp(1.5, np.arange(min_exponent(type_) - 3, 3)),
        ]
    )
    if type_.bits == 8:
        # ml_dtypes rounds f64 to fp8 by way of f32 or f16; what those hold rounds once.
        numbers = numbers.astype(np.float16).astype(np.float64)
    with np.errstate(all="ignore"):
        expected = numbers.astype(DTYPES[name]).astype(np.float64)
    for number, wanted in zip(numbers.tolist(), expected.tolist(), strict=True):
        assert same(round_to(number, type_), wanted), number


def midpoints(type_: FloatType) -> list[tuple[float, float]]:
    codes = range(0, (1 << (type_.bits - 1)) - 2, 1 if type_.bits == 8 else 37)
    pairs = [(from_bits(code, type_), from_bits(code + 1, type_)) for code in codes]
    return [(a, b) for a, b in pairs if a is not None and b is not None and math.isfinite(b)]


@pytest.mark.parametrize("type_", SMALL, ids=str)
def test_ties_go_to_even_and_the_rest_to_the_nearest(type_: FloatType) -> None:
    for below, above in midpoints(type_):
        middle = (Fraction(below) + Fraction(above)) / 2
        bits = to_bits(below, type_)
        assert bits is not None
        assert round_to(middle, type_) == (above if bits & 1 else below)
        epsilon = (Fraction(above) - Fraction(below)) / 1000
        assert round_to(middle + epsilon, type_) == above
        assert round_to(middle - epsilon, type_) == below
        assert round_to(middle + epsilon, type_, towards_zero=True) == below
        assert round_to(-middle - epsilon, type_) == -above
        assert round_to(-middle - epsilon, type_, towards_zero=True) == -below


def test_rational_numbers_round_once() -> None:
    # Rounded to f64 first, this would be a tie in f32 and fall to the even neighbour below.
    number = 1 + Fraction(1, 1 << 24) + Fraction(1, 1 << 80)
    assert round_to(number, F32) == 1 + 2.0**-23
    assert round_to(float(number), F32) == 1.0
    assert round_to(Fraction(1, 3), F64) == 1 / 3
    assert round_to(Fraction(10) ** 400, F64) == math.inf
    assert round_to(-(Fraction(10) ** -400), F64) == 0
    assert math.copysign(1, round_to(-(Fraction(10) ** -400), F64)) == -1


@pytest.mark.each_value
@pytest.mark.parametrize("narrow", FLOATS, ids=str)
@pytest.mark.parametrize("wide", FLOATS, ids=str)
def test_contains(wide: FloatType, narrow: FloatType) -> None:
    if narrow.bits <= 16:
        numbers = [from_bits(code, narrow) for code in range(1 << narrow.bits)]
        fits = all(number is None or same(round_to(number, wide), number) for number in numbers)
        assert contains(wide, narrow) == fits
    else:
        assert contains(wide, narrow) == (wide.bits >= narrow.bits)


def test_some_containments() -> None:
    assert contains(F32, BF16)
    assert contains(F32, F16)
    assert not contains(F16, BF16)
    assert not contains(BF16, F16)
    assert contains(F16, FloatType("f8e5m2"))
