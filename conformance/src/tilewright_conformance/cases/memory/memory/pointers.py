"""Pointers: tables of them in memory, arithmetic beyond 32 bits, casts, loop-carried tiles.

Tiles of pointers are chosen by conditions, too.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import language, storage
from tilewright_conformance.suite.placement import Addresses
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.bits import bits, poison, random_bits, same_bits
from tilewright_conformance.testlib.case_table import Table, elements

case = Table("memory", "memory")


@tw.jit
def copy_listed(table, sizes, out, width, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    source = tl.load(table + pid).to(tl.pointer_type(out.dtype.element_ty))
    n = tl.load(sizes + pid)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + pid * width + at, tl.load(source + at, mask=at < n), mask=at < n)


@case(
    "addresses/programs",
    "tl.load",
    each=("f32", "i8", "f16"),
    needs=lambda element: elements(element, tile=64),
    quick=("f32",),
)
def arrays_from_a_table(session: Session, element: str) -> None:
    """Each program finds its array in a table of addresses."""
    sizes = np.array([1, 64, 100, 0, 33], np.int32)
    arrays = [random_bits(session.rng, element, int(n)) for n in sizes]
    out = poison(element, (5, 128))
    expected = out.copy()
    for row, array in zip(expected, arrays, strict=True):
        row[: len(array)] = array
    session.launch(copy_listed, (5,), Addresses(arrays), sizes, out, 128, BLOCK=64)
    same_bits(session, out, expected)


@tw.jit
def pick_listed(table, which, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    pointers = tl.load(table + tl.load(which + at)).to(tl.pointer_type(out.dtype.element_ty))
    tl.store(out + at, tl.load(pointers + at))
    tl.store(pointers + BLOCK + at, at)


@case("addresses/tiles", "tl.load", needs=elements("i32", tile=64), quick=True)
def tiles_of_loaded_pointers(session: Session) -> None:
    """Each element of a tile is read from, and written to, an array of its own."""
    arrays = [random_bits(session.rng, "i32", 128) for _ in range(7)]
    which, at = session.rng.integers(0, 7, 64).astype(np.int32), np.arange(64)
    out, expected = np.zeros(64, np.int32), [array.copy() for array in arrays]
    for lane, number in enumerate(which):
        expected[number][64 + lane] = lane
    session.launch(pick_listed, (1,), Addresses(arrays), which, out, BLOCK=64)
    same_bits(session, out, np.stack(arrays)[which, at])
    for number, (array, wanted) in enumerate(zip(arrays, expected, strict=True)):
        same_bits(session, array, wanted, f"array {number}")


@tw.jit
def reach_back(table, out, far, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    near = (tl.load(table) - far * 4).to(tl.pointer_type(tl.int32))
    tl.store(out + at, tl.load(near + (far + at)))
    tl.store(out + BLOCK + at, tl.load(near + far + at))


@case(
    "offsets/beyond-32-bits",
    "pointer arithmetic",
    each={"up": (1 << 33) + 3, "down": -(1 << 34) - 7},
    needs=elements("i32", tile=64),
    quick=("up",),
)
def far_offsets(session: Session, far: int) -> None:
    """Offsets that take more than 32 bits, in elements and in bytes."""
    data, out = random_bits(session.rng, "i32", 64), np.zeros(128, np.int32)
    session.launch(reach_back, (1,), Addresses([data]), out, far, BLOCK=64)
    same_bits(session, out, np.tile(data, 2))


@tw.jit
def wide_rows(x, out, stride, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    places = at.to(tl.int64) * stride
    tl.store(out + at, tl.load(x + places, mask=places < n, other=-1))


@case("offsets/wide-products", "pointer arithmetic", needs=elements("i32", tile=64), quick=True)
def wide_offsets(session: Session) -> None:
    """Offsets multiplied beyond 32 bits do not come back into the array."""
    data = session.rng.integers(0, 99, 1000).astype(np.int32)
    at = np.arange(64, dtype=np.int64)
    for stride in (1 << 28, (1 << 31) + 1, 7, 15):
        out = np.zeros(64, np.int32)
        session.launch(wide_rows, (1,), data, out, stride, 1000, BLOCK=64)
        places = at * stride
        same_bits(
            session,
            out,
            np.where(places < 1000, data[np.minimum(places, 999)], -1),
            f"stride {stride}",
        )


@tw.jit
def moved_pointers(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    forward = x + at
    back = x + (n - 1) - at
    total = tl.zeros((BLOCK,), tl.int32)
    for _ in range(0, n, BLOCK):
        total = total * 3 + tl.load(forward) - tl.load(back)
        forward += BLOCK
        back -= BLOCK
    tl.store(5 + out + at - 5, total)


@case("offsets/moved", "pointer arithmetic", needs=elements("i32", tile=32), quick=True)
def pointers_that_move(session: Session) -> None:
    """Tiles of pointers are carried by a loop, upwards and downwards."""
    x, out, expected = (
        session.rng.integers(-99, 99, 160).astype(np.int32),
        np.zeros(32, np.int32),
        np.zeros(32, np.int32),
    )
    for turn in range(5):
        expected = (
            expected * 3 + x[32 * turn : 32 * turn + 32] - x[::-1][32 * turn : 32 * turn + 32]
        )
    session.launch(moved_pointers, (1,), x, out, 160, BLOCK=32)
    same_bits(session, out, expected)


@tw.jit
def recast(x, out, count, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    seen = x.to(tl.pointer_type(TYPE), bitcast=True)
    tl.store(out + at, tl.load(seen + at, mask=at < count, other=0), mask=at < count)


_RECASTS = {
    "f32_i32": ("f32", "i32"),
    "f32_u8": ("f32", "u8"),
    "i64_i16": ("i64", "i16"),
    "i8_i32": ("i8", "i32"),
    "u16_f16": ("u16", "f16"),
}


@case(
    "casts/pointers",
    "tl.cast",
    each=_RECASTS,
    needs=lambda pair: elements(*pair, tile=256),
    quick=("f32_u8",),
)
def casts_of_pointers(session: Session, pair: tuple[str, str]) -> None:
    """Memory read as another type: its bits in little-endian order."""
    source, target = pair
    x = random_bits(session.rng, source, 32)
    expected = x.view(storage(target))
    out = poison(target, len(expected))
    session.launch(recast, (1,), x, out, len(expected), TYPE=language(target), BLOCK=256)
    same_bits(session, out, expected)


@tw.jit
def addresses(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, (x + at).to(tl.int64) - x.to(tl.int64))
    back = (x.to(tl.int64) + 8 * at.to(tl.int64)).to(tl.pointer_type(tl.int64))
    tl.store(out + BLOCK + at, tl.load(back))


@case("casts/addresses", "tl.cast", needs=elements("i64", tile=32), quick=True)
def pointers_as_integers(session: Session) -> None:
    """Addresses count bytes, and become pointers again."""
    x, out = random_bits(session.rng, "i64", 32), np.zeros(64, np.int64)
    session.launch(addresses, (1,), x, out, BLOCK=32)
    session.check(out, np.concatenate([np.arange(32) * 8, x]))


@tw.jit
def chosen(x, y, keep, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    take = tl.load(keep + at)
    tl.store(out + at, tl.load(tl.where(take, x + at, y + BLOCK - 1 - at)))
    tl.store(tl.where(take, x + at, y + at), 4)


@case("casts/choices", "tl.where", needs=elements("i1", "f32", tile=64), quick=True)
def pointers_chosen(session: Session) -> None:
    """Each element of a tile of pointers is one of two."""
    x, y, keep, out = (
        random_bits(session.rng, "f32", 64),
        random_bits(session.rng, "f32", 64),
        session.rng.random(64) < 0.5,
        poison("f32", 64),
    )
    expected = np.where(keep, bits(x), bits(y)[::-1]).view(np.float32)
    after = [np.where(keep, np.float32(4), x), np.where(keep, y, np.float32(4))]
    session.launch(chosen, (1,), x, y, keep, out, BLOCK=64)
    same_bits(session, out, expected)
    same_bits(session, x, after[0])
    same_bits(session, y, after[1])
