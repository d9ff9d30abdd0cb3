"""Reductions of several tiles at once, and reductions within larger kernels."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.core.reductions.reduction_case import axis_text, reduction_case
from tilewright_conformance.oracles.dtypes import (
    IR,
    kind,
)
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import combining
from tilewright_conformance.testlib.combining import Shape
from tilewright_conformance.testlib.numbers import check, unset
from tilewright_conformance.testlib.tiles import positions


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


def several_cases() -> Iterator[Case]:
    for shape in ((4, 64), (16, 1), (1, 256), (8, 8)):
        text = "x".join(map(str, shape))
        run = functools.partial(_moments, shape)
        yield reduction_case(
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
            elements, text = int(np.prod(shape)), axis_text(shape, axis, False)
            run = functools.partial(_turns, name, shape, axis)
            yield reduction_case(
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
            yield reduction_case(
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


def kernel_cases() -> Iterator[Case]:
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
        yield reduction_case(
            f"keep_dims/{IR[name]}/{axis_text(shape, axis, True)}",
            "tl.max",
            run,
            name,
            tile=int(np.prod(shape)),
            quick=index % 3 == 0,
        )
    for three in ((4, 8, 2), (2, 2, 32), (16, 4, 8)):
        text = "x".join(map(str, three))
        yield reduction_case(
            f"twice/i32/{text}",
            "tl.sum",
            functools.partial(_twice, three),
            "int32",
            tile=int(np.prod(three)),
            quick=three[0] == 4,
        )
    for size in (4, 16, 64):
        yield reduction_case(
            f"cross/i32/{size}x{size}",
            "tl.sum",
            functools.partial(_cross_totals, size),
            "int32",
            tile=size * size,
            quick=size == 16,
        )
    for block in (32, 256, 1024):
        yield reduction_case(
            f"rows/f32/block_{block}",
            "tl.sum",
            functools.partial(_rows_summed, block),
            "float32",
            tile=block,
            quick=block == 256,
        )
