"""Rounding to integers, and correctly rounded square roots."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tilewright.language as tl
from tilewright.language.extra import libdevice
from tilewright_conformance.cases.math.math.fused_arithmetic import WIDE
from tilewright_conformance.cases.math.math.math_case import Array, applied, math_case
from tilewright_conformance.oracles.dtypes import storage
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.math_values import (
    ARGUMENTS,
    any_bits,
)


def _rounding_arguments(session: Session, type_: str) -> Array:
    dtype = storage(type_)
    fraction = np.finfo(dtype).nmant
    large = [
        2.0 ** (fraction - 1) + 0.5,
        2.0**fraction - 0.5,
        2.0**fraction + 1,
        2.0 ** (fraction + 2),
        np.inf,
    ]
    whole = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.5, 8.0, *large])
    parts = [
        whole,
        -whole,
        np.nextafter(whole.astype(dtype), 0),
        session.rng.uniform(-1000, 1000, 500),
        any_bits(session.rng, dtype, 500),
        [np.nan],
    ]
    return np.concatenate(parts).astype(dtype)


_ROUNDINGS: dict[str, tuple[Any, Callable[[Array], Array]]] = {
    "floor": (tl.floor, np.floor),
    "ceil": (tl.ceil, np.ceil),
    "trunc": (libdevice.trunc, np.trunc),
    "rint": (libdevice.rint, np.rint),
    "abs": (tl.abs, np.abs),
}


def rounding_cases() -> Iterator[Case]:
    def body(name: str, type_: str, session: Session) -> None:
        function, wanted = _ROUNDINGS[name]
        x = _rounding_arguments(session, type_)
        session.check(applied(session, function, x), wanted(x))

    for name in _ROUNDINGS:
        for type_ in WIDE:
            yield math_case(
                name,
                type_,
                "values",
                functools.partial(body, name, type_),
                quick=type_ == "f32" and name in ("floor", "rint"),
                source="NumPy",
            )
    yield math_case("sqrt_rn", "f32", "values", _root_rounded, quick=True, source="exact fractions")
    yield math_case("sqrt_rn", "f32", "special", _root_special, source="IEEE 754")


def _root_rounded(session: Session) -> None:
    x = np.abs(
        np.concatenate(
            [
                any_bits(session.rng, np.float32, 3000),
                session.rng.uniform(0, 4, 2000).astype(np.float32),
            ]
        )
    )
    # The root of a 24-bit number in 53 bits is never so near the middle of two that another
    # rounding goes wrong.
    session.check(applied(session, tl.sqrt_rn, x), np.sqrt(x.astype(np.float64)).astype(np.float32))


def _root_special(session: Session) -> None:
    arguments, results = (
        np.array(side, np.float32) for side in zip(*ARGUMENTS["sqrt"].settled, strict=True)
    )
    session.check(applied(session, tl.sqrt_rn, arguments), results)
