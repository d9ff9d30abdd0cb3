"""Numbers of every type for kernels: random and special values, and comparison of results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

from tilewright_conformance.oracles.dtypes import FLOATS, UNSIGNED, Array, kind
from tilewright_conformance.suite.session import Session


def unset(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """An array for results, of bytes that are rarely 1: it reveals a kernel that stores nothing."""
    kept = np.dtype(dtype)
    count = int(np.prod(shape))
    return np.full(count * kept.itemsize, 0x5B, np.uint8).view(kept).reshape(shape)


def draw(
    rng: np.random.Generator, name: str, shape: int | tuple[int, ...], limit: int = 40
) -> Array:
    """Random numbers, some of them equal.

    They are integers of a magnitude up to ``limit``, or floats that are multiples of an eighth, up
    to an eighth of it.
    """
    if name in FLOATS:
        return (rng.integers(-limit, limit + 1, shape) / 8).astype(kind(name))
    if name == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    return rng.integers(0 if name in UNSIGNED else -limit, limit + 1, shape).astype(name)


def wide(rng: np.random.Generator, name: str, shape: int | tuple[int, ...]) -> Array:
    """Numbers of the whole range of an integer type with its ends, or floats of many magnitudes."""
    count = int(np.prod(shape))
    if name == "bool":
        return draw(rng, name, shape)
    if name in FLOATS:
        numbers = rng.standard_normal(count) * np.exp2(rng.integers(-6, 7, count))
        return numbers.astype(kind(name)).reshape(shape)
    ends = np.iinfo(name)
    values = rng.integers(ends.min, ends.max, count, dtype=name, endpoint=True)
    some = np.array([ends.min, ends.max, 0, 1, ends.max - 1, ends.min + 1, ends.max // 2], name)
    chosen = rng.random(count) < 0.3
    values[chosen] = some[rng.integers(0, len(some), int(chosen.sum()))]
    return values.reshape(shape)


def special(name: str) -> Array:
    """Zeros of both signs, infinities, NaN, smallest and largest floats, and usual numbers."""
    about = ml_dtypes.finfo(kind(name))
    smallest, largest, normal = (
        float(number) for number in (about.smallest_subnormal, about.max, about.smallest_normal)
    )
    few = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1.0,
        -1.0,
        0.5,
        -2.5,
        3.0,
        largest,
        -largest,
        smallest,
        -smallest,
        normal,
        -normal,
        normal - smallest,
    ]
    return np.array(few).astype(kind(name))


def check(session: Session, found: Array, expected: ArrayLike, **rules: Any) -> None:
    """``session.check`` for arrays of any number type; it compares bf16 bits by value."""
    if found.dtype == ml_dtypes.bfloat16:
        wanted = np.asarray(expected)
        session.check(found.view(np.uint16), wanted.astype(np.float64), type_="bf16", **rules)
    else:
        session.check(found, expected, **rules)
