"""Gathers along an axis of a tile, and histograms, as Tile IR and in the language.

The language's have indices and masks of all kinds, and NumPy as the oracle.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import INTEGERS, IR, SIGNED
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.combining import Shape
from tilewright_conformance.testlib.numbers import check, wide
from tilewright_conformance.testlib.sampled_cases import sampled
from tilewright_conformance.testlib.tiles import positions

_case = Table("gathers", "memory").case


def cases() -> Iterator[Case]:
    for case in sampled("gathers", "memory", {"gather": True, "histogram": True}):
        narrow = any(name.startswith("f8") for name in case.needs.dtypes)
        yield dataclasses.replace(case, profile="fp8") if narrow else case
    yield from _gathers()
    yield from _histograms()


@tw.jit
def picked(x_ptr, index_ptr, out, SHAPE: tl.constexpr, INDICES: tl.constexpr, AXIS: tl.constexpr):
    at = positions(INDICES)
    tl.store(out + at, tl.gather(tl.load(x_ptr + positions(SHAPE)), tl.load(index_ptr + at), AXIS))


@tw.jit
def chased(x_ptr, out, steps, BLOCK: tl.constexpr):
    """Each element goes to where it points, some steps in a row."""
    at = tl.arange(0, BLOCK)
    links = tl.load(x_ptr + at)
    places = at
    for _ in range(steps):
        places = tl.gather(links, places, 0)
    tl.store(out + at, places)


def _pick(
    name: str, index_type: str, shape: Shape, extent: int, axis: int, session: Session
) -> None:
    """Indices of any order, the first and the last of all, reversed ones, one for all."""
    x = wide(session.rng, name, shape)
    indices = tuple(extent if i == axis % len(shape) else size for i, size in enumerate(shape))
    last = shape[axis] - 1
    line = np.arange(extent).reshape(
        [-1 if i == axis % len(shape) else 1 for i in range(len(shape))]
    )
    sets = [
        session.rng.integers(0, last, indices, endpoint=True),
        np.broadcast_to(last - line % (last + 1), indices),
        np.full(indices, last),
    ]
    for index in sets:
        index = np.ascontiguousarray(index).astype(index_type)
        found = np.zeros(indices, x.dtype)
        session.launch(picked, (1,), x, index, found, SHAPE=shape, INDICES=indices, AXIS=axis)
        check(session, found, np.take_along_axis(x, index.astype(np.int64), axis))


def _chase(block: int, session: Session) -> None:
    links = session.rng.permutation(block).astype(np.int32)
    for steps in (0, 1, 7):
        found = np.zeros(block, np.int32)
        session.launch(chased, (1,), links, found, steps, BLOCK=block)
        expected = np.arange(block, dtype=np.int32)
        for _ in range(steps):
            expected = links[expected]
        session.check(found, expected, name=f"{steps} steps")


def _gathers() -> Iterator[Case]:
    places: tuple[tuple[Shape, int, int], ...] = (
        ((64,), 64, 0),
        ((8, 16), 16, 1),
        ((8, 16), 8, 0),
        ((32,), 4, 0),
        ((4,), 128, -1),
        ((16, 4), 64, 0),
        ((4, 32), 2, 1),
        ((2, 4, 8), 4, 1),
        ((4, 2, 8), 16, 0),
        ((2, 8, 4), 4, -1),
        ((1, 16), 16, 1),
        ((128, 2), 128, 0),
        ((64, 1), 32, 0),
    )
    names = (
        "float32",
        "int8",
        "float16",
        "int64",
        "bool",
        "bfloat16",
        "uint16",
        "int32",
        "float64",
    )
    for index, (shape, extent, axis) in enumerate(places):
        for turn in range(3):
            name = names[(index + 2 * turn) % len(names)]
            index_type = "int32" if turn == 0 else INTEGERS[(3 * index + turn) % 8]
            indices = [extent if i == axis % len(shape) else size for i, size in enumerate(shape)]
            run = functools.partial(_pick, name, index_type, shape, extent, axis)
            place = f"{'x'.join(map(str, shape))}_{extent}_{axis % len(shape)}"
            text = f"tl.gather/{IR[name]}/{place}_{IR[index_type]}"
            elements = max(int(np.prod(shape)), int(np.prod(indices)))
            yield _case(
                text,
                "tl.gather",
                run,
                name,
                index_type,
                tile=elements,
                quick=(index + turn) % 6 == 0,
            )
    for block in (8, 256):
        yield _case(
            f"chain/i32/{block}",
            "tl.gather",
            functools.partial(_chase, block),
            "int32",
            tile=block,
            quick=block == 256,
        )


# ---- histograms


@tw.jit
def counted(x_ptr, mark_ptr, out, kept, N: tl.constexpr, BINS: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    at = tl.arange(0, BINS)
    counts = tl.histogram(x, BINS)
    tl.static_assert(counts.dtype == tl.int32)
    tl.store(out + at, counts)
    tl.store(kept + at, tl.histogram(x, BINS, mask=tl.load(mark_ptr + tl.arange(0, N)) != 0))


@tw.jit
def counted_in_blocks(x_ptr, out, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """An array of any length, with what is behind its end masked off."""
    counts = tl.zeros((BINS,), tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        counts += tl.histogram(tl.load(x_ptr + at, mask=at < n, other=0), BINS, mask=at < n)
    tl.store(out + tl.arange(0, BINS), counts)


def _count(name: str, n: int, bins: int, session: Session) -> None:
    """Values beyond the last bin, and below the first, are in none."""
    ends = np.iinfo(name)
    low, high = max(-3, ends.min), min(bins + 2, ends.max)
    for x in (
        session.rng.integers(low, high, n, endpoint=True),
        np.full(n, min(bins - 1, ends.max)),
        wide(session.rng, name, n),
    ):
        x = x.astype(name)
        for marks in (session.rng.integers(0, 2, n), np.zeros(n)):
            out, kept = np.full(bins, -1, np.int32), np.full(bins, -1, np.int32)
            session.launch(counted, (1,), x, marks.astype(np.int8), out, kept, N=n, BINS=bins)
            for found, chosen, text in ((out, x, "all"), (kept, x[marks != 0], "masked")):
                inside = (
                    chosen[(chosen >= 0) & (chosen < bins)].astype(np.int64)
                    if name in SIGNED
                    else chosen[chosen < bins].astype(np.int64)
                )
                session.check(
                    found, np.bincount(inside, minlength=bins).astype(np.int32), name=text
                )


def _count_in_blocks(block: int, bins: int, session: Session) -> None:
    for n in (1, block + 1, 5 * block - 3):
        x, found = session.rng.integers(0, bins, n).astype(np.int32), np.zeros(bins, np.int32)
        session.launch(counted_in_blocks, (1,), x, found, n, BLOCK=block, BINS=bins)
        session.check(found, np.bincount(x, minlength=bins).astype(np.int32), name=f"{n} values")


def _histograms() -> Iterator[Case]:
    sizes = ((256, 8), (32, 128), (64, 1), (16, 16), (1024, 64), (1, 4), (512, 2), (128, 256))
    for index, name in enumerate(INTEGERS):
        for n, bins in (sizes[index % 8], sizes[(index + 3) % 8], sizes[(index + 5) % 8]):
            run = functools.partial(_count, name, n, bins)
            text = f"tl.histogram/{IR[name]}/{n}_{bins}"
            yield _case(
                text,
                "tl.histogram",
                run,
                name,
                "int8",
                tile=max(n, bins),
                quick=n == 256 or (n, index % 3) == (32, 0),
            )
    for block, bins in ((64, 16), (512, 256)):
        run = functools.partial(_count_in_blocks, block, bins)
        yield _case(
            f"histogram_blocks/i32/{block}_{bins}",
            "tl.histogram",
            run,
            "int32",
            tile=max(block, bins),
            quick=block == 64,
        )
