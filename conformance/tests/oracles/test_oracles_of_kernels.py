"""Oracles of matmuls and whole kernels: values, and error bounds.

Values are compared with slow definitions. Bounds must hold for any order of summation, and fail for
fewer bits.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright_conformance.oracles import attention, matrix, rowwise
from tilewright_conformance.oracles.dtypes import kind

RNG = np.random.default_rng(5)


def summed(a: Any, b: Any, dtype: Any, order: Any) -> Any:
    """``a @ b`` term by term in a type, in an order of the terms."""
    total = np.zeros((a.shape[0], b.shape[1]), dtype)
    for k in order:
        total = (total + (a[:, k, None] * b[None, k, :]).astype(dtype)).astype(dtype)
    return total.astype(np.float64)


@pytest.mark.parametrize(("accumulator", "dtype"), [("f32", np.float32), ("f16", np.float16)])
def test_the_bound_holds_for_every_order_of_sums(accumulator: str, dtype: Any) -> None:
    a, b = matrix.spread(RNG, "f16", 8, 64).values, matrix.spread(RNG, "f16", 64, 8).values
    allowed = matrix.bound(a, b, 0.0, accumulator)
    for order in (range(64), range(63, -1, -1), RNG.permutation(64)):
        assert (np.abs(summed(a, b, dtype, order) - a @ b) <= allowed).all()


@pytest.mark.parametrize("terms", [16, 64, 256])
def test_the_bound_fails_for_sums_in_fewer_bits(terms: int) -> None:
    a, b = matrix.spread(RNG, "f16", 8, terms).values, matrix.spread(RNG, "f16", terms, 8).values
    allowed = matrix.bound(a, b, 0.0, "f32")
    for narrow in (np.float16, ml_dtypes.bfloat16):
        assert (np.abs(summed(a, b, narrow, range(terms)) - a @ b) > allowed).any()


def parts(x: Any, bits: int, count: int) -> list[Any]:
    """A number as a sum of numbers that are cut off to some bits."""
    found = []
    for _ in range(count):
        fraction, exponent = np.frexp(x)
        part = np.ldexp(np.trunc(fraction * 2**bits) / 2**bits, exponent)
        found.append(part)
        x = x - part
    return found


@pytest.mark.parametrize(
    ("precision", "bits", "count"),
    [("tf32", 11, 1), ("tf32x3", 11, 2), ("bf16x3", 8, 2), ("bf16x6", 8, 3)],
)
def test_precisions_allow_what_their_parts_leave(precision: str, bits: int, count: int) -> None:
    """Truncated operands, omitted small parts, and errors of one sign are within the bound.

    They exceed the bound of a better precision.
    """
    a, b = (
        np.abs(matrix.spread(RNG, "f32", 16, 64).values),
        np.abs(matrix.spread(RNG, "f32", 64, 16).values),
    )
    left, right = parts(a, bits, count), parts(b, bits, count)
    found = sum(
        (left[i] @ right[j] for i in range(count) for j in range(count) if i + j < count),
        np.zeros((16, 16)),
    )
    off = np.abs(found - a @ b)
    assert (off <= matrix.bound(a, b, 0.0, "f32", precision)).all()
    better = {"tf32": "tf32x3", "bf16x3": "ieee"}.get(precision)
    if better:
        assert (off > matrix.bound(a, b, 0.0, "f32", better)).any()


def test_few_bits_are_exact_in_every_accumulator() -> None:
    for type_ in ("f16", "bf16", "f8e4m3fn", "f8e5m2"):
        a, b = matrix.few_bits(RNG, type_, 4, 128), matrix.few_bits(RNG, type_, 128, 4)
        exact = [
            [
                float(sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)))
                for column in b.values.T
            ]
            for row in a.values
        ]
        np.testing.assert_array_equal(
            summed(a.values, b.values, np.float16, RNG.permutation(128)), exact
        )


def test_patterns_and_values_of_operands_agree() -> None:
    for type_ in ("bf16", "f8e4m3fn", "f8e5m2"):
        operand = matrix.spread(RNG, type_, 50)
        np.testing.assert_array_equal(
            matrix.bits_of(operand).view(kind(type_)).astype(np.float64), operand.values
        )


def by_differences(f: Any, x: Any, direction: Any) -> float:
    step = 1e-6
    return float((f(x + step * direction) - f(x - step * direction)) / (2 * step))


def test_gradients_agree_with_differences() -> None:
    x, w, dy = RNG.standard_normal((3, 7)), RNG.standard_normal(7), RNG.standard_normal((3, 7))
    direction = RNG.standard_normal(x.shape)
    mean, rstd = x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5)
    pairs = [
        (
            lambda x: (rowwise.rms_norm(x, w, 1e-6)[0] * dy).sum(),
            rowwise.rms_norm_gradient(x, w, dy, 1e-6)[0],
        ),
        (
            lambda x: (rowwise.layer_norm(x, w, w, 1e-5)[0] * dy).sum(),
            rowwise.layer_norm_gradient(x, w, dy, mean, rstd)[0],
        ),
    ]
    target = np.array([1, -100, 3])
    for smoothing, cap in ((0.0, None), (0.1, None), (0.0, 2.0)):

        def loss(x: Any, smoothing: Any = smoothing, cap: Any = cap) -> Any:
            return rowwise.cross_entropy(x, target, -100, smoothing, cap)[0].sum()

        pairs.append((loss, rowwise.cross_entropy(x, target, -100, smoothing, cap)[1]))
    for f, gradient in pairs:
        assert by_differences(f, x, direction) == pytest.approx(
            float((gradient * direction).sum()), rel=1e-5, abs=1e-7
        )


@pytest.mark.parametrize("causal", [True, False])
def test_gradients_of_attention_agree_with_differences(causal: bool) -> None:
    arrays = [RNG.standard_normal((2, 5, 4)) for _ in range(3)]
    do = RNG.standard_normal((2, 5, 4))
    for position, gradient in enumerate(attention.gradients(*arrays, do, 0.5, causal)):
        direction = RNG.standard_normal((2, 5, 4))

        def f(x: Any, position: int = position) -> Any:
            given = [x if i == position else array for i, array in enumerate(arrays)]
            return (attention.forward(*given, 0.5, causal)[0] * do).sum()

        assert by_differences(f, arrays[position], direction) == pytest.approx(
            float((gradient * direction).sum()), rel=1e-5, abs=1e-7
        )
