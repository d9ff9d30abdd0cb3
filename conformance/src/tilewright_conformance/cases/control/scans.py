"""Scans: samples as Tile IR, running totals, and combinations of one and of several values.

They run along each axis and in both directions. The order of a combination counts, its grouping
does not: integers are exact, and each running total of floats may be off by the bound of its
length.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import (
    FLOATS,
    INTEGERS,
    IR,
    NUMBERS,
    SIGNED,
    Array,
    kind,
    language,
    spacing,
)
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import combining
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.combining import Shape
from tilewright_conformance.testlib.numbers import check, draw, unset, wide
from tilewright_conformance.testlib.sampled_cases import sampled
from tilewright_conformance.testlib.tiles import positions

_PLACES: tuple[tuple[Shape, int], ...] = (
    ((64,), 0),
    ((8, 16), 1),
    ((16, 8), 0),
    ((1,), 0),
    ((1, 32), 1),
    ((32, 1), 0),
    ((2, 4, 8), 1),
    ((512,), 0),
    ((4, 2, 16), 2),
    ((64, 4), 0),
    ((8, 4, 2), 0),
    ((16, 2), 1),
    ((2, 4, 2, 8), 3),
)

_case = Table("scans", "control", "NumPy, float64").case


def cases() -> Iterator[Case]:
    yield from sampled("scans", "control", {"scan": False})
    yield from _running()
    yield from _custom()
    yield from _several()


def _text(shape: Shape, axis: int, reverse: bool) -> str:
    return f"{'x'.join(map(str, shape))}_{axis}{'_reverse' if reverse else ''}"


def along(x: Array, axis: int, reverse: bool, running: Callable[[Array], Array]) -> Array:
    """Apply a combination along the first axis to another one, from its end where ``reverse``."""
    moved = np.moveaxis(x, axis, 0)
    found = running(moved[::-1] if reverse else moved)
    return np.moveaxis(found[::-1] if reverse else found, 0, axis)


# ---- cumsum and cumprod


@tw.jit
def cumsum_in_int64(x, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    return tl.cumsum(x, AXIS, reverse=REVERSE, dtype=tl.int64)


@tw.jit
def cumprod_in_float32(x, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    return tl.cumprod(x, AXIS, reverse=REVERSE, dtype=tl.float32)


@tw.jit
def scanned(
    x_ptr,
    out,
    SHAPE: tl.constexpr,
    FUNCTION: tl.constexpr,
    AXIS: tl.constexpr,
    REVERSE: tl.constexpr,
    TYPE: tl.constexpr,
):
    at = positions(SHAPE)
    y = FUNCTION(tl.load(x_ptr + at), AXIS, REVERSE)
    tl.static_assert(y.dtype == TYPE)
    tl.store(out + at, y)


def _scan(
    function: Any, x: Array, result: str, axis: int, reverse: bool, session: Session
) -> Array:
    found = unset(x.shape, kind(result))
    session.launch(
        scanned,
        (1,),
        x,
        found,
        SHAPE=x.shape,
        FUNCTION=function,
        AXIS=axis,
        REVERSE=reverse,
        TYPE=language(result),
    )
    return found


def _sum(
    function: Any, name: str, result: str, shape: Shape, axis: int, reverse: bool, session: Session
) -> None:
    if name not in FLOATS:
        x = wide(session.rng, name, shape)
        found = _scan(function, x, result, axis, reverse, session)
        with np.errstate(over="ignore"):
            session.check(
                found, along(x.astype(result), axis, reverse, lambda v: v.cumsum(0, dtype=result))
            )
        return
    x = draw(session.rng, name, shape, limit=4)
    exact = along(x.astype(np.float64), axis, reverse, lambda v: v.cumsum(0))
    check(
        session,
        _scan(function, x, result, axis, reverse, session),
        exact,
        name="multiples of 1/8",
        zero_sign=False,
    )
    x = (session.rng.standard_normal(shape) + 0.25).astype(kind(name))
    numbers = x.astype(np.longdouble)
    bound = along(numbers, axis, reverse, lambda v: combining.running_bound(v, 0, result))
    found = _scan(function, x, result, axis, reverse, session)
    check(
        session,
        found,
        along(numbers, axis, reverse, lambda v: v.cumsum(0)),
        atol=bound,
        name="random numbers",
    )


def _cumprod(
    function: Any, name: str, result: str, shape: Shape, axis: int, reverse: bool, session: Session
) -> None:
    if name not in FLOATS:
        x = wide(session.rng, name, shape) | kind(name).type(1)
        found = _scan(function, x, result, axis, reverse, session)
        with np.errstate(over="ignore"):
            session.check(
                found, along(x.astype(result), axis, reverse, lambda v: v.cumprod(0, dtype=result))
            )
        return
    # Powers of two; multiplying successive ones yields 2**-6 to 2**6: exact in any grouping.
    steps = np.diff(session.rng.integers(-3, 4, shape), axis=axis, prepend=0)
    x = (session.rng.choice([-1, 1], shape) * np.exp2(steps)).astype(kind(name))
    found = _scan(function, x, result, axis, reverse, session)
    check(
        session,
        found,
        along(x.astype(np.float64), axis, reverse, lambda v: v.cumprod(0)),
        name="powers of two",
    )
    x = session.rng.uniform(0.97, 1.03, shape).astype(kind(name))
    found = _scan(function, x, result, axis, reverse, session)
    half = spacing(result) / 2
    check(
        session,
        found,
        along(x.astype(np.longdouble), axis, reverse, lambda v: v.cumprod(0)),
        rtol=1.1 * shape[axis] * half,
        name="near 1",
    )


def _prefix_type(name: str) -> str:
    if name == "bfloat16":
        return "float32"
    return combining.at_least_32_bits(name)


def _running() -> Iterator[Case]:
    index = 0
    for name in (*NUMBERS, "bool"):
        for reverse in (False, True, False, True):
            shape, axis = _PLACES[index % len(_PLACES)]
            index += 1
            result = _prefix_type(name)
            run = functools.partial(_sum, tl.cumsum, name, result, shape, axis, reverse)
            text = f"tl.cumsum/{IR[name]}/{_text(shape, axis, reverse)}"
            yield _case(
                text, "tl.cumsum", run, name, result, tile=int(np.prod(shape)), quick=index % 5 == 0
            )
    for name in NUMBERS:
        for reverse in (False, True):
            shape, axis = _PLACES[(5 * index) % len(_PLACES)]
            index += 1
            result = "float32" if name == "bfloat16" else name
            run = functools.partial(_cumprod, tl.cumprod, name, result, shape, axis, reverse)
            text = f"tl.cumprod/{IR[name]}/{_text(shape, axis, reverse)}"
            yield _case(
                text,
                "tl.cumprod",
                run,
                name,
                result,
                tile=int(np.prod(shape)),
                quick=index % 5 == 0,
            )
    for index, name in enumerate(("int8", "int32", "uint16")):
        run = functools.partial(
            _sum, cumsum_in_int64, name, "int64", (8, 16), index % 2, index == 1
        )
        yield _case(
            f"tl.cumsum/{IR[name]}/in_i64",
            "tl.cumsum",
            run,
            name,
            "int64",
            tile=128,
            quick=index == 0,
        )
    run = functools.partial(_cumprod, cumprod_in_float32, "float16", "float32", (4, 32), 1, True)
    yield _case(
        "tl.cumprod/f16/in_f32", "tl.cumprod", run, "float16", "float32", tile=128, quick=True
    )


# ---- combinations of a kernel's own


@tw.jit
def latest_of(x, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    return tl.associative_scan(x, AXIS, combining.latest, reverse=REVERSE)


@tw.jit
def larger(a, b):
    return tl.maximum(a, b)


@tw.jit
def running_maximum(x, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    return tl.associative_scan(x, AXIS, larger, reverse=REVERSE)


@tw.jit
def union_of(x, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    return tl.associative_scan(x, AXIS, combining.either, reverse=REVERSE)


@tw.jit
def circle_of(x, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    return tl.associative_scan(x, AXIS, combining.circle, reverse=REVERSE)


def _latest(v: Array) -> Array:
    found = v.copy()
    for i in range(1, len(v)):
        found[i] = np.where(v[i] != 0, v[i], found[i - 1])
    return found


def _circle(v: Array) -> Array:
    with np.errstate(over="ignore"):
        return (v + v.dtype.type(1)).cumprod(0, dtype=v.dtype) - v.dtype.type(1)


#: name -> (function, the same with NumPy along the first axis, types)
_OWN: dict[str, tuple[Any, Callable[[Array], Array], tuple[str, ...]]] = {
    "latest": (latest_of, _latest, ("int32", "int8", "float32", "uint64")),
    "largest": (
        running_maximum,
        lambda v: np.maximum.accumulate(v, 0),
        ("float32", "int32", "uint32", "int64", "float16", "int16"),
    ),
    "union": (union_of, lambda v: np.bitwise_or.accumulate(v, 0), ("int32", "uint8", "int64")),
    "circle": (circle_of, _circle, ("int32", "uint16", "int64")),
}


def _own(which: str, name: str, shape: Shape, axis: int, reverse: bool, session: Session) -> None:
    function, expected, _ = _OWN[which]
    if which == "circle":
        x = (wide(session.rng, name, shape) // kind(name).type(2)) * kind(name).type(2)
    elif which == "union":
        x = (
            wide(session.rng, name, shape)
            & wide(session.rng, name, shape)
            & wide(session.rng, name, shape)
        )
    else:
        x = draw(session.rng, name, shape)
    if which == "latest":
        x = np.where(session.rng.random(shape) < 0.6, kind(name).type(0), x)
    found = _scan(function, x, name, axis, reverse, session)
    check(session, found, along(x, axis, reverse, expected), zero_sign=False)


def _custom() -> Iterator[Case]:
    index = 0
    for which, (_, _, names) in _OWN.items():
        for name in names:
            for reverse in (False, True):
                shape, axis = _PLACES[(3 * index) % len(_PLACES)]
                index += 1
                run = functools.partial(_own, which, name, shape, axis, reverse)
                text = f"{which}/{IR[name]}/{_text(shape, axis, reverse)}"
                yield _case(
                    text,
                    "tl.associative_scan",
                    run,
                    name,
                    tile=int(np.prod(shape)),
                    quick=index % 6 == 0,
                )


# ---- several values


@tw.jit
def recurrence(x_ptr, y_ptr, out, SHAPE: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    at = positions(SHAPE)
    factor, value = tl.associative_scan(
        (tl.load(x_ptr + at), tl.load(y_ptr + at)), AXIS, combining.affine, reverse=REVERSE
    )
    size: tl.constexpr = factor.numel
    tl.store(out + at, value)
    tl.store(out + size + at, factor)


@tw.jit
def segmented_cumsum(
    x_ptr, mark_ptr, out, SHAPE: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr
):
    at = positions(SHAPE)
    value, _ = tl.associative_scan(
        (tl.load(x_ptr + at), tl.load(mark_ptr + at)), AXIS, combining.segmented, reverse=REVERSE
    )
    tl.store(out + at, value)


@tw.jit
def carried_on(x_ptr, out, n, BLOCK: tl.constexpr):
    """Scan an array of any length: each block continues the running totals of the one before."""
    before = 0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0)
        tl.store(out + at, tl.cumsum(x, 0) + before, mask=at < n)
        before += tl.sum(x)


def _recurrence(name: str, shape: Shape, axis: int, reverse: bool, session: Session) -> None:
    x, y = (
        session.rng.integers(-3, 4, shape).astype(name),
        session.rng.integers(-9, 9, shape).astype(name),
    )
    found = unset((2, *shape), name)
    session.launch(recurrence, (1,), x, y, found, SHAPE=shape, AXIS=axis, REVERSE=reverse)
    p, q = (np.moveaxis(np.flip(v, axis) if reverse else v, axis, 0) for v in (x, y))
    rows, factors = [], []
    value, factor = np.zeros(p.shape[1:], name), np.ones(p.shape[1:], name)
    with np.errstate(over="ignore"):
        for a, b in zip(p, q, strict=True):
            value, factor = a * value + b, a * factor
            rows.append(value)
            factors.append(factor)
    for result, wanted in zip(found, (rows, factors), strict=True):
        expected = np.moveaxis(np.array(wanted), 0, axis)
        session.check(result, np.flip(expected, axis) if reverse else expected)


def _segments(shape: Shape, axis: int, reverse: bool, session: Session) -> None:
    x, marks = (
        session.rng.integers(-50, 50, shape).astype(np.int32),
        (session.rng.random(shape) < 0.2).astype(np.int32),
    )
    found = unset(shape, np.int32)
    session.launch(segmented_cumsum, (1,), x, marks, found, SHAPE=shape, AXIS=axis, REVERSE=reverse)

    def running(v: Array) -> Array:
        values, starts = v[..., 0], v[..., 1]
        rows = [values[0]]
        for i in range(1, len(values)):
            rows.append(np.where(starts[i] != 0, values[i], rows[-1] + values[i]))
        return np.array(rows)

    expected = running_pairs(x, marks, axis, reverse, running)
    session.check(found, expected.astype(np.int32))


def running_pairs(
    x: Array, y: Array, axis: int, reverse: bool, running: Callable[[Array], Array]
) -> Array:
    """Like :func:`along` for pairs, which ``running`` gets in a last axis."""
    pairs = np.moveaxis(np.stack([x, y], -1), axis, 0)
    found = running(pairs[::-1] if reverse else pairs)
    return np.moveaxis(found[::-1] if reverse else found, 0, axis)


def _carried_on(block: int, session: Session) -> None:
    for n in (1, block, 3 * block - 1, 5 * block + 7):
        x = session.rng.integers(-1000, 1000, n).astype(np.int32)
        found = unset(n, np.int32)
        session.launch(carried_on, (1,), x, found, n, BLOCK=block)
        session.check(found, x.cumsum(dtype=np.int32), name=f"cumsum of {n}")


def _several() -> Iterator[Case]:
    for index, (shape, axis) in enumerate(_PLACES):
        name = (*SIGNED, *INTEGERS)[index % 8]
        name = name if name in SIGNED else "int32"
        elements = int(np.prod(shape))
        for reverse in (False, True):
            text = _text(shape, axis, reverse)
            run = functools.partial(_recurrence, name, shape, axis, reverse)
            yield _case(
                f"recurrence/{IR[name]}/{text}",
                "tl.associative_scan",
                run,
                name,
                tile=elements,
                quick=index % 4 == 1,
            )
            if index % 2:
                run = functools.partial(_segments, shape, axis, reverse)
                yield _case(
                    f"segments/i32/{text}",
                    "tl.associative_scan",
                    run,
                    "int32",
                    tile=elements,
                    quick=index == 7,
                )
    for block in (16, 128, 1024):
        yield _case(
            f"carried/i32/block_{block}",
            "tl.cumsum",
            functools.partial(_carried_on, block),
            "int32",
            tile=block,
            quick=block == 128,
        )
