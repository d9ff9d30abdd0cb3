"""Reductions by functions of one tile: multiplication, bitwise operations and truth values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.core.reductions.reduction_case import (
    AXES,
    axis_text,
    reduced,
    reduction_case,
)
from tilewright_conformance.oracles.dtypes import (
    INTEGERS,
    IR,
    Array,
    kind,
)
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import combining
from tilewright_conformance.testlib.combining import Shape
from tilewright_conformance.testlib.numbers import check, unset, wide


@tw.jit
def multiplied(x, AXIS: tl.constexpr, keep_dims: tl.constexpr):
    return tl.reduce(x, AXIS, combining.multiply, keep_dims=keep_dims)


@tw.jit
def intersection(x, AXIS: tl.constexpr, keep_dims: tl.constexpr):
    return tl.reduce(x, AXIS, combining.both, keep_dims=keep_dims)


@tw.jit
def circled(x, AXIS: tl.constexpr, keep_dims: tl.constexpr):
    return tl.reduce(x, AXIS, combining.circle, keep_dims=keep_dims)


@tw.jit
def any_positive(x, AXIS: tl.constexpr, keep_dims: tl.constexpr):
    return tl.reduce(x > 0, AXIS, combining.either, keep_dims=keep_dims)


@tw.jit
def all_positive(x, AXIS: tl.constexpr, keep_dims: tl.constexpr):
    return tl.reduce(x > 0, AXIS, combining.both, keep_dims=keep_dims)


def _circle(x: Array, axis: Any) -> Array:
    return np.multiply.reduce(x + x.dtype.type(1), axis, dtype=x.dtype) - x.dtype.type(1)


#: name -> (function, the same with NumPy)
_INTEGER: dict[str, tuple[Any, Callable[[Array, Any], Array]]] = {
    "tl.xor_sum": (tl.xor_sum, lambda x, axis: np.bitwise_xor.reduce(x, axis)),
    "tl.reduce_or": (tl.reduce_or, lambda x, axis: np.bitwise_or.reduce(x, axis)),
    "product": (multiplied, lambda x, axis: np.multiply.reduce(x, axis, dtype=x.dtype)),
    "intersection": (intersection, lambda x, axis: np.bitwise_and.reduce(x, axis)),
    "circle": (circled, _circle),
}


def _integers(
    which: str, name: str, place: tuple[Shape, int | None, bool], session: Session
) -> None:
    shape, axis, _ = place
    function, expected = _INTEGER[which]
    x = wide(session.rng, name, shape)
    if which == "product":
        x |= x.dtype.type(1)  # an odd number does not vanish
    if which in ("intersection", "tl.reduce_or"):
        few = (
            wide(session.rng, name, shape)
            & wide(session.rng, name, shape)
            & wide(session.rng, name, shape)
            & x.dtype.type(0x55)
        )
        x = ~few if which == "intersection" else few
    if which == "circle":
        x &= ~x.dtype.type(1)
    found = reduced(function, x, name, place, session)
    with np.errstate(over="ignore"):
        session.check(
            found,
            np.reshape(
                expected(x, axis) if axis is not None else expected(x.ravel(), 0), found.shape
            ),
        )


def _truth(every: bool, place: tuple[Shape, int | None, bool], session: Session) -> None:
    shape, axis, keep = place
    for share in (0.02, 0.98, 0.0, 1.0):
        x = np.where(session.rng.random(shape) < share, 1, -1).astype(np.int32)
        found = unset(combining.extent_of(shape, axis, keep), np.int8)
        function = all_positive if every else any_positive
        session.launch(
            combining.reduced,
            (1,),
            x,
            found,
            SHAPE=shape,
            FUNCTION=function,
            AXIS=axis,
            KEEP=keep,
            TYPE=tl.int1,
        )
        expected = (x > 0).all(axis) if every else (x > 0).any(axis)
        session.check(found, np.reshape(expected, found.shape).astype(np.int8))


def _float_multiplied(name: str, session: Session) -> None:
    x = session.rng.uniform(0.7, 1.4, (8, 64)).astype(kind(name))
    found = reduced(multiplied, x, name, ((8, 64), 1, False), session)
    # Each of 63 multiplications rounds once.
    half = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}[name]
    check(session, found, x.astype(np.longdouble).prod(1).astype(np.float64), rtol=64 * half)


def bitwise_cases() -> Iterator[Case]:
    index = 0
    for which in _INTEGER:
        for name in INTEGERS:
            place = AXES[(index * 4) % len(AXES)]
            index += 1
            run = functools.partial(_integers, which, name, place)
            subject = which if which.startswith("tl.") else "tl.reduce"
            yield reduction_case(
                f"{which}/{IR[name]}/{axis_text(*place)}",
                subject,
                run,
                name,
                tile=int(np.prod(place[0])),
                quick=index % 6 == 0,
            )
    for index, place in enumerate(AXES[1::3]):
        for every in (False, True):
            run = functools.partial(_truth, every, place)
            text = f"{'all' if every else 'any'}/i1/{axis_text(*place)}"
            yield reduction_case(
                text,
                "tl.reduce",
                run,
                "int32",
                "int8",
                tile=int(np.prod(place[0])),
                quick=index == 0,
            )
    for name in ("float16", "float32", "float64"):
        yield reduction_case(
            f"product/{IR[name]}/8x64_1",
            "tl.reduce",
            functools.partial(_float_multiplied, name),
            name,
            tile=512,
            quick=name == "float32",
        )
