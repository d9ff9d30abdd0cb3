"""Fused multiply-add in every float format, rounded once."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.types import F64, FloatType
from tilewright.reference.numerics import Array, decode, round_to_odd, rounded


def fma(a: Array, b: Array, c: Array, format_: FloatType) -> Array:
    """``a * b + c`` of kept values, rounded once to their format."""
    if format_ is F64:
        return _fma64(*np.broadcast_arrays(a, b, c))
    a, b, c = (np.asarray(decode(x, format_)).astype(np.float64) for x in (a, b, c))
    # Formats of 32 bits and less: a multiplication of two is exact in float64, and the sum is
    # rounded to odd before it is rounded to the format.
    rounded_mul = a * b
    total, error = two_sum(rounded_mul, c)
    return rounded(round_to_odd(total, error), format_)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its error, exactly: ``a + b == total + error`` (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_mul(a: Array, b: Array) -> tuple[Array, Array]:
    """Multiply exactly: the rounded result and its error, short of overflow and underflow.

    This is Dekker's algorithm, with Veltkamp's splitting.
    """
    result = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return result, ((a_high * b_high - result) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0  # 2**27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def _fma64(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[np.float64]:
    """Boldo and Melquiond's algorithm where no part can overflow or underflow.

    The few lanes left use rational arithmetic.
    """
    rounded_mul, mul_error = two_mul(a, b)
    high, low = two_sum(c, mul_error)
    sum_high, sum_low = two_sum(rounded_mul, high)
    result = sum_high + round_to_odd(*two_sum(sum_low, low))
    plain = _moderate(a) & _moderate(b) & (_moderate(c) | (c == 0.0))
    if plain.all():
        return np.asarray(result, dtype=np.float64)
    result = np.array(result, dtype=np.float64, ndmin=1)
    a, b, c, plain = (x.reshape(result.shape) for x in (a, b, c, plain))
    for index in zip(*np.nonzero(~plain), strict=True):
        result[index] = _fma_scalar(float(a[index]), float(b[index]), float(c[index]))
    return result.reshape(rounded_mul.shape)


def _moderate(x: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of magnitudes from 2**-400 to 2**400.

    Results of multiplication and their errors stay in the normal range for them.
    """
    magnitude = np.abs(x)
    return (magnitude >= 2.0**-400) & (magnitude <= 2.0**400)


def _fma_scalar(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        # A finite result of multiplication that overflows here must not meet an infinite c as an
        # infinity of its own.
        return (
            c
            if math.isfinite(a) and math.isfinite(b)
            else float(np.float64(a) * np.float64(b) + np.float64(c))
        )
    if a == 0.0 or b == 0.0:
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        # Equal signs cannot cancel: the exact zero of a sum of opposite signs is positive.
        return 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
