"""Reductions: samples as Tile IR, and the language's along every axis of tiles of all types.

Tiles have one to four axes. Integers wrap around, and floats of few bits add up exactly; each other
result may be off by the bound of its length, in any order of the terms.
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
    Array,
    kind,
    language,
)
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import combining
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.combining import Shape, at_least_32_bits, extremum_type
from tilewright_conformance.testlib.numbers import check, draw, special, unset, wide
from tilewright_conformance.testlib.sampled_cases import sampled
from tilewright_conformance.testlib.tiles import positions

#: (shape, axis, whether the axis is kept)
_AXES: tuple[tuple[Shape, int | None, bool], ...] = (
    ((64,), 0, False),
    ((8, 16), 1, False),
    ((8, 16), 0, False),
    ((1,), 0, False),
    ((16, 8), -1, True),
    ((2, 4, 8), 1, False),
    ((32, 32), None, False),
    ((1024,), None, True),
    ((4, 1), 1, False),
    ((1, 32), 0, True),
    ((4, 8, 2), 0, True),
    ((2, 8, 16), 2, False),
    ((128, 4), 0, False),
    ((2, 4, 2, 8), 1, False),
    ((2, 2, 4, 8), -1, True),
    ((4, 128), 1, False),
    ((2,), 0, False),
    ((4, 2, 2, 4), 0, False),
    ((4096,), 0, False),
)

_case = Table("reductions", "core", "NumPy, float64").case


def cases() -> Iterator[Case]:
    yield from sampled("reductions", "core", {"reduce": False})
    yield from _sum_cases()
    yield from _extremes()
    yield from _places()
    yield from _bitwise()
    yield from _several()
    yield from _in_kernels()


def _text(shape: Shape, axis: int | None, keep: bool) -> str:
    along = "all" if axis is None else axis % len(shape)
    return f"{'x'.join(map(str, shape))}_{along}{'_keep' if keep else ''}"


def _run(
    function: Any, x: Array, result: str, place: tuple[Shape, int | None, bool], session: Session
) -> Array:
    """Reduce a tile on the backend and return the result."""
    shape, axis, keep = place
    found = unset(combining.extent_of(shape, axis, keep), kind(result))
    session.launch(
        combining.reduced,
        (1,),
        x,
        found,
        SHAPE=shape,
        FUNCTION=function,
        AXIS=axis,
        KEEP=keep,
        TYPE=language(result),
    )
    return found


# ---- tl.sum


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
        found = _run(function, x, result, place, session)
        with np.errstate(over="ignore"):
            session.check(found, np.reshape(x.astype(result).sum(axis, dtype=result), found.shape))
        return
    x = draw(session.rng, name, shape)
    found = _run(function, x, result, place, session)
    check(
        session,
        found,
        np.reshape(x.astype(np.float64).sum(axis), found.shape),
        name="multiples of 1/8",
        zero_sign=False,
    )
    x = (session.rng.standard_normal(shape) + 0.25).astype(kind(name))
    found = _run(function, x, result, place, session)
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
    found = _run(tl.sum, x, name, ((1024,), 0, False), session)
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
    found = _run(tl.sum, x, name, ((8, 16), 1, False), session)
    check(session, found, np.array([16, np.inf, -np.inf, np.nan, np.nan, np.inf, 16, 16]))


def _sum_cases() -> Iterator[Case]:
    index = 0
    for name in (*NUMBERS, "bool"):
        result = at_least_32_bits(name)
        own = ("float32",) if name in ("float16", "bfloat16") else ()
        for _ in range(7):
            place = _AXES[index % len(_AXES)]
            index += 1
            run = functools.partial(_sum, tl.sum, name, result, place)
            quick = index % 6 == 0
            yield _case(
                f"tl.sum/{IR[name]}/{_text(*place)}",
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
        place = _AXES[(5 * index) % len(_AXES)]
        run = functools.partial(_sum, function, name, result, place)
        yield _case(
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
        yield _case(
            f"tl.sum/{IR[name]}/special",
            "tl.sum",
            run,
            name,
            *own,
            tile=128,
            quick=name == "float32",
        )
        if own:
            yield _case(
                f"tl.sum/{IR[name]}/narrow",
                "tl.sum",
                functools.partial(_narrow, name),
                name,
                *own,
                tile=1024,
                quick=True,
            )


# ---- maximum and minimum, and their positions


def _extreme(
    name: str, place: tuple[Shape, int | None, bool], high: bool, session: Session
) -> None:
    """NaN counts only where nothing else is there."""
    shape, axis, _ = place
    sets = [wide(session.rng, name, shape)]
    if name in FLOATS:
        some = special(name)
        sets.append(some[session.rng.integers(0, len(some), shape)])
        mostly = np.full(shape, np.nan)
        mostly.flat[:: max(2, shape[-1] * 2 + 1)] = -3.5 if high else 3.5
        sets.append(mostly.astype(kind(name)))
    for x in sets:
        found = _run(tl.max if high else tl.min, x, extremum_type(name), place, session)
        exact = x.astype(np.float64) if name in FLOATS else x.astype(extremum_type(name))
        combine = np.fmax if high else np.fmin
        with np.errstate(invalid="ignore"):
            check(
                session,
                found,
                np.reshape(
                    combine.reduce(exact.ravel() if axis is None else exact, axis or 0), found.shape
                ),
                zero_sign=False,
            )


def _extremes() -> Iterator[Case]:
    index = 3
    for name in NUMBERS:
        for high in (True, False):
            for _ in range(5):
                place = _AXES[index % len(_AXES)]
                index += 1
                function = "max" if high else "min"
                run = functools.partial(_extreme, name, place, high)
                text = f"tl.{function}/{IR[name]}/{_text(*place)}"
                yield _case(
                    text,
                    f"tl.{function}",
                    run,
                    name,
                    extremum_type(name),
                    tile=int(np.prod(place[0])),
                    quick=index % 8 == 0,
                )


def _place(
    name: str, place: tuple[Shape, int | None, bool], high: bool, left: bool, session: Session
) -> None:
    """Check the position of a maximum or minimum: the first of equal ones, or any.

    A NaN's position counts only where all are NaN.
    """
    shape, axis, keep = place
    sets = [
        draw(session.rng, name, shape, limit=3),
        wide(session.rng, name, shape),
        np.zeros(shape, kind(name)),
    ]
    for x in [*sets, *(_beside_nan(name, shape, session) if name in FLOATS else ())]:
        if name in FLOATS and not np.isnan(x.astype(np.float32)).any():
            x.flat[0] = -np.inf if high else np.inf
        kept = "float32" if name == "bfloat16" else name
        extent = combining.extent_of(shape, axis, keep)
        found, places = unset(extent, kind(kept)), np.full(extent, -1, np.int32)
        function = tl.max if high else tl.min
        options = {"SHAPE": shape, "FUNCTION": function, "AXIS": axis, "KEEP": keep, "LEFT": left}
        session.launch(combining.reduced_with_positions, (1,), x, found, places, **options)
        exact = x.astype(np.float64) if name in FLOATS else x
        best, first = _best_and_first(exact, axis, high)
        first = np.reshape(first, extent).astype(np.int32)
        check(session, found, np.reshape(best, extent), zero_sign=False)
        if left:
            session.check(places, first, name="first place")
        else:
            flat = (
                exact.reshape(1, -1)
                if axis is None
                else np.moveaxis(exact, axis, -1).reshape(-1, shape[axis])
            )
            chosen = places.ravel()
            session.require(
                np.all((chosen >= 0) & (chosen < flat.shape[1])), "a place is none of the axis"
            )
            session.require(
                np.array_equal(
                    flat[np.arange(len(chosen)), chosen], np.ravel(best), equal_nan=name in FLOATS
                ),
                "a place is not that of the value",
            )


def _beside_nan(name: str, shape: Shape, session: Session) -> Iterator[Array]:
    """Yield tiles of numbers and NaNs, few of either, of NaNs with infinities, and all NaNs."""
    for share, of in ((0.2, None), (0.9, None), (0.5, -np.inf), (0.5, np.inf), (1.0, None)):
        x = (
            draw(session.rng, name, shape, limit=3)
            if of is None
            else np.full(shape, of, kind(name))
        )
        x[session.rng.random(shape) < share] = np.nan
        yield x


def _best_and_first(x: Array, axis: int | None, high: bool) -> tuple[Array, Array]:
    """Return the maximum (``high``) or the minimum along an axis, and its first position."""
    best = np.asarray(
        (np.fmax if high else np.fmin).reduce(x.ravel() if axis is None else x, axis or 0)
    )
    across = best if axis is None else np.expand_dims(best, axis)
    return best, np.asarray(((x == across) | (np.isnan(across))).argmax(axis))


def _position(
    name: str, place: tuple[Shape, int | None, bool], high: bool, session: Session
) -> None:
    shape, axis, _ = place
    for x in (
        draw(session.rng, name, shape, limit=3),
        np.zeros(shape, kind(name)),
        *(_beside_nan(name, shape, session) if name in FLOATS else ()),
    ):
        found = _run(tl.argmax if high else tl.argmin, x, "int32", place, session)
        exact = x.astype(np.float64)
        session.check(
            found, np.reshape(_best_and_first(exact, axis, high)[1], found.shape).astype(np.int32)
        )


def _places() -> Iterator[Case]:
    index = 7
    for name in NUMBERS:
        own = ("float32",) if name == "bfloat16" else ()
        for high in (True, False):
            function = "max" if high else "min"
            for left in (True, True, False):
                place = _AXES[index % len(_AXES)]
                index += 1
                run = functools.partial(_place, name, place, high, left)
                text = (
                    f"tl.{function}/{IR[name]}/{_text(*place)}_places_{'left' if left else 'any'}"
                )
                yield _case(
                    text,
                    f"tl.{function}",
                    run,
                    name,
                    *own,
                    tile=int(np.prod(place[0])),
                    quick=index % 7 == 0,
                )
            place = _AXES[(5 * index) % len(_AXES)]
            run = functools.partial(_position, name, place, high)
            text = f"tl.arg{function}/{IR[name]}/{_text(*place)}"
            yield _case(
                text,
                f"tl.arg{function}",
                run,
                name,
                *own,
                tile=int(np.prod(place[0])),
                quick=name in ("float32", "int8", "uint64"),
            )


# ---- bits, and combinations of the kernel's own


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
    found = _run(function, x, name, place, session)
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
    found = _run(multiplied, x, name, ((8, 64), 1, False), session)
    # Each of 63 multiplications rounds once.
    half = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}[name]
    check(session, found, x.astype(np.longdouble).prod(1).astype(np.float64), rtol=64 * half)


def _bitwise() -> Iterator[Case]:
    index = 0
    for which in _INTEGER:
        for name in INTEGERS:
            place = _AXES[(index * 4) % len(_AXES)]
            index += 1
            run = functools.partial(_integers, which, name, place)
            subject = which if which.startswith("tl.") else "tl.reduce"
            yield _case(
                f"{which}/{IR[name]}/{_text(*place)}",
                subject,
                run,
                name,
                tile=int(np.prod(place[0])),
                quick=index % 6 == 0,
            )
    for index, place in enumerate(_AXES[1::3]):
        for every in (False, True):
            run = functools.partial(_truth, every, place)
            text = f"{'all' if every else 'any'}/i1/{_text(*place)}"
            yield _case(
                text,
                "tl.reduce",
                run,
                "int32",
                "int8",
                tile=int(np.prod(place[0])),
                quick=index == 0,
            )
    for name in ("float16", "float32", "float64"):
        yield _case(
            f"product/{IR[name]}/8x64_1",
            "tl.reduce",
            functools.partial(_float_multiplied, name),
            name,
            tile=512,
            quick=name == "float32",
        )


# ---- several values at once


@tw.jit
def moments(x_ptr, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    x = tl.load(x_ptr + positions((ROWS, COLUMNS)))
    mean, square, count = tl.reduce(
        (x, tl.zeros_like(x), tl.full(x.shape, 1, x.dtype)), 1, combining.merge_moments
    )
    at = tl.arange(0, ROWS)
    tl.store(out + at, mean)
    tl.store(out + ROWS + at, square / count)


@tw.jit
def turns(re_ptr, im_ptr, out, SHAPE: tl.constexpr, AXIS: tl.constexpr):
    at = positions(SHAPE)
    re, im = tl.reduce(
        (tl.load(re_ptr + at), tl.load(im_ptr + at)), AXIS, combining.complex_multiply
    )
    size: tl.constexpr = re.numel
    combining.put(out, re)
    combining.put(out + size, im)


@tw.jit
def ranges(x_ptr, out, SHAPE: tl.constexpr, AXIS: tl.constexpr):
    x = tl.load(x_ptr + positions(SHAPE))
    low, high = tl.reduce((x, x), AXIS, combining.minimum_and_maximum)
    combining.put(out, high - low)


def _moments(shape: Shape, session: Session) -> None:
    x, found = (
        (session.rng.standard_normal(shape) + 3).astype(np.float32),
        unset((2, shape[0]), np.float32),
    )
    session.launch(moments, (1,), x, found, ROWS=shape[0], COLUMNS=shape[1])
    exact = x.astype(np.float64)
    session.check(found, np.stack([exact.mean(1), exact.var(1)]), rtol=1e-5)


def _turns(name: str, shape: Shape, axis: int, session: Session) -> None:
    re, im = (session.rng.integers(-3, 4, shape).astype(name) for _ in range(2))
    extent = combining.extent_of(shape, axis, False)
    found = unset((2, *extent), name)
    session.launch(turns, (1,), re, im, found, SHAPE=shape, AXIS=axis)
    a, b = np.ones(extent, name), np.zeros(extent, name)
    with np.errstate(over="ignore"):
        for c, d in zip(
            *(np.moveaxis(part, axis, 0).reshape(shape[axis], *extent) for part in (re, im)),
            strict=True,
        ):
            a, b = a * c - b * d, a * d + b * c
    session.check(found, np.stack([a, b]))


def _ranges(name: str, shape: Shape, axis: int, session: Session) -> None:
    x = session.rng.integers(0, 120, shape).astype(kind(name))
    found = unset(combining.extent_of(shape, axis, False), kind(name))
    session.launch(ranges, (1,), x, found, SHAPE=shape, AXIS=axis)
    check(session, found, np.reshape(x.max(axis) - x.min(axis), found.shape))


def _several() -> Iterator[Case]:
    for shape in ((4, 64), (16, 1), (1, 256), (8, 8)):
        text = "x".join(map(str, shape))
        run = functools.partial(_moments, shape)
        yield _case(
            f"moments/f32/{text}",
            "tl.reduce",
            run,
            "float32",
            tile=shape[0] * shape[1],
            quick=shape == (4, 64),
        )
    places: tuple[tuple[Shape, int], ...] = (((64,), 0), ((8, 16), 1), ((16, 8), 0), ((2, 8, 4), 1))
    for index, (shape, axis) in enumerate(places):
        for name in (
            ("int32", "uint64"),
            ("int64", "int16"),
            ("uint32", "int32"),
            ("int8", "int32"),
        )[index]:
            elements, text = int(np.prod(shape)), _text(shape, axis, False)
            run = functools.partial(_turns, name, shape, axis)
            yield _case(
                f"complex_product/{IR[name]}/{text}",
                "tl.reduce",
                run,
                name,
                tile=elements,
                quick=index == 1,
            )
        for name in (
            ("float32", "int8"),
            ("uint8", "float16"),
            ("int64", "float32"),
            ("int16", "uint32"),
        )[index]:
            run = functools.partial(_ranges, name, shape, axis)
            yield _case(
                f"range/{IR[name]}/{text}", "tl.reduce", run, name, tile=elements, quick=index == 2
            )


# ---- results that go on in a kernel


@tw.jit
def below_maximum(x_ptr, out, SHAPE: tl.constexpr, AXIS: tl.constexpr):
    """Subtract each element from the maximum along its axis."""
    at = positions(SHAPE)
    x = tl.load(x_ptr + at)
    tl.store(out + at, tl.max(x, AXIS, keep_dims=True) - x)


@tw.jit
def twice(x_ptr, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    """Chain reductions along each axis: the minimum of the totals of maxima, and reversed."""
    x = tl.load(x_ptr + positions((A, B, C)))
    tl.store(out, tl.min(tl.sum(tl.max(x, 1), 1), 0))
    tl.store(out + 1, tl.max(tl.sum(tl.min(x, 0), 0), 0))


@tw.jit
def cross_totals(x_ptr, out, SIZE: tl.constexpr):
    """The sum of each row with that of the column of the same number."""
    x = tl.load(x_ptr + positions((SIZE, SIZE)))
    tl.store(out + tl.arange(0, SIZE), tl.sum(x, 1) - tl.sum(x, 0))
    tl.store(
        out + SIZE + positions((SIZE, SIZE)), tl.sum(x, 1)[:, None] * 2 + tl.sum(x, 0)[None, :]
    )


@tw.jit
def rows_summed(x_ptr, totals, tops, n, BLOCK: tl.constexpr):
    """A row of any length, block by block; lanes behind its end do not count."""
    row = x_ptr + tl.program_id(0) * n
    total = tl.zeros((BLOCK,), tl.float32)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(row + at, mask=at < n, other=0.0)
        top = tl.maximum(top, tl.load(row + at, mask=at < n, other=float("-inf")))
    tl.store(totals + tl.program_id(0), tl.sum(total))
    tl.store(tops + tl.program_id(0), tl.max(top))


def _below_maximum(name: str, shape: Shape, axis: int, session: Session) -> None:
    x = session.rng.integers(0, 120, shape).astype(kind(name))
    found = unset(x.shape, x.dtype)
    session.launch(below_maximum, (1,), x, found, SHAPE=shape, AXIS=axis)
    check(session, found, x.max(axis, keepdims=True) - x)


def _twice(shape: tuple[int, int, int], session: Session) -> None:
    x, found = session.rng.integers(-1000, 1000, shape).astype(np.int32), unset(2, np.int32)
    session.launch(twice, (1,), x, found, A=shape[0], B=shape[1], C=shape[2])
    session.check(found, np.array([x.max(1).sum(1).min(), x.min(0).sum(0).max()], np.int32))


def _cross_totals(size: int, session: Session) -> None:
    x, found = (
        session.rng.integers(-1000, 1000, (size, size)).astype(np.int32),
        unset((size + 1, size), np.int32),
    )
    session.launch(cross_totals, (1,), x, found, SIZE=size)
    session.check(found[0], (x.sum(1) - x.sum(0)).astype(np.int32))
    session.check(found[1:], (x.sum(1)[:, None] * 2 + x.sum(0)).astype(np.int32))


def _rows_summed(block: int, session: Session) -> None:
    for n in (1, block - 1, block + 3, 1000, 4097):
        x = (session.rng.standard_normal((3, n)) - 0.3).astype(np.float32)
        totals, tops = unset(3, np.float32), unset(3, np.float32)
        session.launch(rows_summed, (3,), x, totals, tops, n, BLOCK=block)
        exact = x.astype(np.float64)
        session.check(
            totals, exact.sum(1), atol=combining.sum_bound(exact, 1, "float32"), name=f"rows of {n}"
        )
        session.check(tops, x.max(1), name=f"maximum of rows of {n}")


def _in_kernels() -> Iterator[Case]:
    places: tuple[tuple[Shape, int], ...] = (
        ((8, 32), 1),
        ((32, 8), 0),
        ((2, 8, 4), 1),
        ((64, 64), 1),
        ((64,), 0),
        ((16, 1), 1),
    )
    for index, (shape, axis) in enumerate(places):
        name = ("float32", "int32", "int64", "float32", "uint32", "float32")[index]
        run = functools.partial(_below_maximum, name, shape, axis)
        yield _case(
            f"keep_dims/{IR[name]}/{_text(shape, axis, True)}",
            "tl.max",
            run,
            name,
            tile=int(np.prod(shape)),
            quick=index % 3 == 0,
        )
    for three in ((4, 8, 2), (2, 2, 32), (16, 4, 8)):
        text = "x".join(map(str, three))
        yield _case(
            f"twice/i32/{text}",
            "tl.sum",
            functools.partial(_twice, three),
            "int32",
            tile=int(np.prod(three)),
            quick=three[0] == 4,
        )
    for size in (4, 16, 64):
        yield _case(
            f"cross/i32/{size}x{size}",
            "tl.sum",
            functools.partial(_cross_totals, size),
            "int32",
            tile=size * size,
            quick=size == 16,
        )
    for block in (32, 256, 1024):
        yield _case(
            f"rows/f32/block_{block}",
            "tl.sum",
            functools.partial(_rows_summed, block),
            "float32",
            tile=block,
            quick=block == 256,
        )
