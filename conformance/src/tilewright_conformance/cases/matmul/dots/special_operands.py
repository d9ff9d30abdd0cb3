"""Matmuls of infinities, NaN, subnormals and extreme integers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright_conformance.cases.matmul.dots.dot_case import dot_case
from tilewright_conformance.cases.matmul.dots.single_matmuls import launch_matmul
from tilewright_conformance.oracles import matrix
from tilewright_conformance.oracles.dtypes import storage
from tilewright_conformance.oracles.matrix import Operand
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session


def special_cases() -> Iterator[Case]:
    for type_, result in (
        ("f16", "f32"),
        ("f16", "f16"),
        ("bf16", "f32"),
        ("f32", "f32"),
        ("f64", "f64"),
        ("f8e5m2", "f32"),
        ("f8e4m3fn", "f32"),
    ):
        body = functools.partial(_special, type_, result)
        yield dot_case(
            f"special/{type_}/into_{result}",
            body,
            (type_, result),
            {(type_, result)},
            (16, 16, 32),
            quick=True,
        )
    yield dot_case(
        "special/f16/subnormal", _subnormal, ("f16", "f32"), {("f16", "f32")}, (16, 16, 32)
    )
    for type_ in ("i8", "u8"):
        body = functools.partial(_extreme, type_)
        yield dot_case(
            f"special/{type_}/extremes",
            body,
            (type_, "i32"),
            {(type_, "i32")},
            (16, 16, 64),
            quick=True,
        )


#: the bits of (NaN, infinity, the maximum) where NumPy has no such type; 0 where the format has
#: none
_BITS = {
    "bf16": (0x7FC0, 0x7F80, 0x7F7F),
    "f8e5m2": (0x7F, 0x7C, 0x7B),
    "f8e4m3fn": (0x7F, 0, 0x7E),
}


def _special(type_: str, result: str, session: Session) -> None:
    a, b = matrix.few_bits(session.rng, type_, 16, 32), matrix.few_bits(session.rng, type_, 32, 16)
    c = matrix.few_bits(session.rng, result, 16, 16)
    left, right = matrix.bits_of(a), matrix.bits_of(b)
    nan, infinity, maximum = _BITS.get(type_, (np.nan, np.inf, _maximum(type_)))
    right[:, 5] = 0
    left[1, 9] = nan
    if infinity:
        left[2, 4] = infinity
        left[3, [0, 6]] = infinity, _negated(type_, infinity)
        right[8, 11] = infinity
    left[4], right[7] = (
        0,
        matrix.encoded(type_, np.array(4.0)).given
        if type_ not in _BITS
        else matrix.bits_of(matrix.encoded(type_, np.array(4.0))),
    )
    left[4, 7] = maximum
    c.given[6, 3], c.given[7, 3], c.given[8] = np.nan, np.inf, -np.inf
    a, b, c = (
        _revalued(type_, a),
        _revalued(type_, b),
        Operand(c.given, c.given.astype(np.float64)),
    )
    launch_matmul(session, a, b, c, result, rounded=False, out="f16" if result == "f16" else "")


def _negated(type_: str, pattern: Any) -> Any:
    return -pattern if type_ not in _BITS else pattern | 1 << (15 if type_ == "bf16" else 7)


def _maximum(type_: str) -> Any:
    return np.finfo(storage(type_)).max if type_ not in _BITS else 0


def _revalued(type_: str, operand: Operand) -> Operand:
    """An operand whose patterns were changed, with the values that they stand for now."""
    bits = matrix.bits_of(operand)
    return Operand(
        operand.given, bits.astype(np.float64) if type_ not in _BITS else matrix.worth(type_, bits)
    )


def _subnormal(session: Session) -> None:
    a = matrix.encoded("f16", session.rng.integers(-9, 10, (16, 32)) * 2.0**-24)
    launch_matmul(
        session,
        a,
        matrix.whole(session.rng, "f16", 32, 16),
        matrix.encoded("f32", np.zeros((16, 16))),
        "f32",
        rounded=False,
    )


def _extreme(type_: str, session: Session) -> None:
    """Multiply the maximum and minimum integers, with results close to the end of int32.

    The third operand brings them there, as close as they may come in any order.
    """
    limits = np.iinfo(matrix.encoded(type_, np.zeros(())).given.dtype)
    a, b = (
        matrix.encoded(type_, session.rng.choice([limits.min, limits.max], shape))
        for shape in ((16, 64), (64, 16))
    )
    room = np.iinfo(np.int32).max - np.matmul(np.abs(a.values), np.abs(b.values))
    launch_matmul(session, a, b, matrix.encoded("i32", room), "i32", rounded=False)
