"""Arguments of the sweeps: every exponent with random significands, and critical ranges.

Critical are the neighborhoods of points where a function or its implementation changes, and the
ranges in which the function varies.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def every_exponent(rng: np.random.Generator, dtype: Any, each: int) -> Array:
    """Finite numbers of both signs: ``each`` of every exponent, subnormals among them."""
    info = np.finfo(dtype)
    word = np.dtype(f"u{info.bits // 8}")
    exponents = np.repeat(np.arange(0, (1 << (info.bits - 1 - info.nmant)) - 1), each)
    fractions = rng.integers(0, 1 << info.nmant, len(exponents))
    bits = (exponents.astype(word) << word.type(info.nmant)) | fractions.astype(word)
    x = bits.view(dtype)
    return np.concatenate([x, -x])


def around(points: Any, dtype: Any, steps: int = 2) -> Array:
    """Points with their nearest neighbours on both sides."""
    start = np.asarray(points, np.float64).astype(dtype)
    found, up, down = [start], start, start
    for _ in range(steps):
        up, down = np.nextafter(up, dtype(math.inf)), np.nextafter(down, dtype(-math.inf))
        found += [up, down]
    return np.concatenate(found)


def _thresholds(dtype: Any) -> list[float]:
    """Arguments at which exponentials overflow or underflow, or formats end."""
    wide = np.dtype(dtype).itemsize == 8
    info = np.finfo(dtype)
    most, smallest, tiny = float(info.max), float(info.tiny), float(info.smallest_subnormal)
    found = [
        math.log(most),
        math.log(smallest),
        math.log(tiny) - 0.69,
        math.log2(most),
        math.log2(smallest),
        math.log2(tiny) - 1,
    ]
    found += [
        math.log10(most),
        math.log10(smallest),
        math.log10(tiny) - 0.3,
        math.log(most) + math.log(2),
        math.sqrt(most),
        math.sqrt(smallest),
    ]
    found += [
        most,
        smallest,
        tiny,
        most / 2,
        most / 4,
        smallest * 2,
        float(info.eps),
        float(info.eps) / 2,
    ]
    found += [171.624376956302, 178.0, 185.0] if wide else [35.04, 41.0, 43.0]
    found += [2.0**k for k in range(63)] + [2.0**-k for k in range(1, 60)]
    return found


#: Points where functions change, or the way to one does: cut-overs of polynomials, zeros, ends of
#: domains.
_POINTS = (
    *(k / 8 for k in range(81)),
    *(k / 4 * math.pi for k in range(1, 41)),
    *(float(k) for k in range(11, 200)),
    *(k + 0.5 for k in range(10, 180)),
    *(1e-300, 1e-200, 1e-155, 5e-155, 1e-154, 1e-100, 1e-20, 1e-10, 1e-5, 1e-3, 1e-2),
    *(1e2, 1e3, 1e5, 1e10, 1e15, 1e20, 1e25, 1e30, 1e100, 1e200, 1e300),
    *(
        3.93,
        5.95,
        0.9375,
        0.625,
        1.4616321449683623,
        2.404825557695773,
        3.8317059702075125,
        0.8935769662791675,
        2.197141326031017,
    ),
    *(
        2.4570247382208006,
        2.7476826467274127,
        3.1435808883499727,
        9.99999999999,
        700.0,
        704.0,
        709.0,
        710.0,
        713.0,
        745.0,
        746.0,
        80.0,
        88.0,
        89.0,
    ),
    *(26.5, 26.543, 27.2, 27.3, 9.19, 9.3, 10.05, 10.06, 14.1, 37.5, 38.4, 38.5, 104.0, 103.0),
)
_RANGES = ((-1.0, 1.0), (-4.0, 4.0), (-20.0, 20.0), (-100.0, 100.0), (-760.0, 760.0))


def one(rng: np.random.Generator, dtype: Any, *, each: int, count: int) -> Array:
    """Finite arguments of a function of one number, without repetition."""
    points = np.array([*_POINTS, *_thresholds(dtype)])
    with np.errstate(all="ignore"):
        near = around(np.concatenate([points, -points]), dtype)
        far = [rng.uniform(low, high, count).astype(dtype) for low, high in _RANGES]
        near_one = [
            sign * (1 + s * 2.0 ** rng.uniform(-52, -1, count // 2))
            for sign in (1, -1)
            for s in (1, -1)
        ]
        x = np.concatenate([every_exponent(rng, dtype, each), near, *far, *near_one]).astype(dtype)
    x = x[np.isfinite(x)]
    bits = np.unique(x.view(f"u{x.itemsize}"))
    return np.asarray(bits.view(dtype))


#: Numbers of which functions of several take every pair.
_SPECIAL = (
    0.0,
    1.0,
    0.5,
    2.0,
    3.0,
    1.5,
    7.5,
    127.0,
    128.0,
    1023.0,
    1024.0,
    0.1,
    1e10,
    1e-10,
    1e30,
    1e-30,
    math.pi,
    2.0**31,
    2.0**63,
    math.inf,
    math.nan,
)


def special(dtype: Any) -> Array:
    """Zeros, infinities, NaN, ends of the format and of its whole numbers, with both signs."""
    info = np.finfo(dtype)
    most, smallest, tiny, unit, whole = (
        float(info.max),
        float(info.tiny),
        float(info.smallest_subnormal),
        float(info.eps),
        2.0**info.nmant,
    )
    more = (
        most,
        most / 2,
        smallest,
        tiny,
        3 * tiny,
        smallest - tiny,
        unit,
        1 + unit,
        1 - unit / 2,
        whole,
        whole + 1,
        2 * whole,
        2 * whole - 1,
    )
    x = np.array([*_SPECIAL, *more], dtype)
    return np.concatenate([x, -x])


def several(rng: np.random.Generator, dtype: Any, operands: int, count: int) -> list[Array]:
    """Operands of several arguments: pairs of special numbers, any exponents, and close sizes.

    There are also small numbers and integers; further operands are a shuffle of those.
    """
    few, every = special(dtype), every_exponent(rng, dtype, 1)
    a, b = rng.choice(every, count), rng.choice(every, count)
    with np.errstate(all="ignore"):
        near = (
            a.astype(np.longdouble)
            * np.exp2(rng.integers(-40, 40, count))
            * rng.uniform(-2, 2, count)
        )
        small = [
            rng.choice([-1, 1], count) * np.exp2(rng.uniform(-20, 20, count)) for _ in range(2)
        ]
        whole = [rng.integers(-50, 50, count) for _ in range(2)]
        x = np.concatenate([np.repeat(few, len(few)), a, a, small[0], whole[0], small[0]]).astype(
            dtype
        )
        y = np.concatenate([np.tile(few, len(few)), b, near, small[1], whole[1], whole[1]]).astype(
            dtype
        )
    order = rng.permutation(len(x))
    return [x, y, x[order], y[order]][:operands]
