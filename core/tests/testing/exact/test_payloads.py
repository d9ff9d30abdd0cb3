"""Payloads in arrays: embedded, drawn, read as fractions, compared."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.passes.exact.constants import recognized
from tilewright.passes.exact.ring import ring
from tilewright.runtime.exact.payloads import bits_of, fraction
from tilewright.testing.exact import agree, draw, embed, fractions


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=8))
def test_embedded_numbers_have_their_residues(numbers) -> None:
    found = bits_of(embed(np.array(numbers, np.float32)))
    assert [int(x) for x in found] == [ring(32).residue(Fraction(x)) for x in numbers]


def test_codes_and_zeros() -> None:
    found = fractions(embed(np.array([np.inf, -np.inf, np.nan, -0.0], np.float16)))
    assert list(found) == ["inf", "-inf", "nan", Fraction(0)]


@given(st.fractions(-44_000, 44_000, max_denominator=44_000))
def test_fractions_are_reconstructed(number: Fraction) -> None:
    if number.denominator % 251 and abs(number.numerator) <= 44_000:
        assert fraction(ring(32), ring(32).residue(number)) == number


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_drawn_payloads_are_residues(dtype) -> None:
    drawn = draw(np.zeros((7, 9), dtype), np.random.default_rng(0))
    assert drawn.shape == (7, 9) and drawn.dtype == dtype
    assert (bits_of(drawn) < ring(8 * drawn.itemsize).modulus).all()


def test_undefined_agrees_with_all_and_digits_count_from_below() -> None:
    bits = np.array([5, 5 + 251**3, ring(32).undefined, ring(32).nan], np.uint32)
    left = bits.view(np.float32)
    right = np.full(4, 5, np.uint32).view(np.float32)
    assert list(agree(left, right)) == [True, False, True, False]
    assert list(agree(left, right, digits=3)) == [True, True, True, False]


def test_integers_are_no_payloads() -> None:
    with pytest.raises(TypeError, match="payloads stand for floats"):
        embed(np.zeros(3, np.int32))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0.001, Fraction(1, 1000)), (1e-5, Fraction(1, 10**5)), (0.1, Fraction(1, 10)),
        (0.044715, Fraction(44715, 10**6)), (1 / 3, Fraction(1, 3)), (0.3333333333, Fraction(1, 3)),
        (0.5, Fraction(1, 2)), (-3.0, Fraction(-3)), (1 / 300, Fraction(1, 300)),
        (0.0, Fraction(0)),
    ],
)  # fmt: skip
def test_constants_are_recognized(value, number) -> None:
    assert recognized(value) == number
    assert recognized(float(np.float32(value))) == number


def test_tensors_hold_payloads() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[0.5, -3.0], [float("inf"), 0.25]], dtype=torch.bfloat16)
    assert [str(value) for value in fractions(embed(x)).ravel()] == ["1/2", "-3", "inf", "1/4"]
    drawn = draw(x, np.random.default_rng(1))
    assert drawn.dtype is torch.bfloat16 and agree(drawn, drawn.clone()).all()
