"""Comparing results: units in the last place against NumPy's spacing, and the rules for NaN,
infinities and zeros."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright_conformance.suite.comparison import MismatchError, Rules, compare

INF, NAN = float("inf"), float("nan")


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_errors_are_counted_in_units_of_the_expected_value(dtype: type, steps: int) -> None:
    rng = np.random.default_rng(steps)
    expected = (
        rng.uniform(1, 2, 500) * 2.0 ** rng.integers(-20, 5, 500) * rng.choice([-1, 1], 500)
    ).astype(dtype)
    found = expected + (steps * np.spacing(np.abs(expected))).astype(dtype)
    assert compare(found, expected, rules=Rules(ulp=3)) == pytest.approx(steps, rel=1e-6)
    if steps:
        with pytest.raises(
            MismatchError,
            match=(
                rf"500 of 500 elements are wrong; first at \[0\].*off by up to {steps} ULP, "
                rf"allowed {steps - 0.5:g} ULP"
            ),
        ):
            compare(found, expected, rules=Rules(ulp=steps - 0.5))


def test_an_expected_value_between_two_numbers_is_half_a_unit_from_each() -> None:
    middle = np.array([1 + 2.0**-24, 3 + 2.0**-23])
    assert compare(middle.astype(np.float32), middle, rules=Rules(ulp=0.5)) == 0.5
    compare(
        middle.astype(np.float32), middle
    )  # the nearest number of the type is what equality asks for
    with pytest.raises(MismatchError):
        compare(np.nextafter(middle.astype(np.float32), np.float32(9)), middle)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bf16", ml_dtypes.bfloat16),
        ("f8e4m3fn", ml_dtypes.float8_e4m3fn),
        ("f8e5m2", ml_dtypes.float8_e5m2),
    ],
)
def test_formats_kept_as_bits(name: str, dtype: type) -> None:
    patterns = (
        np.arange(1 << 8, dtype=np.uint8)
        if np.dtype(dtype).itemsize == 1
        else np.arange(1 << 16, dtype=np.uint16)
    )
    with np.errstate(invalid="ignore"):
        values = patterns.view(dtype).astype(np.float64)
    assert compare(patterns, values, name) == 0
    assert compare(patterns, patterns, name) == 0
    finite = np.flatnonzero(np.isfinite(values) & np.isfinite(np.roll(values, -1)) & (values > 0))[
        :-1
    ]
    found = patterns[finite + 1][np.isfinite(values[finite + 1])]
    expected = values[finite][np.isfinite(values[finite + 1])]
    assert compare(found, expected, name, Rules(ulp=1)) == 1
    with pytest.raises(MismatchError, match=f"{len(found)} of {len(found)} elements"):
        compare(found, expected, name, Rules(ulp=0.9))


@pytest.mark.parametrize(
    ("found", "expected", "good"),
    [
        (NAN, NAN, True),
        (NAN, 1.0, False),
        (1.0, NAN, False),
        (NAN, INF, False),
        (INF, INF, True),
        (INF, -INF, False),
        (3.4028235e38, INF, False),
        (INF, 3.5e38, True),  # beyond the maximum: rounds to infinity
        (-0.0, 0.0, False),
        (0.0, 0.0, True),
        (1e-45, 0.0, False),
    ],
)
def test_special_values(found: float, expected: float, good: bool) -> None:
    for ulp in (0.0, 0.5):
        if good:
            compare(f32(found), np.array([expected]), rules=Rules(ulp=ulp))
        else:
            with pytest.raises(MismatchError):
                compare(f32(found), np.array([expected]), rules=Rules(ulp=ulp))


def test_an_infinity_in_place_of_the_greatest_number_is_one_unit_off() -> None:
    greatest = float(np.finfo(np.float32).max)
    compare(f32(INF), np.array([greatest]), rules=Rules(ulp=1))
    compare(f32(greatest), np.array([3.4028236e38]), rules=Rules(ulp=1))
    with pytest.raises(MismatchError):
        compare(f32(INF), np.array([greatest]), rules=Rules(ulp=0.99))


def test_the_sign_of_a_zero_and_flushing_are_choices() -> None:
    compare(f32(-0.0), f32(0.0), rules=Rules(zero_sign=False))
    compare(f32(0.0, -0.0), f32(1e-40, 1e-40), rules=Rules(flush=True))
    with pytest.raises(MismatchError):
        compare(f32(0.0), f32(1e-40))
    with pytest.raises(MismatchError):
        compare(f32(0.0), f32(2e-38), rules=Rules(flush=True))


def test_bounds_of_each_element() -> None:
    found, expected = f32(1.0, 2.0), np.array([1.1, 2.1])
    compare(found, expected, rules=Rules(atol=np.array([0.11, 0.11])))
    compare(found, expected, rules=Rules(rtol=0.1))
    with pytest.raises(
        MismatchError, match=r"1 of 2 elements are wrong; first at \[1\].*the case's bound"
    ):
        compare(found, expected, rules=Rules(atol=np.array([0.11, 0.09])))


def test_integers_are_equal_or_wrong() -> None:
    compare(np.arange(5), np.arange(5))
    with pytest.raises(MismatchError, match=r"first at \[1, 1\]: expected 3, found 4"):
        compare(np.array([[0, 1], [2, 4]], np.int8), np.array([[0, 1], [2, 3]], np.int8))
    with pytest.raises(TypeError, match="elements of f16 are kept as float16, not as float32"):
        compare(f32(1.0), f32(1.0), "f16")
