"""Order: ``sort``, ``topk``, ``bitonic_merge`` and ``flip`` along the last axis, of all types.

NumPy, which puts NaN last as well, is the oracle.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import FLOATS, IR, NUMBERS, Array, kind, language
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.combining import Shape, extremum_type
from tilewright_conformance.testlib.numbers import check, draw, unset, wide
from tilewright_conformance.testlib.tiles import positions

_case = Table("sorting", "memory").case


def _compared(name: str) -> tuple[str, ...]:
    """The types in which a type's numbers are sorted.

    Floats are sorted also as integers of their size, in whose order NaN has a place.
    """
    return (name, f"int{8 * kind(name).itemsize}") if name in FLOATS else (name,)


def cases() -> Iterator[Case]:
    yield from _sorted()
    yield from _best()
    yield from _merged()
    yield from _by_keys()
    yield from _flipped()


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


@tw.jit
def in_order(x_ptr, up, down, SHAPE: tl.constexpr):
    at = positions(SHAPE)
    x = tl.load(x_ptr + at)
    ordered = tl.sort(x)
    tl.static_assert(ordered.dtype == x.dtype)
    tl.store(up + at, ordered)
    tl.store(down + at, tl.sort(x, descending=True))


@tw.jit
def best_of(
    x_ptr, out, SHAPE: tl.constexpr, K: tl.constexpr, DESCENDING: tl.constexpr, TYPE: tl.constexpr
):
    y = tl.topk(tl.load(x_ptr + positions(SHAPE)), K, descending=DESCENDING)
    tl.static_assert(y.dtype == TYPE)
    tl.store(out + positions(y.shape), y)


@tw.jit
def merged(x_ptr, out, SHAPE: tl.constexpr, DESCENDING: tl.constexpr):
    at = positions(SHAPE)
    tl.store(out + at, tl.bitonic_merge(tl.load(x_ptr + at), descending=DESCENDING))


@tw.jit
def order_of(x_ptr, places, keys, BLOCK: tl.constexpr):
    """Original positions of the sorted elements, from numbers that hold a key and a position."""
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    both = tl.sort(x.to(tl.int64) * BLOCK + at)
    tl.store(places + at, (both & (BLOCK - 1)).to(tl.int32))
    tl.store(keys + at, (both // BLOCK).to(tl.int32))


@tw.jit
def flipped(x_ptr, out, SHAPE: tl.constexpr, AXIS: tl.constexpr):
    at = positions(SHAPE)
    tl.store(out + at, tl.flip(tl.load(x_ptr + at), AXIS))


def _values(name: str, shape: Shape, session: Session) -> Array:
    """Numbers of the whole range, many that are equal, and NaNs of either sign."""
    x = wide(session.rng, name, shape)
    equal = session.rng.random(shape) < 0.4
    x[equal] = draw(session.rng, name, shape, limit=3)[equal]
    if name in FLOATS and x.size > 2:
        x.flat[0], x.flat[-1] = np.inf, -np.inf
        x.flat[1:-1:5] = np.nan
        x.flat[3:-1:10] = -np.nan
    return x


def _in_order(x: Array, name: str) -> Array:
    """Return rows in rising order, NaN last: NumPy sorts NaN so in its own types, without bf16."""
    return np.sort(x.astype(np.float64), -1).astype(x.dtype) if name in FLOATS else np.sort(x, -1)


def _sort(name: str, shape: Shape, session: Session) -> None:
    x = _values(name, shape, session)
    up, down = unset(x.shape, x.dtype), unset(x.shape, x.dtype)
    session.launch(in_order, (1,), x, up, down, SHAPE=shape)
    wanted = _in_order(x, name)
    check(session, up, wanted, name="rising", zero_sign=False)
    check(session, down, wanted[..., ::-1], name="falling", zero_sign=False)


def _sorted() -> Iterator[Case]:
    shapes = ((64,), (8, 16), (1,), (2, 4, 8), (256,), (4, 2), (16, 1), (1, 32), (2,), (4, 64))
    for index, name in enumerate(NUMBERS):
        for shape in (shapes[index % len(shapes)], shapes[(index + 4) % len(shapes)]):
            run = functools.partial(_sort, name, shape)
            yield _case(
                f"tl.sort/{IR[name]}/{_text(shape)}",
                "tl.sort",
                run,
                *_compared(name),
                tile=int(np.prod(shape)),
                quick=index % 4 == 0,
            )
    for name in ("float32", "int32"):
        yield _case(
            f"tl.sort/{IR[name]}/2048",
            "tl.sort",
            functools.partial(_sort, name, (2048,)),
            *_compared(name),
            tile=2048,
        )


def _top(name: str, shape: Shape, k: int, high: bool, session: Session) -> None:
    x = _values(name, shape, session)
    result = extremum_type(name) if k < shape[-1] else name
    found = unset((*shape[:-1], k), kind(result))
    session.launch(
        best_of, (1,), x, found, SHAPE=shape, K=k, DESCENDING=high, TYPE=language(result)
    )
    wanted = _in_order(x, name)
    wanted = wanted[..., ::-1] if high else wanted
    check(session, found, wanted[..., :k].astype(kind(result)), zero_sign=False)


def _best() -> Iterator[Case]:
    sizes: tuple[tuple[Shape, int], ...] = (
        ((64,), 8),
        ((8, 16), 1),
        ((4, 8), 8),
        ((128,), 2),
        ((2, 2, 16), 4),
        ((4, 32), 16),
        ((1, 64), 32),
    )
    for index, name in enumerate(NUMBERS):
        for high in (True, False):
            shape, k = sizes[(index + 3 * high) % len(sizes)]
            run = functools.partial(_top, name, shape, k, high)
            text = f"tl.topk/{IR[name]}/{_text(shape)}_{k}_{'largest' if high else 'smallest'}"
            result = extremum_type(name) if k < shape[-1] else name
            yield _case(
                text,
                "tl.topk",
                run,
                *_compared(name),
                *_compared(result),
                tile=int(np.prod(shape)),
                quick=index % 5 == 0,
            )


def _merge(name: str, shape: Shape, falling: bool, session: Session) -> None:
    """Merge rows that rise and then fall, rotated by any number of places."""
    x = _values(name, shape, session)
    rows = x.reshape(-1, shape[-1])
    for row in rows:
        cut = int(session.rng.integers(0, shape[-1] + 1))
        row[:] = np.roll(
            np.concatenate([_in_order(row[:cut], name), _in_order(row[cut:], name)[::-1]]),
            int(session.rng.integers(0, shape[-1])),
        )
    found = unset(x.shape, x.dtype)
    session.launch(merged, (1,), x, found, SHAPE=shape, DESCENDING=falling)
    wanted = _in_order(x, name)
    check(session, found, wanted[..., ::-1] if falling else wanted, zero_sign=False)


def _merged() -> Iterator[Case]:
    shapes = ((64,), (8, 16), (2, 4, 8), (256,), (4, 2))
    for index, name in enumerate(NUMBERS):
        shape, falling = shapes[index % len(shapes)], index % 2 == 1
        run = functools.partial(_merge, name, shape, falling)
        text = f"tl.bitonic_merge/{IR[name]}/{_text(shape)}_{'falling' if falling else 'rising'}"
        yield _case(
            text,
            "tl.bitonic_merge",
            run,
            *_compared(name),
            tile=int(np.prod(shape)),
            quick=index % 5 == 0,
        )


def _order(block: int, session: Session) -> None:
    x = session.rng.integers(0, block // 4 + 1, block).astype(np.int32)
    places, keys = unset(block, np.int32), unset(block, np.int32)
    session.launch(order_of, (1,), x, places, keys, BLOCK=block)
    session.check(places, np.argsort(x, kind="stable").astype(np.int32), name="places")
    session.check(keys, np.sort(x), name="keys")


def _by_keys() -> Iterator[Case]:
    for block in (16, 128, 1024):
        yield _case(
            f"argsort/i32/{block}",
            "tl.sort",
            functools.partial(_order, block),
            "int32",
            tile=block,
            quick=block == 128,
        )


def _flip(name: str, shape: Shape, axis: int | None, session: Session) -> None:
    x = wide(session.rng, name, shape)
    found = unset(x.shape, x.dtype)
    session.launch(flipped, (1,), x, found, SHAPE=shape, AXIS=axis)
    check(session, found, np.flip(x, -1 if axis is None else axis))


def _flipped() -> Iterator[Case]:
    rows: tuple[tuple[Shape, int | None], ...] = (
        ((64,), 0),
        ((8, 16), 1),
        ((8, 16), 0),
        ((4, 32), None),
        ((2, 4, 8), 1),
        ((1, 16), 0),
        ((16, 2), -1),
        ((1,), 0),
    )
    for index, (shape, axis) in enumerate(rows):
        for name in (
            ("float32", "int8", "int64", "bfloat16")[index % 4],
            ("uint16", "float16", "bool", "int32")[(index + index // 4) % 4],
        ):
            run = functools.partial(_flip, name, shape, axis)
            along = "default" if axis is None else axis % len(shape)
            text = f"tl.flip/{IR[name]}/{_text(shape)}_{along}"
            yield _case(text, "tl.flip", run, name, tile=int(np.prod(shape)), quick=index % 3 == 0)
