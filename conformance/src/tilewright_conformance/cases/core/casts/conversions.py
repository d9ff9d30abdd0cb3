"""Expected conversions of numbers, and decisive numbers: ties, ends of ranges, their neighbors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright_conformance.oracles.dtypes import FLOATS, INTEGERS, float_type, kind
from tilewright_conformance.oracles.formats import FORMATS
from tilewright_conformance.testlib.numbers import special

Array = NDArray[Any]

#: (bits of the fraction, largest number) of the float types


def cast(x: Array, target: str, rounding: str = "rtne") -> Array:
    """Cast ``x``: integers in their storage, floats as float64 (float32 for float32)."""
    if target == "bool":
        with np.errstate(invalid="ignore"):
            return np.asarray(x != 0)
    if target in INTEGERS:
        if x.dtype.kind in "iub":
            return x.astype(target)  # NumPy's integers wrap around
        return np.array([int(value) for value in x.astype(np.float64).tolist()], object).astype(
            target
        )
    if x.dtype.kind in "iu":
        return _from_integers(x, target)
    with np.errstate(invalid="ignore"):
        return from_floats(x.astype(np.float64), target, rounding)


def from_floats(x: NDArray[np.float64], target: str, rounding: str = "rtne") -> Array:
    """float64 numbers rounded once."""
    if target in FORMATS:
        return FORMATS[target].rounded(x, rounding)
    if target == "float64":
        return x
    with np.errstate(all="ignore"):
        found = x.astype(np.float32)
        if rounding == "rtz":
            found = np.where(
                np.isfinite(x) & (np.abs(found.astype(np.float64)) > np.abs(x)),
                np.nextafter(found, np.float32(0)),
                found,
            )
    return found


def _from_integers(x: Array, target: str) -> Array:
    if target == "float64":
        return np.array([float(value) for value in x.tolist()])
    return from_floats(np.array([_odd(value) for value in x.tolist()]), target)


def _odd(value: int) -> float:
    """Convert an integer to float64, rounding to odd where 53 bits do not hold it.

    A later rounding then has the correct result.
    """
    size = abs(value)
    dropped = max(0, size.bit_length() - 53)
    kept = size >> dropped
    if kept << dropped != size:
        kept |= 1
    return float(np.ldexp(-kept if value < 0 else kept, dropped))


def values(rng: np.random.Generator, source: str, target: str) -> Array:
    """Numbers of a type for which a cast is defined, chosen where it is hard."""
    if source == "bool":
        return np.array([False, True, True, False])
    if source in INTEGERS:
        return _integers(rng, source, target)
    if target in INTEGERS:
        return _to_integers(rng, source, target)
    return _to_floats(rng, source, target)


def _integers(rng: np.random.Generator, source: str, target: str) -> Array:
    """Ends of the range, powers of two and neighbors, ties of a float type, others of all sizes."""
    ends = np.iinfo(source)
    powers = [1 << bit for bit in range(ends.bits)]
    numbers = [
        0,
        ends.min,
        ends.max,
        *(power + off for power in powers for off in (-2, -1, 0, 1, 2)),
    ]
    fraction = float_type(target).mantissa if target in FLOATS else 0
    for power in powers[fraction + 1 :]:
        unit = power >> fraction
        numbers += [
            power + unit * place + unit // 2 + off for place in (0, 1, 6, 7) for off in (-1, 0, 1)
        ]
    numbers += [int(rng.integers(0, 1 << 62)) >> int(rng.integers(0, 62)) for _ in range(200)]
    numbers += [-number for number in numbers]
    maximum = int(FORMATS[target].maximum) if target in FORMATS else 1 << 70
    chosen = sorted(
        {number for number in numbers if ends.min <= number <= ends.max and abs(number) <= maximum}
    )
    return np.array(chosen, object).astype(source)


def _to_integers(rng: np.random.Generator, source: str, target: str) -> Array:
    """Floats whose integral part is in the range, close to an integer or to the range's ends."""
    ends = np.iinfo(target)
    steps = kind(source)
    whole = [
        0.0,
        1.0,
        2.0,
        3.0,
        7.0,
        100.0,
        127.0,
        128.0,
        255.0,
        *(2.0**bit for bit in range(8, 64)),
        float(ends.min),
        float(ends.max),
    ]
    with np.errstate(all="ignore"):
        near = np.array([*whole, *(-number for number in whole)]).astype(steps)
        around = np.concatenate(
            [near, _next(near, 1), _next(near, -1), near + steps.type(0.5), near - steps.type(0.5)]
        )
        some = (rng.standard_normal(600) * np.exp2(rng.integers(-4, ends.bits, 600))).astype(steps)
    both = np.concatenate([around, some, special(source)])
    wide = both.astype(np.float64)
    inside = np.isfinite(wide)
    inside &= np.array(
        [ends.min <= int(value) <= ends.max for value in np.where(inside, wide, 0.0).tolist()]
    )
    return np.asarray(both[inside])


def _to_floats(rng: np.random.Generator, source: str, target: str) -> Array:
    """Every number of a 16-bit type; of wider ones decisive numbers and random bit patterns."""
    if source in ("float16", "bfloat16"):
        return np.arange(1 << 16, dtype=np.uint16).view(kind(source))
    bits = rng.integers(0, 1 << 62, 2048, dtype=np.uint64)
    anything = (
        (bits >> np.uint64(30) if source == "float32" else bits << np.uint64(2))
        .astype(f"uint{kind(source).itemsize * 8}")
        .view(source)
    )
    numbers = np.concatenate([anything, special(source), decisive(rng, source, target)])
    return numbers


def decisive(rng: np.random.Generator, source: str, target: str) -> Array:
    """Numbers of a target, ties between them, and their neighbors in the source's type.

    The ends of the target's range are among them.
    """
    if target in FORMATS:
        known = FORMATS[target].worth(np.arange(1 << FORMATS[target].bits))
        known = np.unique(known[np.isfinite(known) & (known >= 0)])
        if len(known) > 2048:
            ends = np.concatenate([known[:64], known[-64:], known[1000:1100]])
            known = np.unique(np.concatenate([ends, rng.choice(known, 1500, replace=False)]))
    elif target == "float32":
        some = rng.integers(0, 0x7F800000, 1000, dtype=np.uint32)
        known = (
            np.concatenate(
                [
                    np.array(
                        [0, 1, 2, 3, 0x7FFFFF, 0x800000, 0x800001, 0x7F7FFFFE, 0x7F7FFFFF],
                        np.uint32,
                    ),
                    some,
                ]
            )
            .view(np.float32)
            .astype(np.float64)
        )
    else:
        return special(source)
    # The numbers are those of the target that follow each other, or lie further apart: the middle
    # of number and next one is what counts.
    after = _after(known, target)
    exact = np.concatenate([known, (known + after) / 2, after])
    with np.errstate(all="ignore"):
        placed = exact.astype(source)
        return np.concatenate(
            [
                sign * number
                for sign in (1, -1)
                for number in (placed, _next(placed, 1), _next(placed, -1))
            ]
        ).astype(source)


def _after(known: NDArray[np.float64], target: str) -> NDArray[np.float64]:
    """The number of the target after each one; after the maximum, the one that would follow."""
    if target == "float32":
        with np.errstate(over="ignore"):
            following = np.nextafter(known.astype(np.float32), np.float32(np.inf)).astype(
                np.float64
            )
        return np.where(np.isinf(following), 2.0**128, following)
    form = FORMATS[target]
    minimum = 1 - form.bias
    exponent = np.where(known == 0, minimum, np.maximum(np.frexp(known)[1] - 1, minimum))
    return known + np.ldexp(1.0, exponent - form.fraction)


def _next(x: Array, direction: int) -> Array:
    """The neighbours of numbers, up or down."""
    if x.dtype in (np.float32, np.float64, np.float16):
        return np.nextafter(x, x.dtype.type(direction * np.inf))
    import ml_dtypes

    return np.asarray(np.nextafter(x, ml_dtypes.bfloat16(direction * np.inf)))
