"""Arguments of the elementary functions.

They are random ones over every exponent, ones in the range where a function varies, and ones whose
results a standard defines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ranges = tuple[tuple[float, float], ...]
INF, NAN = math.inf, math.nan


@dataclass(frozen=True)
class Arguments:
    """Test arguments of a function of one number.

    Attributes:
        single, double: ranges where the function varies, of f32 and f64.
        settled: arguments and results that IEEE 754 or C's Annex F defines, or that are numbers;
            the sign of zero counts.
        double_nearest: the function of a Python float, to 53 bits or so: exact enough to judge f32
            and narrower.
        positive: the domain is the numbers above 0.
    """

    single: Ranges
    double: Ranges
    settled: tuple[tuple[float, float], ...]
    double_nearest: Callable[[float], float]
    positive: bool = False


#: name of the operation -> its arguments
ARGUMENTS: dict[str, Arguments] = {
    "exp": Arguments(
        ((-104, 89), (-1, 1), (-1e-4, 1e-4), (87, 89), (-104, -87)),
        ((-746, 710), (-1, 1), (-1e-8, 1e-8), (-746, -708)),
        (
            (0.0, 1.0),
            (-0.0, 1.0),
            (INF, INF),
            (-INF, 0.0),
            (1e4, INF),
            (-1e4, 0.0),
            (3e38, INF),
            (-3e38, 0.0),
            (NAN, NAN),
        ),
        math.exp,
    ),
    "exp2": Arguments(
        ((-151, 129), (-1, 1), (-1e-4, 1e-4), (-151, -125)),
        ((-1076, 1025), (-1, 1), (-1e-8, 1e-8), (-1076, -1021)),
        (
            (0.0, 1.0),
            (-0.0, 1.0),
            (1.0, 2.0),
            (10.0, 1024.0),
            (-3.0, 0.125),
            (-126.0, 2.0**-126),
            (INF, INF),
            (-INF, 0.0),
            (1e4, INF),
            (-1e4, 0.0),
            (NAN, NAN),
        ),
        math.exp2,
    ),
    "log": Arguments(
        ((0, 4), (0.99, 1.01), (0, 1e-38), (0, 3e38)),
        ((0, 4), (0.99, 1.01), (0, 2e-308), (0, 1.7e308)),
        (
            (1.0, 0.0),
            (0.0, -INF),
            (-0.0, -INF),
            (INF, INF),
            (-INF, NAN),
            (-1.0, NAN),
            (-1e-40, NAN),
            (NAN, NAN),
        ),
        math.log,
        positive=True,
    ),
    "log2": Arguments(
        ((0, 4), (0.99, 1.01), (0.7, 0.71), (1.41, 1.42), (0, 1e-38)),
        ((0, 4), (0.99, 1.01), (0.7, 0.71), (1.41, 1.42), (0, 2e-308)),
        (
            (1.0, 0.0),
            (8.0, 3.0),
            (0.125, -3.0),
            (2.0**-140, -140.0),
            (0.0, -INF),
            (-0.0, -INF),
            (INF, INF),
            (-INF, NAN),
            (-1.0, NAN),
            (NAN, NAN),
        ),
        math.log2,
        positive=True,
    ),
    "sin": Arguments(
        ((-10, 10), (-1e3, 1e3), (-1e9, 1e9)),
        ((-10, 10), (-1e9, 1e9), (-1e22, 1e22)),
        ((0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)),
        math.sin,
    ),
    "cos": Arguments(
        ((-10, 10), (-1e3, 1e3), (-1e9, 1e9)),
        ((-10, 10), (-1e9, 1e9), (-1e22, 1e22)),
        ((0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)),
        math.cos,
    ),
    "tanh": Arguments(
        ((-10, 10), (-1, 1), (0.6, 0.65), (6.5, 9.5)),
        ((-22, 22), (-1, 1), (0.6, 0.65), (17, 20)),
        (
            (0.0, 0.0),
            (-0.0, -0.0),
            (INF, 1.0),
            (-INF, -1.0),
            (100.0, 1.0),
            (-100.0, -1.0),
            (1e38, 1.0),
            (NAN, NAN),
        ),
        math.tanh,
    ),
    "erf": Arguments(
        ((-4, 4), (-1, 1), (0.9, 1.0), (3.4, 4.1)),
        ((-6.5, 6.5), (-1.2, 1.2), (0.95, 1.05), (5, 6)),
        (
            (0.0, 0.0),
            (-0.0, -0.0),
            (INF, 1.0),
            (-INF, -1.0),
            (50.0, 1.0),
            (-50.0, -1.0),
            (1e38, 1.0),
            (NAN, NAN),
        ),
        math.erf,
    ),
    "rsqrt": Arguments(
        ((0, 4), (0, 3e38), (0, 1e-38)),
        ((0, 4), (0, 1e300), (0, 2e-308)),
        (
            (1.0, 1.0),
            (4.0, 0.5),
            (2.0**-126, 2.0**63),
            (0.0, INF),
            (-0.0, -INF),
            (INF, 0.0),
            (-INF, NAN),
            (-1.0, NAN),
            (NAN, NAN),
        ),
        lambda x: 1 / math.sqrt(x),
        positive=True,
    ),
    "sqrt": Arguments(
        ((0, 4), (0, 3e38), (0, 1e-38)),
        ((0, 4), (0, 1e300), (0, 2e-308)),
        (
            (0.0, 0.0),
            (-0.0, -0.0),
            (4.0, 2.0),
            (2.25, 1.5),
            (2.0**-126, 2.0**-63),
            (INF, INF),
            (-INF, NAN),
            (-1.0, NAN),
            (-1e-40, NAN),
            (NAN, NAN),
        ),
        math.sqrt,
        positive=True,
    ),
}


def any_bits(rng: np.random.Generator, dtype: Any, count: int) -> Array:
    """Finite numbers of every exponent: patterns of bits."""
    bits = rng.integers(
        0, 1 << 8 * np.dtype(dtype).itemsize, 2 * count, dtype=f"u{np.dtype(dtype).itemsize}"
    )
    numbers = bits.view(dtype)
    return numbers[np.isfinite(numbers)][:count]


def random_arguments(rng: np.random.Generator, name: str, dtype: Any, count: int) -> Array:
    """``count`` numbers of any bits, and ``count`` of each lively range."""
    row = ARGUMENTS[name]
    wide = np.dtype(dtype).itemsize == 8
    parts = [
        any_bits(rng, dtype, count),
        *(rng.uniform(low, high, count) for low, high in (row.double if wide else row.single)),
    ]
    x = np.concatenate(parts).astype(dtype)
    return np.asarray(np.abs(x[x != 0]) if row.positive else x)


def large_angles(dtype: Any) -> Array:
    """Angles that are hard to reduce.

    They are powers of two, numbers next to multiples of pi/2, the maximum, and known worst cases.
    """
    wide = np.dtype(dtype).itemsize == 8
    powers = np.exp2(np.arange(0, 1024 if wide else 128, 3 if wide else 1))
    multiples = (
        np.pi
        / 2
        * np.concatenate(
            [
                np.arange(1, 200),
                np.exp2(np.arange(8, 60)),
                np.exp2(np.arange(8, 60)) + 1,
                3.0 ** np.arange(5, 36),
            ]
        )
    )
    worst = [6381956970095103.0 * 2.0**797] if wide else [16367173.0 * 2.0**72, 8519956.0 * 2.0**25]
    worst.append(float(np.finfo(dtype).max))
    x = np.concatenate([powers, multiples, worst]).astype(dtype)
    return np.concatenate([x, -x])


def double_nearest(name: str, x: Array) -> NDArray[np.float64]:
    """Evaluate a function in double precision, which is exact enough to judge f32 and narrower.

    Some arguments may be NaN or outside of the domain.
    """
    row = ARGUMENTS[name]
    settled = {
        (argument, math.copysign(1, argument)): result
        for argument, result in row.settled
        if argument == argument
    }

    def one(value: float) -> float:
        if value != value:
            return NAN
        if value == 0 or math.isinf(value):
            return settled[value, math.copysign(1, value)]
        if row.positive and value < 0:
            return NAN
        try:
            return row.double_nearest(value)
        except OverflowError:
            return INF

    return np.array([one(value) for value in np.asarray(x, np.float64).ravel().tolist()]).reshape(
        np.shape(x)
    )
