"""Sums: of every type, of narrow floats, and of infinities and NaN."""

from __future__ import annotations

import functools
from collections.abc import Iterator
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
    FLOATS,
    INTEGERS,
    IR,
    NUMBERS,
    kind,
)
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import combining
from tilewright_conformance.testlib.combining import Shape, at_least_32_bits
from tilewright_conformance.testlib.numbers import check, draw, wide


@tw.jit
def total_in_int64(x, AXIS: tl.constexpr, keep_dims: tl.constexpr):
    return tl.sum(x, AXIS, keep_dims, dtype=tl.int64)


@tw.jit
def total_in_float32(x, AXIS: tl.constexpr, keep_dims: tl.constexpr):
    return tl.sum(x, AXIS, keep_dims, dtype=tl.float32)


@tw.jit
def total_in_float64(x, AXIS: tl.constexpr, keep_dims: tl.constexpr):
    return tl.sum(x, AXIS, keep_dims, dtype=tl.float64)


def _sum(
    function: Any, name: str, result: str, place: tuple[Shape, int | None, bool], session: Session
) -> None:
    shape, axis, _ = place
    if name not in FLOATS:
        x = wide(session.rng, name, shape) if result in INTEGERS else draw(session.rng, name, shape)
        found = reduced(function, x, result, place, session)
        with np.errstate(over="ignore"):
            session.check(found, np.reshape(x.astype(result).sum(axis, dtype=result), found.shape))
        return
    x = draw(session.rng, name, shape)
    found = reduced(function, x, result, place, session)
    check(
        session,
        found,
        np.reshape(x.astype(np.float64).sum(axis), found.shape),
        name="multiples of 1/8",
        zero_sign=False,
    )
    x = (session.rng.standard_normal(shape) + 0.25).astype(kind(name))
    found = reduced(function, x, result, place, session)
    exact = x.astype(np.longdouble)
    bound = np.reshape(combining.sum_bound(exact, axis, result), found.shape)
    check(
        session, found, np.reshape(exact.sum(axis), found.shape), atol=bound, name="random numbers"
    )


def _narrow(name: str, session: Session) -> None:
    """Add to 1 many terms that each are lost beside it: narrow floats accumulate in fp32.

    The result rounds once.
    """
    x = np.full(1024, 2.0**-11).astype(kind(name))
    x[0] = 1
    found = reduced(tl.sum, x, name, ((1024,), 0, False), session)
    check(session, found, np.array([x.astype(np.float64).sum()]))


def _special_totals(name: str, session: Session) -> None:
    """Infinities and NaN go through a sum; opposite infinities make a NaN."""
    x = np.ones((8, 16), kind(name))
    x[1, 3], x[2, 15], x[3, 0], x[3, 9], x[4, 7], x[5, :] = (
        np.inf,
        -np.inf,
        np.inf,
        -np.inf,
        np.nan,
        np.inf,
    )
    found = reduced(tl.sum, x, name, ((8, 16), 1, False), session)
    check(session, found, np.array([16, np.inf, -np.inf, np.nan, np.nan, np.inf, 16, 16]))


def sum_cases() -> Iterator[Case]:
    index = 0
    for name in (*NUMBERS, "bool"):
        result = at_least_32_bits(name)
        own = ("float32",) if name in ("float16", "bfloat16") else ()
        for _ in range(7):
            place = AXES[index % len(AXES)]
            index += 1
            run = functools.partial(_sum, tl.sum, name, result, place)
            quick = index % 6 == 0
            yield reduction_case(
                f"tl.sum/{IR[name]}/{axis_text(*place)}",
                "tl.sum",
                run,
                name,
                result,
                *own,
                tile=int(np.prod(place[0])),
                quick=quick,
            )
    rows = (
        ("int8", total_in_int64, "int64"),
        ("int32", total_in_int64, "int64"),
        ("uint32", total_in_int64, "int64"),
    )
    rows += (
        ("float16", total_in_float32, "float32"),
        ("int16", total_in_float32, "float32"),
        ("float32", total_in_float64, "float64"),
    )
    for index, (name, function, result) in enumerate(rows):
        place = AXES[(5 * index) % len(AXES)]
        run = functools.partial(_sum, function, name, result, place)
        yield reduction_case(
            f"tl.sum/{IR[name]}/in_{IR[result]}",
            "tl.sum",
            run,
            name,
            result,
            tile=int(np.prod(place[0])),
            quick=index % 3 == 0,
        )
    for name in FLOATS:
        own = ("float32",) if name in ("float16", "bfloat16") else ()
        run = functools.partial(_special_totals, name)
        yield reduction_case(
            f"tl.sum/{IR[name]}/special",
            "tl.sum",
            run,
            name,
            *own,
            tile=128,
            quick=name == "float32",
        )
        if own:
            yield reduction_case(
                f"tl.sum/{IR[name]}/narrow",
                "tl.sum",
                functools.partial(_narrow, name),
                name,
                *own,
                tile=1024,
                quick=True,
            )
