"""Rows through tensor descriptors (gather and scatter), and updates of blocks."""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.atomics.atomics.updates import combine, stored, values
from tilewright_conformance.cases.descriptors.descriptors.blocks import (
    PLACES,
    described,
    on_host,
    spaced,
)
from tilewright_conformance.cases.memory.memory.blocks import paste, window
from tilewright_conformance.oracles.dtypes import Array, given, storage
from tilewright_conformance.suite.case import Needs
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.bits import poison, random_bits, same_bits
from tilewright_conformance.testlib.case_table import Table

case = Table("descriptors", "descriptors")

_COLUMNS = (0, 16, 30, -5, 70, -16)


def rows_of(data: Array, rows: Array, column: int, width: int) -> Array:
    """Some rows of an array from a column on, with zeros outside."""
    return np.stack([window(data, (int(row), column), (1, width), 0)[0] for row in rows])


@tw.jit(do_not_specialize=("column",))
def gather(desc, index, y, column, N: tl.constexpr):
    W: tl.constexpr = desc.block_shape[1]
    at = tl.arange(0, N)
    value = desc.gather(tl.load(index + at), column)
    tl.store(y + at[:, None] * W + tl.arange(0, W)[None, :], value)


_GATHERED = {
    "f32_i32": ("f32", "i32"),
    "f16_i32": ("f16", "i32"),
    "i8_i32": ("i8", "i32"),
    "i64_i16": ("i64", "i16"),
    "f8e5m2_i32": ("f8e5m2", "i32"),
}


@case(
    "gather",
    "descriptor.gather",
    each=_GATHERED,
    needs=lambda how: described(*how, tile=256),
    quick=("f32_i32", "i8_i32"),
)
def gathers(session: Session, how: tuple[str, str]) -> None:
    """Rows in any order, some twice and some outside; columns over both edges."""
    element, index = how
    data = spaced(session.rng, element, (20, 70))
    for column in _COLUMNS:
        rows = session.rng.integers(-3, 24, 16).astype(storage(index))
        rows[:4] = 19, 20, -1, 19
        y = poison(element, (16, 16))
        session.launch(
            gather, (1,), on_host(data, element, (1, 16)), rows, given(y, element), column, N=16
        )
        same_bits(session, y, rows_of(data, rows, column, 16), f"from column {column} on")


@tw.jit(do_not_specialize=("rows", "columns", "column"))
def gather_made(x, index, y, rows, columns, stride, column, N: tl.constexpr, W: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, [rows, columns], [stride, 1], [1, W])
    at = tl.arange(0, N)
    tl.store(
        y + at[:, None] * W + tl.arange(0, W)[None, :], desc.gather(tl.load(index + at), column)
    )


@case(
    "gather/made",
    "descriptor.gather",
    each=("bf16", "u32"),
    needs=lambda element: described(element, "i32", tile=1024),
    quick=("bf16",),
)
def gathers_of_made(session: Session, element: str) -> None:
    data = spaced(session.rng, element, (20, 70))
    for column in (0, 40, -3):
        rows, y = session.rng.integers(-2, 23, 32).astype(np.int32), poison(element, (32, 32))
        stride = data.strides[0] // data.itemsize
        session.launch(
            gather_made,
            (1,),
            given(data, element),
            rows,
            given(y, element),
            20,
            70,
            stride,
            column,
            N=32,
            W=32,
        )
        same_bits(session, y, rows_of(data, rows, column, 32), f"from column {column} on")


@tw.jit(do_not_specialize=("column",))
def scatter(desc, index, x, column, N: tl.constexpr):
    W: tl.constexpr = desc.block_shape[1]
    at = tl.arange(0, N)
    desc.scatter(
        tl.load(x + at[:, None] * W + tl.arange(0, W)[None, :]), tl.load(index + at), column
    )


@case(
    "scatter",
    "descriptor.scatter",
    each=_GATHERED,
    needs=lambda how: described(*how, tile=256),
    quick=("f32_i32", "f16_i32"),
)
def scatters(session: Session, how: tuple[str, str]) -> None:
    """Scatter to distinct rows, some outside; columns over both edges.

    Elements outside are dropped, memory between stays.
    """
    element, index = how
    for column in _COLUMNS:
        data, x = (
            spaced(session.rng, element, (20, 70)),
            random_bits(session.rng, element, (16, 16)),
        )
        rows = (session.rng.permutation(26)[:16] - 3).astype(storage(index))
        expected = data.copy()
        for row, value in zip(rows, x, strict=True):
            expected = paste(expected, (int(row), column), value[None])
        session.launch(
            scatter, (1,), on_host(data, element, (1, 16)), rows, given(x, element), column, N=16
        )
        same_bits(session, data, expected, f"from column {column} on")


# ---- updates

_UPDATED = {
    f"{kind}/{element}": (kind, element)
    for kind, names in {
        "add": ("i32", "u32", "u64", "f32", "f16", "bf16"),
        "min": ("i32", "u32", "i64", "u64", "f16", "bf16"),
        "max": ("i32", "u32", "i64", "u64", "f16", "bf16"),
        "and": ("i32", "u64"),
        "or": ("u32", "i64"),
        "xor": ("i32", "u64"),
    }.items()
    for element in names
}


def _updated(how: tuple[str, str]) -> Needs:
    return described(how[1], tile=256, atomics=frozenset({(how[1], how[0])}))


@tw.jit(do_not_specialize=("row", "column"))
def update(desc, x, row, column, KIND: tl.constexpr):
    R: tl.constexpr = desc.block_shape[0]
    C: tl.constexpr = desc.block_shape[1]
    part = tl.program_id(0) * (R * C)
    value = tl.load(x + part + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    if KIND == "add":
        desc.atomic_add([row, column], value)
    elif KIND == "min":
        desc.atomic_min([row, column], value)
    elif KIND == "max":
        desc.atomic_max([row, column], value)
    elif KIND == "and":
        desc.atomic_and([row, column], value)
    elif KIND == "or":
        desc.atomic_or([row, column], value)
    else:
        desc.atomic_xor([row, column], value)


def _numbers(rng: np.random.Generator, kind: str, element: str, shape: tuple[int, ...]) -> Array:
    """Values; of f16 and bf16 small whole numbers other than zero.

    Their order and additions are exact whatever the target's rule for the sign of zero.
    """
    if element in ("f16", "bf16"):
        whole = rng.integers(1, 30, shape) * rng.choice([-1, 1], shape)
        return whole.astype(np.float32 if element == "bf16" else np.float16)
    return values(rng, kind, element, shape)


@case(
    "update",
    "descriptor.atomic",
    each=_UPDATED,
    needs=_updated,
    quick=("add/i32", "add/f16", "min/u32", "max/i64", "and/i32", "xor/u64"),
)
def updates(session: Session, how: tuple[str, str]) -> None:
    """Several programs update one block at once, over every edge."""
    kind, element = how
    programs = 4
    for place in PLACES[:9]:
        start, x = (
            _numbers(session.rng, kind, element, (20, 72)),
            _numbers(session.rng, kind, element, (programs, 8, 32)),
        )
        expected = start[:, :70].copy()
        for part in x:
            block = combine(kind, window(expected, place, (8, 32), 0), part)
            expected = paste(expected, place, block)
        memory = stored(start, element).copy()
        whole = np.concatenate(
            [stored(expected.astype(start.dtype), element), memory[:, 70:]], axis=1
        )
        session.launch(
            update,
            (programs,),
            on_host(memory[:, :70], element, (8, 32)),
            given(stored(x, element), element),
            *place,
            KIND=kind,
        )
        same_bits(session, memory, whole, f"at {place}")
