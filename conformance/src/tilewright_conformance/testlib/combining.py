"""Combine functions of reductions and scans, kernels that run them, and error bounds of additions.

The kernels take a tile of any shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import INTEGERS, SIGNED, spacing
from tilewright_conformance.testlib.tiles import positions

Array = NDArray[Any]
Shape = tuple[int, ...]

#: Half a unit in the last place, as a part of the value.


def at_least_32_bits(name: str) -> str:
    """The type in which integers of a type are summed; floats keep theirs."""
    if name == "bool":
        return "uint32"
    if name not in INTEGERS or name.endswith(("32", "64")):
        return name
    return "int32" if name in SIGNED else "uint32"


def extremum_type(name: str) -> str:
    """The type of the maximum or minimum of numbers of a type."""
    if name in ("float16", "bfloat16"):
        return "float32"
    return "int32" if name in ("int8", "int16", "uint8", "uint16") else name


def sum_bound(x: Array, axis: int | None, name: str) -> Array:
    """Error bound of adding up numbers along an axis.

    Each of n terms is rounded n - 1 times at most, in fp32 where the type is narrower, and the
    total once more.
    """
    count = x.size if axis is None else x.shape[axis]
    half = min((spacing(name) / 2), (spacing("float32") / 2))
    total = np.abs(x).sum(axis)
    rounded = (spacing(name) / 2) * np.abs(x.sum(axis)) if half < (spacing(name) / 2) else 0.0
    return np.asarray(1.01 * (count * half * total + rounded))


def running_bound(x: Array, axis: int, name: str) -> Array:
    """Error bound of running totals along an axis, in the type itself."""
    count = np.arange(1, x.shape[axis] + 1).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return np.asarray(1.01 * count * (spacing(name) / 2) * np.abs(x).cumsum(axis))


# ---- combinations: all associative and commutative but the last ones


@tw.jit
def add(a, b):
    return a + b


@tw.jit
def multiply(a, b):
    return a * b


@tw.jit
def either(a, b):
    return a | b


@tw.jit
def both(a, b):
    return a & b


@tw.jit
def circle(a, b):
    """(a + 1) * (b + 1) - 1: 0 is its neutral element, and -1 stays."""
    return a * b + a + b


@tw.jit
def complex_multiply(a, b, c, d):
    return a * c - b * d, a * d + b * c


@tw.jit
def minimum_and_maximum(low, high, other_low, other_high):
    return tl.minimum(low, other_low), tl.maximum(high, other_high)


@tw.jit
def merge_moments(mean_a, square_a, count_a, mean_b, square_b, count_b):
    """Chan, Golub and LeVeque's update of a mean and a sum of squared deviations."""
    delta = mean_b - mean_a
    count = count_a + count_b
    share = tl.where(count == 0, 0.0, count_b / count)
    return mean_a + delta * share, square_a + square_b + delta * delta * count_a * share, count


@tw.jit
def affine(a1, b1, a2, b2):
    """First ``a1 t + b1``, then ``a2 t + b2``: associative, and the order counts."""
    return a1 * a2, b1 * a2 + b2


@tw.jit
def latest(a, b):
    """The later value that is not 0: associative, and the order counts."""
    return tl.where(b != 0, b, a)


@tw.jit
def segmented(value_a, start_a, value_b, start_b):
    """Addition that begins anew at marks."""
    return tl.where(start_b != 0, value_b, value_a + value_b), start_a | start_b


# ---- kernels


@tw.jit
def put(out, y):
    """Store a scalar, or a tile in row-major order."""
    if len(y.shape) == 0:
        tl.store(out, y)
    else:
        tl.store(out + positions(y.shape), y)


@tw.jit
def reduced(
    x_ptr,
    out,
    SHAPE: tl.constexpr,
    FUNCTION: tl.constexpr,
    AXIS: tl.constexpr,
    KEEP: tl.constexpr,
    TYPE: tl.constexpr,
):
    y = FUNCTION(tl.load(x_ptr + positions(SHAPE)), AXIS, keep_dims=KEEP)
    tl.static_assert(y.dtype == TYPE)
    put(out, y)


@tw.jit
def reduced_with_positions(
    x_ptr,
    out,
    places,
    SHAPE: tl.constexpr,
    FUNCTION: tl.constexpr,
    AXIS: tl.constexpr,
    KEEP: tl.constexpr,
    LEFT: tl.constexpr,
):
    x = tl.load(x_ptr + positions(SHAPE))
    value, place = FUNCTION(
        x, AXIS, return_indices=True, return_indices_tie_break_left=LEFT, keep_dims=KEEP
    )
    tl.static_assert(place.dtype == tl.int32)
    put(out, value)
    put(places, place)


def extent_of(shape: Shape, axis: int | None, keep: bool) -> Shape:
    """The shape of a result, ``(1,)`` for a scalar."""
    if axis is None:
        return (1,) * len(shape) if keep else (1,)
    axis %= len(shape)
    kept = tuple(1 if i == axis else extent for i, extent in enumerate(shape) if keep or i != axis)
    return kept or (1,)
