"""Gathers, scatters, masks, hints, order, pointers from memory, casts of pointers."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import ELEMENTS, FP8, PORTABLE, given, storage
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.bits import poison, random_bits, same_bits
from tilewright_conformance.testlib.case_table import Table, elements

case = Table("memory", "memory")

_INDICES = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


# ---- gathers and scatters


@tw.jit
def gather(x, start, index, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    places = tl.load(index + at, mask=at < n)
    tl.store(y + at, tl.load(x + start + places, mask=at < n), mask=at < n)


@tw.jit
def scatter(x, index, y, start, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    places = tl.load(index + at, mask=at < n)
    tl.store(y + start + places, tl.load(x + at, mask=at < n), mask=at < n)


def _reach(index: str) -> tuple[int, int]:
    """The offsets of a type within an array of a thousand elements on either side."""
    limits = np.iinfo(storage(index))
    return max(int(limits.min), -1000), min(int(limits.max), 999)


@case(
    "gather/index",
    "tl.load",
    each=_INDICES,
    needs=lambda index: elements(index, "f32", tile=256),
    quick=("u8", "i64"),
)
def gathers(session: Session, index: str) -> None:
    """Gather by offsets of every integer type.

    Negative ones, and unsigned ones with the top bit set, are among them.
    """
    low, high = _reach(index)
    data, n = random_bits(session.rng, "f32", 2000), 300
    places = session.rng.integers(low, high, n, endpoint=True)
    places[:2] = low, high
    y = poison("f32", n)
    session.launch(gather, (2,), data, 1000, places.astype(storage(index)), y, n, BLOCK=256)
    same_bits(session, y, data[1000 + places])


@case(
    "scatter/index",
    "tl.store",
    each=_INDICES,
    needs=lambda index: elements(index, "i16", tile=256),
    quick=("u8", "i16"),
)
def scatters(session: Session, index: str) -> None:
    """To distinct places; all others stay."""
    low, high = _reach(index)
    n = min(high - low + 1, 300)
    places = low + session.rng.permutation(high - low + 1)[:n]
    x, data = random_bits(session.rng, "i16", n), poison("i16", 2000)
    expected = data.copy()
    expected[1000 + places] = x
    session.launch(scatter, (2,), x, places.astype(storage(index)), data, 1000, n, BLOCK=256)
    same_bits(session, data, expected)


@case(
    "gather/element",
    "tl.load",
    each=tuple(ELEMENTS),
    needs=lambda element: elements(element, tile=256),
    quick=("i1", "bf16", "f8e4b15"),
)
def gathers_of(session: Session, element: str) -> None:
    """Elements of every type, the same ones again and again."""
    data, places = (
        random_bits(session.rng, element, 97),
        session.rng.integers(0, 97, 300).astype(np.int32),
    )
    y = poison(element, 300)
    session.launch(gather, (2,), given(data, element), 0, places, given(y, element), 300, BLOCK=256)
    same_bits(session, y, data[places])


@case(
    "scatter/element",
    "tl.store",
    each=tuple(ELEMENTS),
    needs=lambda element: elements(element, tile=256),
    quick=("i1", "u64", "f8e4m3fn"),
)
def scatters_of(session: Session, element: str) -> None:
    places = session.rng.permutation(500)[:300].astype(np.int32)
    x, data = random_bits(session.rng, element, 300), poison(element, 500)
    expected = data.copy()
    expected[places] = x
    session.launch(
        scatter, (2,), given(x, element), places, given(data, element), 0, 300, BLOCK=256
    )
    same_bits(session, data, expected)


@case("scatter/duplicates", "tl.store", needs=elements("i32", tile=256), quick=True)
def duplicates(session: Session) -> None:
    """Of two values for one place either may stay, and none that was for another place."""
    places, x = (
        session.rng.integers(0, 40, 256).astype(np.int32),
        np.arange(256, dtype=np.int32) + 1,
    )
    data = np.zeros(50, np.int32)
    session.launch(scatter, (1,), x, places, data, 0, 256, BLOCK=256)
    written = np.zeros(50, bool)
    written[places] = True
    session.check(data != 0, written, name="places that were written")
    there = np.flatnonzero(written)
    session.check(
        places[data[there] - 1], there.astype(np.int32), name="places the values were for"
    )


@tw.jit
def gather_rows(x, index, y, rows, columns, width, R: tl.constexpr, C: tl.constexpr):
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    at = tl.load(index + r, mask=r < rows, other=0)
    inside = (r[:, None] < rows) & (c[None, :] < columns)
    tl.store(
        y + r[:, None] * columns + c[None, :],
        tl.load(x + at[:, None] * width + c[None, :], mask=inside, other=0),
        mask=inside,
    )


@case(
    "gather/rows",
    "tl.load",
    each=("f16", "i32", "u8"),
    needs=lambda element: elements(element, tile=1024),
    quick=("f16",),
)
def rows_gathered(session: Session, element: str) -> None:
    """Whole rows of a table in any order."""
    table, index = (
        random_bits(session.rng, element, (50, 40)),
        session.rng.integers(0, 50, 13).astype(np.int64),
    )
    for columns in (40, 33, 1):
        y = poison(element, (13, columns))
        session.launch(
            gather_rows,
            (1,),
            given(table, element),
            index,
            given(y, element),
            13,
            columns,
            40,
            R=16,
            C=64,
        )
        same_bits(session, y, table[index, :columns])


# ---- masks


@tw.jit
def masked(x, keep, y, other, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = tl.load(keep + at)
    if OTHER == "number":
        tl.store(y + at, tl.load(x + at, mask=mask, other=7))
    elif OTHER == "tile":
        tl.store(y + at, tl.load(x + at, mask=mask, other=tl.load(other + at)))
    elif OTHER == "scalar":
        tl.store(y + at, tl.load(x + at, mask=mask, other=tl.load(other)))
    else:
        tl.store(y + at, tl.load(x + at, mask=mask), mask=mask)


def _patterns(rng: np.random.Generator, count: int) -> dict[str, Any]:
    at = np.arange(count)
    return {
        "none": at < 0,
        "all": at >= 0,
        "first": at == 0,
        "last": at == count - 1,
        "not-last": at < count - 1,
        "thirds": at % 3 == 1,
        "any": rng.random(count) < 0.5,
    }


@case(
    "mask/tile",
    "tl.load",
    each=(*PORTABLE, "f64", *FP8),
    needs=lambda element: elements("i1", element, tile=128),
    quick=("i1", "i8", "f32", "f8e5m2"),
)
def others_of_tiles(session: Session, element: str) -> None:
    """Masks of any pattern; masked-off elements are those of a tile."""
    for name, keep in _patterns(session.rng, 128).items():
        x, other, y = (
            random_bits(session.rng, element, 128),
            random_bits(session.rng, element, 128),
            poison(element, 128),
        )
        session.launch(
            masked,
            (1,),
            given(x, element),
            keep,
            given(y, element),
            given(other, element),
            OTHER="tile",
            BLOCK=128,
        )
        same_bits(session, y, np.where(keep, x, other), name)


@case(
    "mask/scalar",
    "tl.load",
    each=("i16", "f16", "u32"),
    needs=lambda element: elements("i1", element, tile=128),
    quick=("f16",),
)
def others_of_scalars(session: Session, element: str) -> None:
    keep = session.rng.random(128) < 0.5
    x, other, y = (
        random_bits(session.rng, element, 128),
        random_bits(session.rng, element, 1),
        poison(element, 128),
    )
    session.launch(
        masked,
        (1,),
        given(x, element),
        keep,
        given(y, element),
        given(other, element),
        OTHER="scalar",
        BLOCK=128,
    )
    same_bits(session, y, np.where(keep, x, other))


@case(
    "mask/number",
    "tl.load",
    each=("i8", "i64", "f32", "f16"),
    needs=lambda element: elements("i1", element, tile=128),
    quick=("i8", "f32"),
)
def others_of_numbers(session: Session, element: str) -> None:
    keep = session.rng.random(128) < 0.5
    x, y = random_bits(session.rng, element, 128), poison(element, 128)
    session.launch(masked, (1,), x, keep, y, x, OTHER="number", BLOCK=128)
    same_bits(session, y, np.where(keep, x, x.dtype.type(7)))


@case(
    "mask/store",
    "tl.store",
    each=(*PORTABLE, *FP8),
    needs=lambda element: elements("i1", element, tile=128),
    quick=("i8", "f16", "i64"),
)
def masked_stores(session: Session, element: str) -> None:
    """Masked-off elements of memory stay as they are."""
    for name, keep in _patterns(session.rng, 128).items():
        x, y = random_bits(session.rng, element, 128), poison(element, 128)
        expected = np.where(keep, x, y)
        session.launch(
            masked,
            (1,),
            given(x, element),
            keep,
            given(y, element),
            given(x, element),
            OTHER="",
            BLOCK=128,
        )
        same_bits(session, y, expected, name)


@tw.jit
def window(
    x, y, rows, columns, other, FIRST: tl.constexpr, SECOND: tl.constexpr, SIZE: tl.constexpr
):
    r = tl.arange(0, SIZE)[:, None]
    c = tl.arange(0, SIZE)[None, :]
    inside = (r >= 0) & (c >= 0)
    if FIRST:
        inside = inside & (r < rows)
    if SECOND:
        inside = inside & (c < columns)
    tl.store(y + r * SIZE + c, tl.load(x + r * SIZE + c, mask=inside, other=other))


@tw.jit
def window_plain(x, y, rows, columns, other, SIZE: tl.constexpr):
    r = tl.arange(0, SIZE)[:, None]
    c = tl.arange(0, SIZE)[None, :]
    tl.store(
        y + r * SIZE + c, tl.load(x + r * SIZE + c, mask=(r < rows) & (c < columns), other=other)
    )


@case(
    "mask/axes",
    "tl.load",
    each=("f32", "i32"),
    needs=lambda element: elements(element, tile=1024),
    quick=True,
)
def masks_of_two_axes(session: Session, element: str) -> None:
    """Every condition of a mask counts, and an argument stands for what it leaves out."""
    x = session.rng.integers(1, 100, (32, 32)).astype(storage(element))
    r, c = np.ogrid[:32, :32]
    for rows, columns in ((5, 9), (32, 1), (0, 32), (31, 31), (40, 17)):
        y = poison(element, (32, 32))
        session.launch(window_plain, (1,), x, y, rows, columns, -3, SIZE=32)
        same_bits(
            session,
            y,
            np.where((r < rows) & (c < columns), x, x.dtype.type(-3)),
            f"{rows} rows, {columns} columns",
        )
    for first, second in ((True, False), (False, True)):
        y = poison(element, (32, 32))
        session.launch(window, (1,), x, y, 7, 11, -3, FIRST=first, SECOND=second, SIZE=32)
        same_bits(
            session, y, np.where((not first or r < 7) & (not second or c < 11), x, x.dtype.type(-3))
        )


@tw.jit
def shaped_masks(x, keep_row, keep_column, y, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    places = at[:, None] * SIZE + at[None, :]
    value = tl.load(x + places, mask=tl.load(keep_row + at)[None, :], other=5)
    tl.store(y + places, value, mask=tl.load(keep_column + at)[:, None])


@case("mask/broadcast", "tl.store", needs=elements("i1", "i16", tile=256), quick=True)
def broadcast_masks(session: Session) -> None:
    """A row as mask of a load, a column as mask of a store."""
    x, y = random_bits(session.rng, "i16", (16, 16)), poison("i16", (16, 16))
    row, column = session.rng.random(16) < 0.5, session.rng.random(16) < 0.5
    expected = np.where(column[:, None], np.where(row, x, 5), y)
    session.launch(shaped_masks, (1,), x, row, column, y, SIZE=16)
    same_bits(session, y, expected)


@tw.jit
def far_masked(x, y, far, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    places = at.to(tl.int64) + tl.where(at < n, 0, far)
    value = tl.load(x + places, mask=at < n, other=-1)
    tl.store(y + places, value, mask=at < n)
    if far < 0:
        tl.store(y + far, 1, mask=far > 0)


@case("mask/unreachable", "tl.load", needs=elements("i32", tile=64), quick=True)
def nothing_is_touched_where_masked(session: Session) -> None:
    """Addresses of masked-off elements are not looked at, wherever they are."""
    for far in (1 << 40, -(1 << 40), 1 << 60):
        x, y = random_bits(session.rng, "i32", 64), poison("i32", 64)
        expected = y.copy()
        expected[:33] = x[:33]
        session.launch(far_masked, (1,), x, y, far, 33, BLOCK=64)
        same_bits(session, y, expected)


@tw.jit
def scalars(x, y, keep, other):
    first = tl.load(x)
    tl.store(y, tl.load(x + 1, mask=keep != 0, other=other))
    tl.store(y + 1, first, mask=keep != 0)
    tl.store(y + 2, first)


@case(
    "scalars",
    "tl.load",
    each=PORTABLE,
    needs=lambda element: elements(element),
    quick=("i1", "f32"),
)
def single_elements(session: Session, element: str) -> None:
    """Pointers that are no tiles, with masks."""
    for keep in (0, 5):
        x, y, other = random_bits(session.rng, element, 2), poison(element, 4), 1
        one = np.array([0x3F80 if element == "bf16" else 1]).astype(storage(element))[0]
        expected = np.array([x[1] if keep else one, x[0] if keep else y[1], x[0], y[3]], y.dtype)
        session.launch(scalars, (1,), given(x, element), given(y, element), keep, other)
        same_bits(session, y, expected, f"keep = {keep}")


# ---- values that are stored


@tw.jit
def store_broadcast(y, row, number, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    places = at[:, None] * SIZE + at[None, :]
    tl.store(y + places, tl.load(row + at)[None, :])
    tl.store(y + SIZE * SIZE + places, tl.load(row + at)[:, None])
    tl.store(y + 2 * SIZE * SIZE + places, number)
    tl.store(y + 3 * SIZE * SIZE + at, 3)


@case(
    "broadcast",
    "tl.store",
    each=("i8", "i32", "f32"),
    needs=lambda element: elements(element, tile=256),
    quick=("i8",),
)
def broadcast_values(session: Session, element: str) -> None:
    """Rows, columns, scalars and numbers, repeated to the shape of the pointers."""
    y, row = poison(element, 3 * 256 + 20), random_bits(session.rng, element, 16)
    square = np.broadcast_to(row, (16, 16))
    expected = np.concatenate(
        [
            square.ravel(),
            square.T.ravel(),
            np.full(256, 9, y.dtype),
            np.full(16, 3, y.dtype),
            y[-4:],
        ]
    )
    session.launch(store_broadcast, (1,), y, row, 9, SIZE=16)
    same_bits(session, y, expected)


_STORED = {
    "i32_i8": ("i32", "i8"), "i64_u16": ("i64", "u16"), "u8_i64": ("u8", "i64"),
    "i8_u32": ("i8", "u32"), "i16_f32": ("i16", "f32"),
    "u8_f16": ("u8", "f16"), "f16_f32": ("f16", "f32"), "i1_f32": ("i1", "f32"),
    "i1_i16": ("i1", "i16"), "i8_i1": ("i8", "i1"),
}  # fmt: skip


@case(
    "mixed",
    "tl.store",
    each=_STORED,
    needs=lambda pair: elements(*pair, tile=128),
    quick=("i32_i8", "i8_i1"),
)
def mixed_elements(session: Session, pair: tuple[str, str]) -> None:
    """Convert a stored value to the pointer's type: integers wrap, booleans are 0 or 1."""
    source, target = pair
    x = random_bits(session.rng, source, 100)
    if source == "f16":
        x = x[np.isfinite(x)]
    y = poison(target, 120)
    expected = y.copy()
    expected[: len(x)] = x.astype(y.dtype)
    session.launch(copy_cast, (1,), x, y, len(x), BLOCK=128)
    same_bits(session, y, expected)


@tw.jit
def copy_cast(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@tw.jit
def booleans(x, y, z, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(y + at, value)
    tl.store(z + at, tl.where(value, 3, 4))


@case("booleans", "tl.load", needs=elements("i1", "i32", tile=256), quick=True)
def bytes_as_booleans(session: Session) -> None:
    """Any byte but zero is true, and what is stored is 1."""
    raw = np.arange(256, dtype=np.uint8)
    y, z = np.full(256, 0x5A, np.uint8), np.zeros(256, np.int32)
    session.launch(booleans, (1,), raw.view(np.bool_), y.view(np.bool_), z, BLOCK=256)
    session.check(y, (raw != 0).astype(np.uint8))
    session.check(z, np.where(raw != 0, 3, 4).astype(np.int32))


# ---- hints


@tw.jit
def hinted(
    x,
    y,
    CACHE: tl.constexpr,
    EVICTION: tl.constexpr,
    VOLATILE: tl.constexpr,
    STORE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, cache_modifier=CACHE, eviction_policy=EVICTION, volatile=VOLATILE)
    again = tl.load(
        x + at,
        mask=at < 150,
        other=0,
        cache_modifier=CACHE,
        eviction_policy=EVICTION,
        volatile=VOLATILE,
    )
    tl.store(y + at, value, cache_modifier=STORE, eviction_policy=EVICTION)
    tl.store(y + 256 + at, again, mask=at < 200, cache_modifier=STORE, eviction_policy=EVICTION)


_HINTS = {
    **{f"load{cache}": (cache, "", False, "") for cache in (".ca", ".cg", ".cs", ".cv")},
    **{f"store{cache}": ("", "", False, cache) for cache in (".wb", ".cg", ".cs", ".wt")},
    **{policy: ("", policy, False, "") for policy in ("evict_normal", "evict_first", "evict_last")},
    "volatile": ("", "", True, ""),
    "several": (".cg", "evict_last", False, ".cs"),
}


@case(
    "hints",
    "tl.load",
    each=_HINTS,
    needs=elements("f16", "f32", tile=128),
    quick=("load.cg", "store.wt", "evict_first", "volatile"),
)
def hints(session: Session, hint: tuple[str, str, bool, str]) -> None:
    """Hints change nothing that can be seen."""
    cache, eviction, volatile, store = hint
    for element in ("f16", "f32"):
        x, y = random_bits(session.rng, element, 256), poison(element, 512)
        expected = np.concatenate([x, np.where(np.arange(256) < 150, x, 0), y[:0]])
        expected[256 + 200 :] = y[256 + 200 :]
        session.launch(
            hinted,
            (2,),
            x,
            y,
            CACHE=cache,
            EVICTION=eviction,
            VOLATILE=volatile,
            STORE=store,
            BLOCK=128,
        )
        same_bits(session, y, expected, element)


@tw.jit
def with_hint(x, y, start, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    if KIND == "multiple_of":
        places = tl.multiple_of(start, 16) + at
    elif KIND == "max_contiguous":
        places = tl.max_contiguous(start + at, BLOCK)
    elif KIND == "both":
        places = tl.max_contiguous(tl.multiple_of(start + at, 16), 16)
    else:
        places = tl.max_constancy((start + at) // 4 * 4, 4)
    tl.store(y + at, tl.load(x + places))


@case(
    "promises",
    "tl.multiple_of",
    each=("multiple_of", "max_contiguous", "both", "max_constancy"),
    needs=elements("i16", tile=64),
    quick=("both",),
)
def promises(session: Session, kind: str) -> None:
    """True hints about offsets change nothing."""
    for start in (0, 48, 112):
        x, y, places = (
            random_bits(session.rng, "i16", 256),
            poison("i16", 64),
            start + np.arange(64),
        )
        session.launch(with_hint, (1,), x, y, start, KIND=kind, BLOCK=64)
        same_bits(
            session, y, x[places // 4 * 4 if kind == "max_constancy" else places], f"from {start}"
        )
