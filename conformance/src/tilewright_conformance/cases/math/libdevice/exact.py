"""Device library functions with exact results: directed rounding, conversions, bits, parts.

Each is a row of types, operands, and the expected results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from tilewright_conformance.cases.math.libdevice.directed_rounding import (
    directed_rounding,
)
from tilewright_conformance.cases.math.libdevice.exact_row import INF, MODES, NAN, Array, Row
from tilewright_conformance.cases.math.libdevice.float_parts import float_parts
from tilewright_conformance.cases.math.libdevice.integer_bits import integer_bits, reinterpretations
from tilewright_conformance.cases.math.libdevice.values import spread
from tilewright_conformance.oracles.dtypes import storage
from tilewright_conformance.oracles.rounding import rounded


def rows() -> Iterator[Row]:
    yield from directed_rounding()
    yield from _conversions()
    yield from float_parts()
    yield from integer_bits()
    yield from reinterpretations()


# ---- conversions with a stated rounding

_INTEGERS = {"int": "i32", "uint": "u32", "ll": "i64", "ull": "u64"}
_WHOLE: dict[str, Callable[[float], float]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rd": np.floor,
    "ru": np.ceil,
}


def _conversions() -> Iterator[Row]:
    for mode in MODES:
        for float_name, float_ in (("float", "f32"), ("double", "f64")):
            for name, integer in _INTEGERS.items():
                yield Row(
                    f"{float_name}2{name}_{mode}",
                    (float_,),
                    integer,
                    _floats(float_),
                    _to_integer(mode, integer),
                )
                if not (float_ == "f64" and integer in ("i32", "u32") and mode != "rn"):
                    through = ("f64",) if mode != "rn" else ()
                    yield Row(
                        f"{name}2{float_name}_{mode}",
                        (integer,),
                        float_,
                        _integers(integer),
                        _from_integer(mode, float_),
                        through,
                    )
        yield Row(f"double2float_{mode}", ("f64",), "f32", _narrowing, _narrowed(mode))


def _floats(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    few = [
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        1e30,
        -1e30,
        2.0**31,
        2.0**32,
        2.0**63,
        2.0**64,
        -(2.0**31),
        -(2.0**63),
        NAN,
        INF,
        -INF,
        0.0,
        -0.0,
    ]
    return lambda rng: [
        np.concatenate([spread(rng, 150, 0.1, 1e6), spread(rng, 50, 1e6, 1e20), few]).astype(
            storage(type_)
        )
    ]


def _to_integer(mode: str, integer: str) -> Callable[[Array], Array]:
    """Saturating, and 0 for NaN."""
    limits = np.iinfo(storage(integer))

    def one(value: float) -> int:
        if value != value:
            return 0
        return (
            limits.max
            if value == INF
            else limits.min
            if value == -INF
            else int(min(max(int(_WHOLE[mode](value)), limits.min), limits.max))
        )

    return lambda x: np.array([one(value) for value in x.tolist()], storage(integer))


def _integers(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    limits = np.iinfo(storage(type_))

    def make(rng: np.random.Generator) -> list[Array]:
        x = rng.integers(
            limits.min, limits.max, 200, dtype=storage(type_), endpoint=True
        ) >> rng.integers(0, limits.bits - 2, 200).astype(storage(type_))
        x[:6] = limits.min, limits.max, 0, 1, limits.max - 1, (1 << 24) + 1
        return [x]

    return make


def _from_integer(mode: str, type_: str) -> Callable[[Array], Array]:
    return lambda x: np.array(
        [rounded(Fraction(int(value)), mode, type_) for value in x], storage(type_)
    )


def _narrowing(rng: np.random.Generator) -> list[Array]:
    return [
        np.concatenate(
            [
                spread(rng, 150, 1e-44, 1e38),
                spread(rng, 20, 1e38, 1e300),
                [0.1, -0.1, 1 + 2.0**-24, 1 + 3 * 2.0**-24],
            ]
        )
    ]


def _narrowed(mode: str) -> Callable[[Array], Array]:
    return lambda x: np.array(
        [rounded(Fraction(value), mode, "f32") for value in x.tolist()], np.float32
    )
