"""Loads and stores: samples as Tile IR, and masked accesses in the language, against NumPy.

Arrays have one to four axes, and tails of every size. A masked-off lane loads ``other``, zero
without it; memory of a masked-off store stays as it was. Arrays are dense; other strides are those
of profile ``memory``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.core.access.masked_off import masked_off_cases
from tilewright_conformance.oracles.dtypes import INTEGERS, IR, NUMBERS, SIGNED, kind, language
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.numbers import check, wide
from tilewright_conformance.testlib.sampled_cases import sampled
from tilewright_conformance.testlib.tiles import positions

#: Words in the names of samples of load and store that say more than where: hints, and pointers in
#: memory.
_MEMORY = ("cache_", "eviction_", "volatile_", "/ptr/")

_case = Table("access", "core").case


def cases() -> Iterator[Case]:
    for case in sampled(
        "access", "core", dict.fromkeys(("load", "store", "addptr", "barrier"), True)
    ):
        if any(name.startswith("f8") for name in case.needs.dtypes):
            yield dataclasses.replace(case, profile="fp8")
        else:
            yield (
                dataclasses.replace(case, profile="memory")
                if any(word in case.id for word in _MEMORY)
                else case
            )
    yield from _lines()
    yield from _boxes()
    yield from _masks()
    yield from masked_off_cases()
    yield from _offsets()
    yield from _programs()


# ---- one axis: tails


@tw.jit
def copied(x_ptr, out, whole, n, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    """Copy the lanes inside; ``whole`` shows the values of the lanes outside."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=OTHER)
    tl.store(out + at, x, mask=inside)
    tl.store(whole + at, x)


#: Lengths around multiples of vectors, warps and blocks.
_LENGTHS = (1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 255, 257, 1000, 1023)


def _tails(name: str, other: float, block: int, lengths: tuple[int, ...], session: Session) -> None:
    for n in lengths:
        blocks = -(-n // block)
        x = wide(session.rng, name, n)
        found, whole = np.zeros_like(x), np.zeros(blocks * block, x.dtype)
        session.launch(copied, (blocks,), x, found, whole, n, OTHER=other, BLOCK=block)
        check(session, found, x, name=f"copy of {n}")
        beyond = np.full(blocks * block, other).astype(x.dtype)
        beyond[:n] = x
        check(session, whole, beyond, name=f"blocks of {n}")


def _lines() -> Iterator[Case]:
    for index, name in enumerate((*NUMBERS, "bool")):
        others: dict[str, float] = {"zero": 0, "number": 1 if name == "bool" else 93}
        if name in ("float16", "bfloat16", "float32", "float64"):
            others |= {"fraction": -1.5, "nan": float("nan"), "infinity": float("inf")}
        elif name in SIGNED:
            others |= {"minus_one": -1, "smallest": int(np.iinfo(name).min)}
        elif name != "bool":
            others |= {"largest": int(np.iinfo(name).max)}
        for text, other in others.items():
            lengths = _LENGTHS if text == "number" else _LENGTHS[index % 3 :: 3]
            run = functools.partial(_tails, name, other, 128, lengths)
            own = (
                ("float32",) if isinstance(other, float) else ()
            )  # the type of a number with a fraction, before it is cast
            yield _case(
                f"tail/{IR[name]}/other_{text}",
                "tl.load(other)",
                run,
                name,
                *own,
                tile=128,
                quick=index % 4 == 0 and text in ("number", "nan"),
            )
    for index, block in enumerate((1, 2, 8, 32, 64, 256, 512, 2048, 8192)):
        lengths = tuple(
            sorted({1, max(1, block - 1), block, block + 1, 2 * block + 3, 5 * block - 1})
        )
        for name in ("float32", "int8" if index % 2 else "float16"):
            run = functools.partial(_tails, name, 3, block, lengths)
            yield _case(
                f"tail/{IR[name]}/block_{block}",
                "tl.load",
                run,
                name,
                tile=block,
                quick=block in (1, 32, 2048) and name == "float32",
            )
    run = functools.partial(_tails, "int16", 5, 1024, (100003,))
    yield _case("tail/i16/many_programs", "tl.load", run, "int16", tile=1024, quick=True)


# ---- two to four axes


@tw.jit
def copied_2d(
    x_ptr,
    out,
    whole,
    m,
    n,
    row,
    column,
    OTHER: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Copy a matrix block by block.

    ``row`` and ``column`` are the distances between rows and between columns.
    """
    y, x = (
        tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None],
        tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :],
    )
    inside = (y < m) & (x < n)
    tile = tl.load(x_ptr + y * row + x * column, mask=inside, other=OTHER)
    tl.store(out + y * row + x * column, tile, mask=inside)
    tl.store(whole + y * (tl.num_programs(1) * COLUMNS) + x, tile)


@tw.jit
def copied_3d(x_ptr, out, whole, a, b, c, SHAPE: tl.constexpr):
    x = tl.arange(0, SHAPE[0])[:, None, None]
    y = tl.arange(0, SHAPE[1])[None, :, None]
    z = tl.arange(0, SHAPE[2])[None, None, :]
    inside = (x < a) & (y < b) & (z < c)
    tile = tl.load(x_ptr + (x * b + y) * c + z, mask=inside, other=-2)
    tl.store(out + (x * b + y) * c + z, tile, mask=inside)
    tl.store(whole + positions(SHAPE), tile)


@tw.jit
def copied_4d(x_ptr, out, whole, a, b, c, d, SHAPE: tl.constexpr):
    x = tl.arange(0, SHAPE[0])[:, None, None, None]
    y = tl.arange(0, SHAPE[1])[None, :, None, None]
    z = tl.arange(0, SHAPE[2])[None, None, :, None]
    w = tl.arange(0, SHAPE[3])[None, None, None, :]
    inside = (x < a) & (y < b) & (z < c) & (w < d)
    tile = tl.load(x_ptr + ((x * b + y) * c + z) * d + w, mask=inside, other=-2)
    tl.store(out + ((x * b + y) * c + z) * d + w, tile, mask=inside)
    tl.store(whole + positions(SHAPE), tile)


@tw.jit
def transposed(x_ptr, out, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The transpose: read by rows, written by columns."""
    y, x = (
        tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None],
        tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :],
    )
    inside = (y < m) & (x < n)
    tl.store(out + x * m + y, tl.load(x_ptr + y * n + x, mask=inside), mask=inside)


def _matrix(name: str, block: tuple[int, int], by_columns: bool, session: Session) -> None:
    for m, n in (
        (block[0] - 1 or 1, block[1] - 3 if block[1] > 3 else 1),
        (2 * block[0] + 1, block[1] + 5),
        block,
    ):
        x = wide(session.rng, name, (m, n))
        stored = np.asfortranarray(x) if by_columns else x
        found = np.zeros_like(stored)
        grid = (-(-m // block[0]), -(-n // block[1]))
        whole = np.zeros((grid[0] * block[0], grid[1] * block[1]), x.dtype)
        row, column = (step // x.itemsize for step in stored.strides)
        if by_columns:
            row, column = 1, m
        session.launch(
            copied_2d,
            grid,
            stored,
            found,
            whole,
            m,
            n,
            row,
            column,
            OTHER=7,
            ROWS=block[0],
            COLUMNS=block[1],
        )
        check(session, found, x, name=f"copy of {m}x{n}")
        beyond = np.full(whole.shape, 7).astype(x.dtype)
        beyond[:m, :n] = x
        check(session, whole, beyond, name=f"blocks of {m}x{n}")


def _box(name: str, shape: tuple[int, ...], extents: tuple[int, ...], session: Session) -> None:
    x = wide(session.rng, name, extents)
    found, whole = np.zeros_like(x), np.zeros(shape, x.dtype)
    session.launch(
        copied_3d if len(shape) == 3 else copied_4d, (1,), x, found, whole, *extents, SHAPE=shape
    )
    check(session, found, x)
    beyond = np.full(shape, -2).astype(x.dtype)
    beyond[tuple(slice(0, extent) for extent in extents)] = x
    check(session, whole, beyond, name="whole tile")


def _turn(name: str, block: tuple[int, int], session: Session) -> None:
    for m, n in ((1, 5), (33, 70), (64, 64)):
        x = wide(session.rng, name, (m, n))
        found = np.zeros((n, m), x.dtype)
        session.launch(
            transposed,
            (-(-m // block[0]), -(-n // block[1])),
            x,
            found,
            m,
            n,
            ROWS=block[0],
            COLUMNS=block[1],
        )
        check(session, found, x.T, name=f"transpose of {m}x{n}")


def _boxes() -> Iterator[Case]:
    names = ("float32", "int8", "float16", "int64", "bfloat16", "uint16", "float64")
    for index, block in enumerate(((8, 16), (1, 64), (64, 1), (4, 4), (16, 64), (32, 8), (128, 2))):
        for by_columns in (False, True):
            name, elements = names[(index + 3 * by_columns) % 7], block[0] * block[1]
            text = f"matrix/{IR[name]}/{block[0]}x{block[1]}_{'columns' if by_columns else 'rows'}"
            run = functools.partial(_matrix, name, block, by_columns)
            yield _case(
                text,
                "tl.load(mask)",
                run,
                name,
                tile=elements,
                quick=index in (0, 3) or (index == 5 and by_columns),
            )
        run = functools.partial(_turn, name, block)
        yield _case(
            f"transpose/{IR[name]}/{block[0]}x{block[1]}",
            "tl.store(mask)",
            run,
            name,
            tile=elements,
            quick=index == 4,
        )
    boxes = (
        ((4, 8, 16), (3, 5, 11)),
        ((2, 2, 64), (1, 2, 61)),
        ((8, 1, 8), (7, 1, 8)),
        ((2, 4, 4, 8), (2, 3, 4, 5)),
        ((4, 2, 8, 2), (3, 1, 7, 2)),
    )
    for index, (shape, extents) in enumerate(boxes):
        for name in ("float32", ("int8", "int64", "float16", "int16", "int32")[index]):
            text = f"box/{IR[name]}/{'x'.join(map(str, extents))}"
            run = functools.partial(_box, name, shape, extents)
            yield _case(
                text,
                "tl.load(mask)",
                run,
                name,
                tile=int(np.prod(shape)),
                quick=index % 3 == 0 and name == "float32",
            )


# ---- masks that are data, scalars, of fewer axes


@tw.jit
def where_marked(x_ptr, mark_ptr, other_ptr, loaded, stored, SHAPE: tl.constexpr):
    at = positions(SHAPE)
    marked = tl.load(mark_ptr + at) != 0
    x = tl.load(x_ptr + at, mask=marked, other=tl.load(other_ptr + at))
    tl.store(loaded + at, x)
    tl.store(stored + at, x, mask=marked)


@tw.jit
def where_row_marked(x_ptr, mark_ptr, loaded, stored, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A mask of one row, and one of one column, for a whole tile; the stored value is a row."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at = rows[:, None] * COLUMNS + columns[None, :]
    row = tl.load(mark_ptr + columns)[None, :] != 0
    column = tl.load(mark_ptr + rows)[:, None] != 0
    tl.store(loaded + at, tl.load(x_ptr + at, mask=row, other=5))
    tl.store(stored + at, tl.load(x_ptr + columns)[None, :], mask=column)


@tw.jit
def all_or_nothing(x_ptr, loaded, stored, limit, BLOCK: tl.constexpr):
    """A mask that is a scalar condition."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    run = tl.program_id(0) < limit
    x = tl.load(x_ptr + at, mask=run, other=-4)
    tl.store(loaded + at, x)
    tl.store(stored + at, x, mask=run)


@tw.jit
def single_elements(x_ptr, loaded, stored, limit):
    program = tl.program_id(0)
    x = tl.load(x_ptr + program, mask=program < limit, other=9)
    tl.store(loaded + program, x)
    tl.store(stored + program, x, mask=program < limit)


@tw.jit
def converted_on_store(x_ptr, out, BLOCK: tl.constexpr):
    """Values are cast to what the pointer points to, numbers and scalars fill the block."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x_ptr + at))
    tl.store(out + BLOCK + at, 7)
    tl.store(out + 2 * BLOCK + at, tl.load(x_ptr))


def _marked(name: str, shape: tuple[int, ...], session: Session) -> None:
    x, other, before = (wide(session.rng, name, shape) for _ in range(3))
    for mark in (
        session.rng.integers(0, 2, shape),
        np.zeros(shape),
        np.ones(shape),
        session.rng.integers(0, 16, shape) == 0,
    ):
        marks = mark.astype(np.int8)
        loaded, stored = np.zeros_like(x), before.copy()
        session.launch(where_marked, (1,), x, marks, other, loaded, stored, SHAPE=shape)
        check(session, loaded, np.where(marks != 0, x, other), name="load")
        check(session, stored, np.where(marks != 0, x, before), name="store")


def _row_marked(name: str, session: Session) -> None:
    x, marks = wide(session.rng, name, (8, 32)), session.rng.integers(0, 2, 32).astype(np.int8)
    loaded, stored = np.zeros_like(x), np.full((8, 32), 3).astype(x.dtype)
    session.launch(where_row_marked, (1,), x, marks, loaded, stored, ROWS=8, COLUMNS=32)
    check(session, loaded, np.where(marks != 0, x, kind(name).type(5)), name="load")
    check(session, stored, np.where(marks[:8, None] != 0, x[0], kind(name).type(3)), name="store")


def _scalar_mask(name: str, session: Session) -> None:
    x = wide(session.rng, name, (5, 32))
    loaded, stored = np.zeros_like(x), np.ones_like(x)
    session.launch(all_or_nothing, (5,), x, loaded, stored, 3, BLOCK=32)
    below = np.arange(5)[:, None] < 3
    check(session, loaded, np.where(below, x, kind(name).type(-4)), name="load")
    check(session, stored, np.where(below, x, kind(name).type(1)), name="store")
    x = x.ravel()[:20].copy()
    loaded, stored = np.zeros_like(x), np.ones_like(x)
    session.launch(single_elements, (20,), x, loaded, stored, 13)
    below = np.arange(20) < 13
    check(session, loaded, np.where(below, x, kind(name).type(9)), name="scalar load")
    check(session, stored, np.where(below, x, kind(name).type(1)), name="scalar store")


def _on_store(source: str, target: str, session: Session) -> None:
    x = session.rng.integers(0, 100, 64).astype(kind(source))
    found = np.zeros((3, 64), kind(target))
    session.launch(converted_on_store, (1,), x, found, BLOCK=64)
    y = x.astype(kind(target))
    check(session, found, np.stack([y, np.full(64, 7).astype(y.dtype), np.full(64, y[0])]))


def _masks() -> Iterator[Case]:
    shapes = ((64,), (8, 16), (128,), (2, 4, 8), (1,), (16, 2), (2, 2, 4, 4), (512,))
    for index, name in enumerate((*NUMBERS, "bool")):
        shape = shapes[index % len(shapes)]
        text, elements = "x".join(map(str, shape)), int(np.prod(shape))
        run = functools.partial(_marked, name, shape)
        yield _case(
            f"marked/{IR[name]}/{text}",
            "tl.store(mask)",
            run,
            name,
            "int8",
            tile=elements,
            quick=index % 5 == 0,
        )
    for index, name in enumerate(("int32", "float32", "float16", "int8", "float64")):
        run = functools.partial(_row_marked, name)
        yield _case(
            f"row_mask/{IR[name]}/8x32",
            "tl.load(mask)",
            run,
            name,
            "int8",
            tile=256,
            quick=index == 1,
        )
        yield _case(
            f"scalar_mask/{IR[name]}/32",
            "tl.load(mask)",
            functools.partial(_scalar_mask, name),
            name,
            tile=32,
            quick=index == 0,
        )
    pairs = (
        ("int32", "int8"),
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("int8", "int64"),
        ("float32", "int32"),
        ("int16", "float32"),
    )
    for index, (source, target) in enumerate((*pairs, ("uint8", "float64"))):
        run = functools.partial(_on_store, source, target)
        yield _case(
            f"store_cast/{IR[source]}_{IR[target]}/64",
            "tl.store",
            run,
            source,
            target,
            tile=64,
            quick=index % 4 == 0,
        )


# ---- offsets


@tw.jit
def picked(x_ptr, offset_ptr, out, START: tl.constexpr, SCALAR: tl.constexpr, BLOCK: tl.constexpr):
    """Load elements at offsets from element START, with the pointer as either operand."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offset = tl.load(offset_ptr + at)
    base = x_ptr + START
    tl.store(out + at, tl.load(base + offset))
    if SCALAR:
        one = tl.load(offset_ptr + tl.program_id(0))
        tl.store(out + tl.num_programs(0) * BLOCK + tl.program_id(0), tl.load(one + base))


@tw.jit
def there_and_back(x_ptr, far_ptr, out, BLOCK: tl.constexpr):
    """Far beyond the array, and back to it."""
    at = tl.arange(0, BLOCK)
    far = tl.load(far_ptr)
    tl.store(out + at, tl.load(x_ptr + far + at - far.to(tl.int64)))


@tw.jit
def backwards(x_ptr, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x_ptr + (n - 1) - at, mask=at < n, other=0), mask=at < n)


@tw.jit
def one_for_all(x_ptr, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Every row reads the same elements, then every column."""
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    at = rows * COLUMNS + columns
    tl.store(out + at, tl.load(x_ptr + columns + rows * 0))
    tl.store(out + ROWS * COLUMNS + at, tl.load(x_ptr + rows + columns * 0))


def _offset(name: str, element: str, session: Session) -> None:
    ends, block, programs = np.iinfo(name), 64, 4
    # The reach of narrow offsets is used whole; arrays stay small for wide ones.
    low, high = max(ends.min, -(1 << 15)), min(ends.max, (1 << 16) - 1)
    x = wide(session.rng, element, high - low + 1)
    offsets = session.rng.integers(low, high, block * programs, endpoint=True)
    offsets[:4] = low, high, 0, min(high, ends.max // 2 + 1)
    found = np.zeros(block * programs + programs, x.dtype)
    session.launch(
        picked, (programs,), x, offsets.astype(name), found, START=-low, SCALAR=True, BLOCK=block
    )
    check(session, found[: block * programs], x[offsets - low], name="tile of offsets")
    check(session, found[block * programs :], x[offsets[:programs] - low], name="scalar offset")


def _far(far: int, name: str, session: Session) -> None:
    x = wide(session.rng, "int16", 32)
    found = np.zeros_like(x)
    session.launch(there_and_back, (1,), x, np.array([far], name), found, BLOCK=32)
    session.check(found, x)


def _backwards(name: str, session: Session) -> None:
    for n in (1, 31, 64, 301):
        x = wide(session.rng, name, n)
        found = np.zeros_like(x)
        session.launch(backwards, (-(-n // 64),), x, found, n, BLOCK=64)
        check(session, found, x[::-1])


def _one_for_all(name: str, session: Session) -> None:
    x = wide(session.rng, name, 32)
    found = np.zeros((2, 16, 32), x.dtype)
    session.launch(one_for_all, (1,), x, found, ROWS=16, COLUMNS=32)
    check(session, found[0], np.broadcast_to(x, (16, 32)))
    check(session, found[1], np.broadcast_to(x[:16, None], (16, 32)))


def _offsets() -> Iterator[Case]:
    for index, name in enumerate(INTEGERS):
        for element in (
            ("float32", "int8", "float64", "float16")[index % 4],
            ("uint8", "int64", "bfloat16", "int32")[index % 4],
        ):
            run = functools.partial(_offset, name, element)
            quick = name in ("uint8", "int8", "uint16") and element in (
                "float32",
                "int8",
                "float64",
            )
            yield _case(
                f"offset/{IR[name]}/{IR[element]}",
                "p + i",
                run,
                name,
                element,
                tile=64,
                quick=quick,
            )
    for text, far, own in (
        ("u32", 2**32 - 8, "uint32"),
        ("i64", 2**40, "int64"),
        ("i64_negative", -(2**40), "int64"),
        ("i32_negative", -(2**31), "int32"),
    ):
        yield _case(
            f"offset/far/{text}",
            "p + i",
            functools.partial(_far, far, own),
            "int16",
            own,
            tile=32,
            quick=text == "u32",
        )
    for index, name in enumerate(("float32", "int8", "bfloat16", "int64")):
        yield _case(
            f"reversed/{IR[name]}/64",
            "tl.load",
            functools.partial(_backwards, name),
            name,
            tile=64,
            quick=index == 0,
        )
        yield _case(
            f"repeated/{IR[name]}/16x32",
            "tl.load",
            functools.partial(_one_for_all, name),
            name,
            tile=512,
            quick=index == 1,
        )


# ---- programs, and accesses that follow each other


@tw.jit
def own_places(out, ids, programs, BLOCK: tl.constexpr):
    """Write each program's own block and its ids; a program outside the grid writes nothing."""
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    program = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    at = tl.arange(0, BLOCK)
    inside = (program >= 0) & (program < programs)
    tl.store(out + program * BLOCK + at, at + program, mask=inside)
    tl.store(ids + program, x + 100 * y + 10000 * z, mask=inside)


@tw.jit
def written_and_read(x_ptr, scratch, out, BLOCK: tl.constexpr):
    """Read elements that another part of the program has written, after a barrier, twice over."""
    start = tl.program_id(0) * BLOCK
    at = tl.arange(0, BLOCK)
    tl.store(scratch + start + at, tl.load(x_ptr + start + at))
    tl.debug_barrier()
    backwards = tl.load(scratch + start + (BLOCK - 1) - at)
    tl.debug_barrier()
    tl.store(scratch + start + at, backwards + 1)
    tl.debug_barrier()
    tl.store(out + start + at, tl.load(scratch + start + ((at + 5) & (BLOCK - 1))))


@tw.jit
def in_place(x_ptr, n, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, (x + 1).to(TYPE), mask=at < n)


def _grid(grid: tuple[int, ...], session: Session) -> None:
    programs = int(np.prod(grid))
    found, ids = np.zeros((programs, 16), np.int32), np.zeros(programs, np.int32)
    session.launch(own_places, grid, found, ids, programs, BLOCK=16)
    session.check(found, (np.arange(16) + np.arange(programs)[:, None]).astype(np.int32))
    x, y, z = (*grid, 1, 1)[:3]
    numbers = np.arange(x) + 100 * np.arange(y)[:, None] + 10000 * np.arange(z)[:, None, None]
    session.check(ids, numbers.ravel().astype(np.int32), name="program ids")


def _written_and_read(name: str, block: int, session: Session) -> None:
    x = session.rng.integers(0, 100, (6, block)).astype(kind(name))
    scratch, found = np.zeros_like(x), np.zeros_like(x)
    session.launch(written_and_read, (6,), x, scratch, found, BLOCK=block)
    check(session, found, np.roll(x[:, ::-1] + kind(name).type(1), -5, 1))


def _in_place(name: str, session: Session) -> None:
    x = session.rng.integers(0, 100, 777).astype(kind(name))
    before = x.copy()
    for _ in range(3):
        session.launch(in_place, (7,), x, 700, TYPE=language(name), BLOCK=128)
    before[:700] += kind(name).type(3)
    check(session, x, before)


def _programs() -> Iterator[Case]:
    for grid in (
        (1,),
        (7,),
        (1000,),
        (70001,),
        (3, 5),
        (1, 1, 1),
        (2, 3, 4),
        (1, 7, 1),
        (1, 1, 9),
        (17, 1, 3),
    ):
        text = "x".join(map(str, grid))
        yield _case(
            f"grid/i32/{text}",
            "tl.program_id",
            functools.partial(_grid, grid),
            "int32",
            tile=16,
            quick=text in ("7", "2x3x4"),
        )
    for index, (name, block) in enumerate(
        (("int32", 64), ("float32", 1024), ("int8", 256), ("float16", 32), ("int64", 2048))
    ):
        run = functools.partial(_written_and_read, name, block)
        yield _case(
            f"barrier/{IR[name]}/{block}",
            "tl.debug_barrier",
            run,
            name,
            tile=block,
            quick=index < 2,
        )
        yield _case(
            f"in_place/{IR[name]}/128",
            "tl.store",
            functools.partial(_in_place, name),
            name,
            tile=128,
            quick=index == 0,
        )
