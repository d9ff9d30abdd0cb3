"""Encoding and decoding of float formats, against ml_dtypes and against the definition of
rounding."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.types import (
    BF16,
    F8E4B15,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    U8,
    U64,
    FloatType,
    PointerType,
)
from tilewright.reference import numerics

PEERS = {
    BF16: ml_dtypes.bfloat16,
    F8E4M3FN: ml_dtypes.float8_e4m3fn,
    F8E5M2: ml_dtypes.float8_e5m2,
    F8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    F8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    F16: np.float16,
}
SMALL = [*PEERS, F8E4B15]


def codes(format_: FloatType) -> np.ndarray:
    every = np.arange(1 << format_.bits, dtype=numerics.bits_dtype(format_.bits))
    return every if numerics.is_raw(format_) else every.view(np.float16)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal numbers with equal signs of zero; NaN equals NaN."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return bool(
        np.array_equal(a, b, equal_nan=True)
        and np.array_equal(np.signbit(a) | np.isnan(a), np.signbit(b) | np.isnan(b))
    )


@pytest.mark.parametrize("format_", PEERS, ids=str)
def test_decoding_agrees_with_ml_dtypes_on_every_encoding(format_):
    every = codes(format_)
    assert same(numerics.decode(every, format_), every.view(PEERS[format_]).astype(np.float32))


@pytest.mark.parametrize("format_", SMALL, ids=str)
def test_encoding_what_was_decoded_gives_it_back(format_):
    every = codes(format_)
    numbers = np.asarray(numerics.decode(every, format_), np.float32)
    for rounding in ("rtne", "rtz"):
        back = np.asarray(numerics.encode(numbers.astype(np.float64), format_, rounding))
        finite = ~np.isnan(numbers)
        assert np.array_equal(back[finite], every[finite])
        assert np.isnan(np.asarray(numerics.decode(back, format_), np.float32)[~finite]).all()


@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("format_", PEERS, ids=str)
def test_rounding_to_nearest_agrees_with_ml_dtypes(format_, source, rng):
    every = np.asarray(numerics.decode(codes(format_), format_), np.float32)
    ordered = np.unique(every[np.isfinite(every)].astype(np.float64))
    values = np.concatenate(
        [
            rng.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32),
            (ordered[1:] + ordered[:-1]) / 2,  # ties
            ordered * 1.0009765625,
            rng.normal(size=20_000) * 100,
            [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan],
        ]
    ).astype(np.float32)
    values = values.astype(source)
    peer = values.astype(PEERS[format_])
    assert same(numerics.decode(numerics.encode(values, format_), format_), peer.astype(np.float64))


@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("format_", SMALL, ids=str)
def test_rounding_picks_the_neighbour_the_definition_asks_for(format_, rounding, rng):
    numbers = np.asarray(numerics.decode(codes(format_), format_), np.float64)
    finite = np.unique(numbers[np.isfinite(numbers)])
    top = finite[-1]
    step = top - finite[-2]
    values = np.concatenate(
        [
            rng.uniform(-top - step, top + step, 3000),
            rng.uniform(-1, 1, 3000) * finite[finite > 0][0] * 40,
            finite,
            (finite[1:] + finite[:-1]) / 2,
        ]
    )
    got = np.asarray(
        numerics.decode(numerics.encode(values, format_, rounding), format_), np.float64
    )
    position = np.clip(np.searchsorted(finite, values), 1, len(finite) - 1)
    low, high = finite[position - 1], finite[position]
    inside = np.abs(values) <= top
    if rounding == "rtz":
        want = np.where(high <= 0, high, low)
        want = np.where(
            values == low, low, np.where(values == high, high, np.where(values > 0, low, high))
        )
        assert np.array_equal(got[inside], want[inside])
        assert (np.abs(got[~inside]) == top).all()
    else:
        error = np.abs(got - values)[inside]
        assert (error <= np.minimum(np.abs(values - low), np.abs(values - high))[inside]).all()
        beyond = np.abs(values) > top + step / 2
        assert (~np.isfinite(got[beyond])).all()
        assert np.isnan(got[beyond]).all() == (not format_.has_infinity)


@pytest.mark.parametrize("format_", SMALL, ids=str)
def test_ties_go_to_the_even_encoding(format_):
    every = codes(format_)
    positive = every[: numerics.largest_bits(format_) + 1]
    numbers = np.asarray(numerics.decode(positive, format_), np.float64)
    ties = (numbers[1:] + numbers[:-1]) / 2
    bits = (
        np.asarray(numerics.encode(ties, format_))
        .view(numerics.bits_dtype(format_.bits))
        .astype(np.int64)
    )
    assert (bits % 2 == 0).all()
    assert (np.abs(bits - np.arange(len(ties)) - 0.5) == 0.5).all()


def test_special_values_of_each_format():
    infinity, nan = np.array([np.inf, -np.inf]), np.array([np.nan])
    assert np.array_equal(numerics.encode(infinity, BF16), [0x7F80, 0xFF80])
    assert np.array_equal(numerics.encode(infinity, F8E5M2), [0x7C, 0xFC])
    assert np.array_equal(numerics.encode(infinity, F8E4M3FN), [0x7F, 0xFF])
    assert np.array_equal(numerics.encode(infinity, F8E4M3FNUZ), [0x80, 0x80])
    assert np.array_equal(numerics.encode(infinity, F8E5M2FNUZ, "rtz"), [0x80, 0x80])
    assert np.array_equal(numerics.encode(nan, F8E4M3FNUZ), [0x80])
    assert np.array_equal(numerics.encode(np.array([-0.0, -1e-30]), F8E4M3FNUZ), [0, 0])
    assert np.array_equal(numerics.encode(np.array([-0.0, -1e-30]), F8E4M3FN), [0x80, 0x80])
    assert np.array_equal(
        numerics.encode(np.array([464.0, 464.1, 1e9]), F8E4M3FN), [0x7E, 0x7F, 0x7F]
    )
    assert np.array_equal(numerics.encode(np.array([1e9, -1e9]), F8E4M3FN, "rtz"), [0x7E, 0xFE])
    assert np.array_equal(
        numerics.decode(np.array([0x7E, 0x01, 0x7F], np.uint8), F8E4B15),
        np.array([1.75, 2.0**-17, np.nan], np.float32),
        equal_nan=True,
    )


def test_rounding_from_float64_happens_once():
    # Just above the tie between two bf16 numbers, by less than float32 can tell.
    value = np.array([1.0 + 2.0**-8 + 2.0**-40])
    assert numerics.decode(numerics.encode(value, BF16), BF16)[0] == 1.0 + 2.0**-7
    assert numerics.decode(numerics.encode(value.astype(np.float32), BF16), BF16)[0] == 1.0


def test_f16_towards_zero(rng):
    values = np.concatenate(
        [
            rng.normal(size=5000) * 10.0 ** rng.integers(-9, 6, 5000),
            [65519.9, 65520.0, 1e30, np.inf, -np.inf, np.nan, -0.0],
        ]
    )
    got = numerics.encode(values, F16, "rtz").astype(np.float64)
    nearest = values.astype(np.float16).astype(np.float64)
    finite = np.isfinite(values)
    assert (np.abs(got[finite]) <= np.abs(values[finite])).all()
    want = np.where(
        np.abs(nearest) > np.abs(values),
        np.nextafter(values.astype(np.float16), np.float16(0)).astype(np.float64),
        nearest,
    )
    assert np.array_equal(got[finite], want[finite])
    assert got[-4] == np.inf and got[-3] == -np.inf and np.isnan(got[-2])
    assert np.signbit(got[-1])


def test_f32_towards_zero_from_f64(rng):
    values = rng.normal(size=5000) * 10.0 ** rng.integers(-44, 38, 5000)
    got = numerics.encode(values, F32, "rtz")
    assert got.dtype == np.float32
    assert (np.abs(got.astype(np.float64)) <= np.abs(values)).all()
    assert (
        np.abs(
            np.nextafter(got, np.copysign(np.float32(np.inf), values.astype(np.float32))).astype(
                np.float64
            )
        )
        > np.abs(values)
    ).all()


@settings(deadline=None, max_examples=300)
@given(
    st.integers(-(2**63), 2**63 - 1)
    | st.integers(-(2**63), 2**63 - 1).map(lambda n: n & ~0xFFFFF | 1)
)
def test_integers_round_once_to_narrow_floats(value):
    for format_ in (F16, BF16, F32):
        with np.errstate(all="ignore"):
            got = float(
                numerics.decode(numerics.float_of_integers(np.array([value]), format_), format_)[0]
            )
        digits = max(abs(value).bit_length() - format_.mantissa - 1, 0)
        scale = 1 << digits
        low = value // scale
        rest = value - low * scale
        rounded = low + (1 if 2 * rest > scale or (2 * rest == scale and low % 2) else 0)
        want = float(rounded * scale)
        assert got == want or (format_ is F16 and abs(want) > 65504 and np.isinf(got))


def test_extreme_integers_to_floats():
    assert (
        numerics.decode(numerics.float_of_integers(np.array([2**64 - 1], np.uint64), BF16), BF16)[0]
        == 2.0**64
    )
    assert (
        numerics.decode(numerics.float_of_integers(np.array([2**63 - 1], np.int64), BF16), BF16)[0]
        == 2.0**63
    )
    assert numerics.decode(numerics.float_of_integers(np.array([-(2**63)], np.int64), BF16), BF16)[
        0
    ] == -(2.0**63)
    assert numerics.decode(
        numerics.float_of_integers(np.array([True, False]), F8E5M2), F8E5M2
    ).tolist() == [1.0, 0.0]


def test_floats_to_integers_truncate_and_saturate():
    values = np.array([1.9, -1.9, 1e30, -1e30, np.nan, np.inf, 127.5, -128.5, 128.0])
    assert numerics.integers_of_floats(values, F32, I8).tolist() == [
        1,
        -1,
        -1,
        0,
        0,
        -1,
        127,
        -128,
        -128,
    ]  # the low bytes of 16 bits
    assert numerics.integers_of_floats(values, F32, U8).tolist() == [
        1,
        0,
        255,
        0,
        0,
        255,
        127,
        0,
        128,
    ]
    assert numerics.integers_of_floats(
        np.array([2.0**63, -(2.0**63), 2.0**62]), F64, I64
    ).tolist() == [2**63 - 1, -(2**63), 2**62]
    assert numerics.integers_of_floats(np.array([2.0**63, 2.0**64, -1.0]), F64, U64).tolist() == [
        2**63,
        2**64 - 1,
        0,
    ]
    assert (
        numerics.integers_of_floats(
            np.array([2147483647.0, 2147483648.0], np.float64), F64, I32
        ).tolist()
        == [2**31 - 1] * 2
    )
    assert numerics.integers_of_floats(np.array([0.0, -0.0, 0.1, np.nan]), F64, I1).tolist() == [
        False,
        False,
        True,
        True,
    ]


def test_dtypes_that_values_are_kept_in():
    kept = {
        I1: np.bool_,
        I8: np.int8,
        U64: np.uint64,
        F16: np.float16,
        BF16: np.uint16,
        F8E4B15: np.uint8,
        F64: np.float64,
        PointerType(F32): np.int64,
    }
    for type_, dtype in kept.items():
        assert numerics.numpy_dtype(type_) == dtype
