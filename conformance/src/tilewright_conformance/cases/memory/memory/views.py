"""Copies between arrays of any strides, bit by bit; memory between and around stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.parser import parse_module
from tilewright_conformance.oracles.dtypes import ELEMENTS, PORTABLE, Array, given, storage
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.bits import poison, random_bits, same_bits
from tilewright_conformance.testlib.case_table import Table, elements

case = Table("memory", "memory")

#: Extents that end inside a tile, at its edge, and just behind it.
SIZES = (1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 1000, 1023, 1025)
SHAPES = ((1, 1), (1, 7), (5, 1), (7, 13), (16, 32), (33, 65))


@tw.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@tw.jit(do_not_specialize=("rows", "columns", "x_row", "x_column", "y_row", "y_column"))
def copy_matrix(
    x, y, rows, columns, x_row, x_column, y_row, y_column, R: tl.constexpr, C: tl.constexpr
):
    r = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    c = tl.program_id(1) * C + tl.arange(0, C)[None, :]
    inside = (r < rows) & (c < columns)
    tl.store(
        y + r * y_row + c * y_column,
        tl.load(x + r * x_row + c * x_column, mask=inside),
        mask=inside,
    )


def steps(array: Array) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(stride // array.itemsize for stride in array.strides)


@case(
    "sizes",
    "tl.load",
    each=tuple(name for name in ELEMENTS),
    needs=lambda element: elements(element, tile=128),
    quick=("i1", "i8", "u16", "f32", "f8e5m2"),
)
def sizes(session: Session, element: str) -> None:
    """Arrays of odd lengths; what follows the part that is copied stays."""
    for n in SIZES:
        x, y = random_bits(session.rng, element, n), poison(element, n + 8)
        expected = y.copy()
        expected[:n] = x
        session.launch(copy, (-(-n // 128),), given(x, element), given(y, element), n, BLOCK=128)
        same_bits(session, y, expected, f"{n} elements")


@case(
    "blocks",
    "tl.load",
    each={str(block): block for block in (1, 2, 16, 1024, 8192)},
    needs=lambda block: elements("f32", tile=block),
    quick=("1", "1024"),
)
def blocks(session: Session, block: int) -> None:
    """Tiles of one element to many, one program or several."""
    for n in (1, block, block + 1, 3 * block - 1):
        x, y = random_bits(session.rng, "f32", n), poison("f32", n)
        session.launch(copy, (-(-n // block),), x, y, n, BLOCK=block)
        same_bits(session, y, x, f"{n} elements")


def _whole(data: Array, rows: int, columns: int) -> Array:
    return data[: rows * columns].reshape(rows, columns)


#: name -> the part of an array of 40000 elements that is a matrix of so many rows and columns
LAYOUTS: dict[str, Callable[[Array, int, int], Array]] = {
    "dense": _whole,
    "transposed": lambda data, r, c: _whole(data, c, r).T,
    "rows-apart": lambda data, r, c: _whole(data, r, c + 5)[:, :c],
    "every-other": lambda data, r, c: _whole(data, 2 * r, 2 * c)[::2, 1::2],
    "thirds-of-columns": lambda data, r, c: _whole(data, r, 3 * c)[:, 2::3],
    "offset": lambda data, r, c: _whole(data, r + 2, c + 3)[1:-1, 3:],
    "unaligned": lambda data, r, c: _whole(data[1:], r, c),
    "rows-reversed": lambda data, r, c: _whole(data, r, c)[::-1],
    "columns-reversed": lambda data, r, c: _whole(data, r, c)[:, ::-1],
    "reversed-transposed": lambda data, r, c: _whole(data, c, 2 * r)[::-1, ::-2].T,
}
#: those in which an element is there more than once, which are read only
REPEATING: dict[str, Callable[[Array, int, int], Array]] = {
    "one-row": lambda data, r, c: np.broadcast_to(data[7 : 7 + c], (r, c)),
    "one-column": lambda data, r, c: np.broadcast_to(data[3 : 3 + r, None], (r, c)),
    "one-element": lambda data, r, c: np.broadcast_to(data[11], (r, c)),
    "windows": lambda data, r, c: np.lib.stride_tricks.sliding_window_view(data[: r + c - 1], c),
    "windows-reversed": lambda data, r, c: np.lib.stride_tricks.sliding_window_view(
        data[: r + c - 1], c
    )[::-1],
}
_ROTATION = (*PORTABLE, "f64")


def _pairs() -> dict[str, tuple[str, str, str]]:
    """(source, target, element): every layout as source and as target, and each element."""
    found = {}
    targets = list(LAYOUTS)
    for index, source in enumerate((*LAYOUTS, *REPEATING)):
        for turn in (0, 3):
            target, element = (
                targets[(index * 3 + turn) % len(targets)],
                _ROTATION[(2 * index + turn) % len(_ROTATION)],
            )
            found[f"{source}_{target}/{element}"] = (source, target, element)
    return found


@case(
    "views",
    "tl.store",
    each=_pairs(),
    needs=lambda pair: elements(pair[2], tile=512),
    quick=(
        "dense_dense/i1",
        "transposed_unaligned/i8",
        "rows-apart_columns-reversed/i32",
        "windows_offset/bf16",
    ),
)
def views(session: Session, pair: tuple[str, str, str]) -> None:
    """A matrix of one layout into one of another."""
    source, target, element = pair
    for rows, columns in SHAPES:
        data, out = random_bits(session.rng, element, 40000), poison(element, 40000)
        expected = out.copy()
        x, y = (
            {**LAYOUTS, **REPEATING}[source](data, rows, columns),
            LAYOUTS[target](out, rows, columns),
        )
        LAYOUTS[target](expected, rows, columns)[...] = x
        grid = (-(-rows // 16), -(-columns // 32))
        session.launch(
            copy_matrix,
            grid,
            given(x, element),
            given(y, element),
            rows,
            columns,
            *steps(x),
            *steps(y),
            R=16,
            C=32,
        )
        same_bits(session, out, expected, f"{rows} x {columns} elements and their neighbours")


@tw.jit
def copy_axes(
    x,
    y,
    e0,
    e1,
    e2,
    e3,
    x0,
    x1,
    x2,
    x3,
    y0,
    y1,
    y2,
    y3,
    B0: tl.constexpr,
    B1: tl.constexpr,
    B2: tl.constexpr,
    B3: tl.constexpr,
):
    a = (tl.program_id(0) * B0 + tl.arange(0, B0))[:, None, None, None]
    b = tl.arange(0, B1)[None, :, None, None]
    c = (tl.program_id(1) * B2 + tl.arange(0, B2))[None, None, :, None]
    d = (tl.program_id(2) * B3 + tl.arange(0, B3))[None, None, None, :]
    inside = (a < e0) & (b < e1) & (c < e2) & (d < e3)
    value = tl.load(x + a * x0 + b * x1 + c * x2 + d * x3, mask=inside)
    tl.store(y + a * y0 + b * y1 + c * y2 + d * y3, value, mask=inside)


@case(
    "axes",
    "tl.store",
    each=("i8", "u16", "f32", "i64", "f8e4m3fn"),
    needs=lambda element: elements(element, tile=512),
    quick=("u16",),
)
def axes(session: Session, element: str) -> None:
    """Four axes, permuted on the way, over a grid of three."""
    for extents, order in (
        ((3, 2, 9, 17), (3, 1, 0, 2)),
        ((5, 4, 3, 2), (0, 2, 1, 3)),
        ((1, 1, 8, 8), (2, 3, 0, 1)),
    ):
        x = random_bits(session.rng, element, tuple(extents[axis] for axis in order)).transpose(
            np.argsort(order)
        )
        y = poison(element, extents)
        assert x.shape == extents
        grid = (-(-extents[0] // 2), -(-extents[2] // 8), -(-extents[3] // 8))
        session.launch(
            copy_axes,
            grid,
            given(x, element),
            given(y, element),
            *extents,
            *steps(x),
            *steps(y),
            B0=2,
            B1=4,
            B2=8,
            B3=8,
        )
        same_bits(session, y, x, f"axes {extents}")


@tw.jit
def transpose(x, y, rows, columns, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * C + tl.arange(0, C)
    value = tl.load(
        x + r[:, None] * columns + c[None, :], mask=(r[:, None] < rows) & (c[None, :] < columns)
    )
    tl.store(
        y + c[:, None] * rows + r[None, :],
        tl.trans(value),
        mask=(c[:, None] < columns) & (r[None, :] < rows),
    )


@case(
    "transpose",
    "tl.trans",
    each=("i8", "f16", "f32", "u64"),
    needs=lambda element: elements(element, tile=1024),
    quick=("f16",),
)
def transposes(session: Session, element: str) -> None:
    """Rows are read and columns are written, both without gaps."""
    for rows, columns in ((37, 70), (64, 32), (1, 33)):
        x, y = random_bits(session.rng, element, (rows, columns)), poison(element, (columns, rows))
        session.launch(
            transpose,
            (-(-rows // 32), -(-columns // 32)),
            given(x, element),
            given(y, element),
            rows,
            columns,
            R=32,
            C=32,
        )
        same_bits(session, y, x.T)


@tw.jit
def shift(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.debug_barrier()
    tl.store(y + at, value, mask=at < n)


@case(
    "overlap",
    "tl.store",
    each={"up": 1, "down": -1, "far": 30},
    needs=elements("i32", tile=128),
    quick=True,
)
def overlap(session: Session, by: int) -> None:
    """One program reads a part of an array and writes it to a part that overlaps."""
    data = random_bits(session.rng, "i32", 200)
    expected = data.copy()
    expected[64 + by : 64 + by + 100] = data[64:164]
    session.launch(shift, (1,), data[64:], data[64 + by :], 100, BLOCK=128)
    same_bits(session, data, expected)


@case(
    "empty/arrays",
    "tl.load",
    each=("i8", "f32"),
    needs=lambda element: elements(element, tile=512),
    quick=True,
)
def empty_arrays(session: Session, element: str) -> None:
    """Access no element of empty arrays; others beside them stay as they are."""
    nothing, data = np.empty(0, storage(element)), poison(element, 130)
    before = data.copy()
    session.launch(copy, (1,), nothing, np.empty(0, storage(element)), 0, BLOCK=128)
    session.launch(copy, (3,), nothing, data, 0, BLOCK=128)
    same_bits(session, data, before)
    flat = np.empty((0, 5), storage(element))
    session.launch(copy_matrix, (1, 1), flat, data[1:], 0, 5, 5, 1, 5, 1, R=16, C=32)
    same_bits(session, data, before)


@case(
    "empty/grids",
    "launch",
    each={"x": (0,), "y": (3, 0), "z": (2, 2, 0), "all": (0, 0, 0)},
    needs=elements("i32", tile=128),
    quick=True,
)
def empty_grids(session: Session, grid: tuple[int, ...]) -> None:
    """A grid without programs does nothing; the kernel works all the same."""
    x, y = random_bits(session.rng, "i32", 128), poison("i32", 128)
    before = y.copy()
    session.launch(copy, grid, x, y, 128, BLOCK=128)
    same_bits(session, y, before, "after a launch of nothing")
    session.launch(copy, (1,), x, y, 128, BLOCK=128)
    same_bits(session, y, x, "after a launch of one program")


_COUNTED = """tilewright.ir 1.0

kernel @counted(%out: ptr<i32>) {
  %one = constant 1 : i32
  %p = program_id {axis = 0} : i32
  %at = addptr %out, %p : ptr<i32>
  store %at, %one
  return
}
"""


@case(
    "empty/launches",
    "launch",
    each={"x": (0, 1, 1), "y": (3, 0, 1), "z": (2, 2, 0), "all": (0, 0, 0)},
    needs=elements("i32"),
    quick=True,
)
def empty_launches(session: Session, grid: tuple[int, int, int]) -> None:
    """Launch a grid without programs, which starts none, and one of two, which starts two.

    The launches go through the backend's own launcher.
    """
    module, out = parse_module(_COUNTED), np.zeros(4, np.int32)
    session.run_module(module, [out], grid)
    session.check(out, np.zeros(4, np.int32), name="after a launch of nothing")
    session.run_module(module, [out], (2, 1, 1))
    session.check(out, np.array([1, 1, 0, 0], np.int32), name="after a launch of two programs")
