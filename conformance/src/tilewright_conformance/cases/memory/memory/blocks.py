"""Block pointers: windows on strided arrays, their boundary checks, padding, and how they move."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import Array, given, storage
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.bits import poison, random_bits, same_bits
from tilewright_conformance.testlib.case_table import Table, elements

case = Table("memory", "memory")


def _launch(session: Session, *args: Any, **options: Any) -> None:
    """A launch without the warning that block pointers have a successor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        session.launch(*args, **options)


def window(data: Array, offsets: tuple[int, ...], block: tuple[int, ...], outside: Any) -> Array:
    """The block at some offsets of an array of any rank, with ``outside`` beyond the array."""
    found = np.full(block, outside, data.dtype)
    inside = tuple(
        slice(max(o, 0), max(min(o + b, n), 0))
        for o, b, n in zip(offsets, block, data.shape, strict=True)
    )
    if all(part.stop > part.start for part in inside):
        found[
            tuple(
                slice(part.start - o, part.stop - o)
                for part, o in zip(inside, offsets, strict=True)
            )
        ] = data[inside]
    return found


def paste(data: Array, offsets: tuple[int, ...], block: Array) -> Array:
    """The array with a block written at some offsets, cut off at the edges."""
    found = data.copy()
    inside = tuple(
        slice(max(o, 0), max(min(o + b, n), 0))
        for o, b, n in zip(offsets, block.shape, data.shape, strict=True)
    )
    if all(part.stop > part.start for part in inside):
        found[inside] = block[
            tuple(
                slice(part.start - o, part.stop - o)
                for part, o in zip(inside, offsets, strict=True)
            )
        ]
    return found


@tw.jit(do_not_specialize=("rows", "columns", "row", "column"))
def read_window(
    x,
    y,
    rows,
    columns,
    row,
    column,
    CHECK: tl.constexpr,
    PADDING: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
):
    pointer = tl.make_block_ptr(x, (rows, columns), (columns, 1), (row, column), (R, C), (1, 0))
    value = tl.load(pointer, boundary_check=CHECK, padding_option=PADDING)
    tl.store(tl.make_block_ptr(y, (R, C), (C, 1), (0, 0), (R, C), (1, 0)), value)


#: offsets of a window of 8 x 16 in an array of 20 x 30: inside, over each edge, beyond
_PLACES = (
    (0, 0),
    (3, 5),
    (12, 14),
    (17, 3),
    (3, 25),
    (17, 25),
    (-3, 4),
    (4, -5),
    (-7, -15),
    (40, 0),
    (0, -16),
    (20, 30),
)
_READS = {
    "f32/zero": ("f32", "zero"), "f32/nan": ("f32", "nan"), "f16/nan": ("f16", "nan"),
    "bf16/zero": ("bf16", "zero"), "i8/zero": ("i8", "zero"),
    "i64/zero": ("i64", "zero"), "u16/zero": ("u16", "zero"), "f8e5m2/zero": ("f8e5m2", "zero"),
}  # fmt: skip


@case(
    "blocks-of/loads",
    "tl.make_block_ptr",
    each=_READS,
    needs=lambda how: elements(how[0], tile=128),
    quick=("f32/nan", "i8/zero"),
)
def loads(session: Session, how: tuple[str, str]) -> None:
    """A window over every edge, checked along both axes."""
    element, padding = how
    data = random_bits(session.rng, element, (20, 30))
    nan = padding == "nan"
    for place in _PLACES:
        y = poison(element, (8, 16))
        _launch(
            session,
            read_window,
            (1,),
            given(data, element),
            given(y, element),
            20,
            30,
            *place,
            CHECK=(0, 1),
            PADDING=padding,
            R=8,
            C=16,
        )
        there = window(np.ones(data.shape, bool), place, (8, 16), False)
        same_bits(
            session,
            np.where(there, y, 0),
            window(data, place, (8, 16), 0),
            f"the part that is there, at {place}",
        )
        if nan:
            session.check(
                np.isnan(y) | there, np.ones((8, 16), bool), name=f"NaN outside, at {place}"
            )
        else:
            same_bits(
                session,
                np.where(there, 0, y),
                np.zeros((8, 16), y.dtype),
                f"zeros outside, at {place}",
            )


@case(
    "blocks-of/axes",
    "tl.make_block_ptr",
    each={"first": (0,), "second": (1,), "neither": ()},
    needs=elements("i32", tile=128),
    quick=("first",),
)
def one_axis(session: Session, axes: tuple[int, ...]) -> None:
    """Only the axes that are named are checked: along the others a window lies inside."""
    data = random_bits(session.rng, "i32", (20, 30))
    for place in (
        (3, 5),
        (17 if 0 in axes else 12, 25 if 1 in axes else 14),
        (-3 if 0 in axes else 0, -2 if 1 in axes else 0),
    ):
        y = poison("i32", (8, 16))
        _launch(
            session,
            read_window,
            (1,),
            data,
            y,
            20,
            30,
            *place,
            CHECK=axes,
            PADDING="zero" if axes else "",
            R=8,
            C=16,
        )
        same_bits(session, y, window(data, place, (8, 16), 0), f"at {place}")


@tw.jit(do_not_specialize=("rows", "columns", "row", "column"))
def write_window(x, y, rows, columns, row, column, R: tl.constexpr, C: tl.constexpr):
    value = tl.load(tl.make_block_ptr(x, (R, C), (C, 1), (0, 0), (R, C), (1, 0)))
    tl.store(
        tl.make_block_ptr(y, (rows, columns), (columns, 1), (row, column), (R, C), (1, 0)),
        value,
        boundary_check=(0, 1),
    )


@case(
    "blocks-of/stores",
    "tl.make_block_ptr",
    each=("f32", "u8", "i16"),
    needs=lambda element: elements(element, tile=128),
    quick=("u8",),
)
def stores(session: Session, element: str) -> None:
    """Stores are cut off at the edges."""
    for place in _PLACES:
        x, y = random_bits(session.rng, element, (8, 16)), poison(element, (20, 30))
        expected = paste(y, place, x)
        _launch(
            session,
            write_window,
            (1,),
            given(x, element),
            given(y, element),
            20,
            30,
            *place,
            R=8,
            C=16,
        )
        same_bits(session, y, expected, f"at {place}")


@tw.jit
def walk(x, y, rows, columns, R: tl.constexpr, C: tl.constexpr):
    source = tl.make_block_ptr(
        x, (rows, columns), (columns, 1), (tl.program_id(0) * R, 0), (R, C), (1, 0)
    )
    target = tl.make_block_ptr(
        y, (columns, rows), (rows, 1), (0, tl.program_id(0) * R), (C, R), (1, 0)
    )
    total = tl.zeros((R,), tl.int32)
    for _ in range(0, columns, C):
        block = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, tl.trans(block), boundary_check=(0, 1))
        total += tl.sum(block, 1)
        source = tl.advance(source, (0, C))
        target = tl.advance(target, (C, 0))
    at = tl.program_id(0) * R + tl.arange(0, R)
    tl.store(y + rows * columns + at, total, mask=at < rows)


@case(
    "blocks-of/advance",
    "tl.advance",
    each={"20x30": (20, 30), "16x32": (16, 32), "9x70": (9, 70)},
    needs=elements("i32", tile=256),
    quick=("9x70",),
)
def advancing(session: Session, shape: tuple[int, int]) -> None:
    """Two windows move through an array and its transpose, block by block."""
    rows, columns = shape
    x = session.rng.integers(-999, 999, shape).astype(np.int32)
    y = poison("i32", rows * columns + rows)
    _launch(session, walk, (-(-rows // 8),), x, y, rows, columns, R=8, C=32)
    same_bits(session, y, np.concatenate([x.T.ravel(), x.sum(1, dtype=np.int32)]))


@tw.jit
def strided_window(x, y, s0, s1, s2, far, ORDER: tl.constexpr):
    pointer = tl.make_block_ptr(x, (3, 5, 6), (s0, s1, s2), (far, far, far), (4, 4, 8), ORDER)
    pointer = tl.advance(pointer, (-far, 2 - far, -1 - far))
    value = tl.load(pointer, boundary_check=(0, 1, 2), padding_option="zero")
    tl.store(tl.make_block_ptr(y, (4, 4, 8), (32, 8, 1), (0, 0, 0), (4, 4, 8), (2, 1, 0)), value)


@case(
    "blocks-of/strides",
    "tl.make_block_ptr",
    each={"i32": 7, "i64": 1 << 40},
    needs=elements("f32", tile=128),
    quick=True,
)
def strided(session: Session, far: int) -> None:
    """Three axes of any strides and order; offsets of 32 bits and of 64."""
    data = random_bits(session.rng, "f32", 2000)
    for name, view, order in (
        ("dense", data[:90].reshape(3, 5, 6), (2, 1, 0)),
        ("transposed", data[:90].reshape(6, 5, 3).transpose(2, 1, 0), (0, 1, 2)),
        ("gaps", data[:1920].reshape(6, 16, 20)[::2, 1:11:2, 3:15:2], (2, 1, 0)),
        ("reversed", data[:90].reshape(3, 5, 6)[::-1, ::-1], (2, 1, 0)),
    ):
        y = poison("f32", (4, 4, 8))
        _launch(
            session,
            strided_window,
            (1,),
            view,
            y,
            *(s // 4 for s in view.strides),
            far,
            ORDER=order,
        )
        same_bits(session, y, window(view, (0, 2, -1), (4, 4, 8), 0), name)


@tw.jit
def row_blocks(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK
    pointer = tl.make_block_ptr(x, (n,), (1,), (at,), (BLOCK,), (0,))
    value = tl.load(pointer, boundary_check=(0,), padding_option="zero")
    tl.store(
        tl.make_block_ptr(y, (n,), (1,), (n - BLOCK - at,), (BLOCK,), (0,)),
        value,
        boundary_check=(0,),
    )


@case(
    "blocks-of/vectors",
    "tl.make_block_ptr",
    each=("i8", "f16", "f32", "i64"),
    needs=lambda element: elements(element, tile=64),
    quick=("f16",),
)
def vectors(session: Session, element: str) -> None:
    """One axis, read from the front and written from the back."""
    for n in (64, 1, 100, 257):
        x, y, blocks = random_bits(session.rng, element, n), poison(element, n), -(-n // 64)
        padded = np.concatenate([x, np.zeros(64 * blocks - n, storage(element))]).reshape(
            blocks, 64
        )
        expected = y.copy()
        for number, block in enumerate(padded):
            expected = paste(expected, (n - 64 * (number + 1),), block)
        _launch(session, row_blocks, (blocks,), given(x, element), given(y, element), n, BLOCK=64)
        same_bits(session, y, expected, f"{n} elements")
