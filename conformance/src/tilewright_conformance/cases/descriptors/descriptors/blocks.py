"""Blocks of host and device tensor descriptors: padding, edges, strides, ranks, attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright_conformance.cases.memory.memory.blocks import paste, window
from tilewright_conformance.oracles.dtypes import ELEMENTS, Array, given, storage
from tilewright_conformance.suite.case import Needs
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.bits import poison, random_bits, same_bits
from tilewright_conformance.testlib.case_table import Table, elements

case = Table("descriptors", "descriptors")

_FEATURE = frozenset({"descriptors"})
#: bits of a NaN
_NAN = {
    "f16": 0x7E00,
    "bf16": 0x7FC0,
    "f32": 0x7FC00000,
    "f64": 0x7FF8 << 48,
    "f8e5m2": 0x7F,
    "f8e4m3fn": 0x7F,
}
#: where a block of 8 x 32 is put on an array of 20 x 70: inside, over each edge and corner, beyond
PLACES = (
    (0, 0),
    (3, 16),
    (12, 38),
    (17, 3),
    (3, 60),
    (17, 60),
    (-3, 4),
    (4, -5),
    (-7, -31),
    (40, 0),
    (0, -32),
    (20, 70),
    (0, 1 << 30),
)


def described(*names: str, tile: int = 1, **more: Any) -> Needs:
    """The needs of a kernel with descriptors."""
    return elements(*names, tile=tile, features=_FEATURE, **more)


def spaced(rng: np.random.Generator, element: str, shape: tuple[int, ...]) -> Array:
    """An array whose leading strides are multiples of 16 bytes, with gaps along the last axis."""
    item = storage(element).itemsize
    width = -(-(shape[-1] + 1) * item // 16) * 16 // item
    return random_bits(rng, element, (*shape[:-1], width))[..., : shape[-1]]


def steps(array: Array) -> list[int]:
    """Strides in elements; the last is 1 whatever NumPy says of an axis of one element."""
    return [stride // array.itemsize for stride in array.strides[:-1]] + [1]


def on_host(
    array: Array, element: str, block: tuple[int, ...], padding: str = "zero"
) -> TensorDescriptor:
    """The descriptor of an array, made by the host."""
    return TensorDescriptor(given(array, element), array.shape, steps(array), block, padding)


def demand_padded(
    session: Session, found: Array, data: Array, place: tuple[int, ...], element: str, padding: str
) -> None:
    """Demand that a block holds what the array has there, bit by bit, and padding elsewhere."""
    there = window(np.ones(data.shape, bool), place, found.shape, False)
    same_bits(
        session,
        np.where(there, found, 0).astype(found.dtype),
        window(data, place, found.shape, 0),
        f"the part that is there, at {place}",
    )
    if padding == "zero":
        same_bits(
            session,
            np.where(there, 0, found).astype(found.dtype),
            np.zeros_like(found),
            f"zeros outside, at {place}",
        )
        return
    nan = np.array(_NAN[element], f"u{found.itemsize}").view(found.dtype)
    session.check(
        np.where(there, nan, found).astype(found.dtype),
        np.full_like(found, nan),
        type_=element,
        name=f"NaN outside, at {place}",
    )


# ---- blocks of two axes


@tw.jit(do_not_specialize=("row", "column"))
def read(desc, y, row, column):
    R: tl.constexpr = desc.block_shape[0]
    C: tl.constexpr = desc.block_shape[1]
    tl.store(y + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :], desc.load([row, column]))


@tw.jit(do_not_specialize=("rows", "columns", "stride", "row", "column"))
def read_made(
    x,
    y,
    rows,
    columns,
    stride,
    row,
    column,
    PADDING: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
):
    desc = tl.make_tensor_descriptor(
        x, shape=[rows, columns], strides=[stride, 1], block_shape=[R, C], padding_option=PADDING
    )
    tl.store(
        y + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :],
        tl.load_tensor_descriptor(desc, [row, column]),
    )


_LOADED = {f"{element}/zero": (element, "zero") for element in ELEMENTS} | {
    f"{element}/nan": (element, "nan") for element in _NAN
}
_QUICK_LOADS = ("i8/zero", "f16/nan", "f32/zero", "f8e5m2/zero")


@case(
    "load/host",
    "descriptor.load",
    each=_LOADED,
    needs=lambda how: described(how[0], tile=256),
    quick=(*_QUICK_LOADS, "i1/zero"),
)
def loads(session: Session, how: tuple[str, str]) -> None:
    """Blocks at every edge of a tensor that the host describes."""
    element, padding = how
    data = spaced(session.rng, element, (20, 70))
    for place in PLACES:
        y = poison(element, (8, 32))
        session.launch(
            read, (1,), on_host(data, element, (8, 32), padding), given(y, element), *place
        )
        demand_padded(session, y, data, place, element, padding)


@case(
    "load/made",
    "descriptor.load",
    each=_LOADED,
    needs=lambda how: described(how[0], tile=256),
    quick=(*_QUICK_LOADS, "bf16/nan"),
)
def loads_of_made(session: Session, how: tuple[str, str]) -> None:
    """Blocks at every edge of a tensor that the kernel describes."""
    element, padding = how
    data = spaced(session.rng, element, (20, 70))
    for place in PLACES:
        y = poison(element, (8, 32))
        session.launch(
            read_made,
            (1,),
            given(data, element),
            given(y, element),
            20,
            70,
            steps(data)[0],
            *place,
            PADDING=padding,
            R=8,
            C=32,
        )
        demand_padded(session, y, data, place, element, padding)


@tw.jit(do_not_specialize=("row", "column"))
def write(desc, x, row, column):
    R: tl.constexpr = desc.block_shape[0]
    C: tl.constexpr = desc.block_shape[1]
    desc.store([row, column], tl.load(x + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]))


@tw.jit(do_not_specialize=("rows", "columns", "stride", "row", "column"))
def write_made(y, x, rows, columns, stride, row, column, R: tl.constexpr, C: tl.constexpr):
    desc = tl.make_tensor_descriptor(
        y, shape=[rows, columns], strides=[stride, 1], block_shape=[R, C]
    )
    tl.store_tensor_descriptor(
        desc, [row, column], tl.load(x + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    )


_STORED = {
    f"{how}/{element}": (how == "made", element) for how in ("host", "made") for element in ELEMENTS
}


@case(
    "store",
    "descriptor.store",
    each=_STORED,
    needs=lambda how: described(how[1], tile=256),
    quick=("host/f32", "host/i1", "made/u8", "made/i64"),
)
def stores(session: Session, how: tuple[bool, str]) -> None:
    """Blocks are cut off at the edges: what lies between the rows and around the tensor stays."""
    made, element = how
    for place in PLACES:
        whole, x = (
            random_bits(session.rng, element, (20, 80)),
            random_bits(session.rng, element, (8, 32)),
        )
        data, expected = whole[:, :70], whole.copy()
        expected[:, :70] = paste(data, place, x)
        if made:
            session.launch(
                write_made,
                (1,),
                given(data, element),
                given(x, element),
                20,
                70,
                steps(data)[0],
                *place,
                R=8,
                C=32,
            )
        else:
            session.launch(write, (1,), on_host(data, element, (8, 32)), given(x, element), *place)
        same_bits(session, whole, expected, f"at {place}")


_BLOCKS = {"1x16": (1, 16), "16x4": (16, 4), "32x32": (32, 32), "2x128": (2, 128)}


@case(
    "load/blocks",
    "descriptor.load",
    each=_BLOCKS,
    needs=lambda block: described("f32", tile=block[0] * block[1]),
    quick=("1x16",),
)
def block_shapes(session: Session, block: tuple[int, int]) -> None:
    """Blocks of other shapes, larger than the tensor too; tensors of odd extents down to one."""
    for shape in ((20, 70), (1, 1), (3, 5), (1, 33), (33, 1)):
        data = spaced(session.rng, "f32", shape)
        for place in ((0, 0), (1, 3), (-1, -2), (shape[0] - 1, shape[1] - 1)):
            y = poison("f32", block)
            session.launch(read, (1,), on_host(data, "f32", block), y, *place)
            demand_padded(session, y, data, place, "f32", "zero")


@case(
    "load/offset-base",
    "descriptor.load",
    each=("f16", "i32"),
    needs=lambda element: described(element, tile=256),
    quick=("f16",),
)
def offset_bases(session: Session, element: str) -> None:
    """A tensor inside of a larger one: what surrounds it is no part of it."""
    whole = random_bits(session.rng, element, (40, 128))
    data = whole[7:27, 16:86]
    for place in PLACES:
        y = poison(element, (8, 32))
        session.launch(read, (1,), on_host(data, element, (8, 32)), given(y, element), *place)
        demand_padded(session, y, data, place, element, "zero")


@case("load/repeated-rows", "descriptor.load", needs=described("f32", tile=256), quick=True)
def repeated_rows(session: Session) -> None:
    """Strides computed in the kernel: equal rows, overlapping rows, and an unused row stride."""
    x = random_bits(session.rng, "f32", 200)
    for rows, columns, stride in ((20, 70, 0), (20, 70, 4), (5, 64, 8), (1, 70, 1 << 40)):
        data = np.lib.stride_tricks.as_strided(
            x, (rows, columns), (4 * stride if rows > 1 else 0, 4)
        )
        for place in ((0, 0), (2, 40), (-3, -3)):
            y = poison("f32", (8, 32))
            session.launch(
                read_made, (1,), x, y, rows, columns, stride, *place, PADDING="zero", R=8, C=32
            )
            demand_padded(session, y, data, place, "f32", "zero")


# ---- other ranks


@tw.jit(do_not_specialize=("o0", "o1", "o2", "o3", "o4"))
def move_ranked(source, target, o0, o1, o2, o3, o4):
    RANK: tl.constexpr = len(source.block_shape)
    if RANK == 1:
        target.store([0], source.load([o4]))
    elif RANK == 3:
        target.store([0, 0, 0], source.load([o2, o3, o4]))
    elif RANK == 4:
        target.store([0, 0, 0, 0], source.load([o1, o2, o3, o4]))
    else:
        target.store([0, 0, 0, 0, 0], source.load([o0, o1, o2, o3, o4]))


_RANKS: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "1": ((100,), (32,), "f32"), "1-bytes": ((100,), (64,), "i8"),
    "3": ((3, 5, 20), (2, 4, 16), "f16"), "3-wide": ((3, 5, 20), (4, 1, 8), "i64"),
    "4": ((2, 3, 4, 17), (1, 2, 2, 16), "i32"), "5": ((2, 2, 3, 4, 9), (2, 1, 2, 2, 8), "f32"),
}  # fmt: skip


@case(
    "ranks/host",
    "descriptor.load",
    each=_RANKS,
    needs=lambda how: described(how[2], tile=int(np.prod(how[1]))),
    quick=("1", "3", "5"),
)
def ranks(session: Session, how: tuple[tuple[int, ...], tuple[int, ...], str]) -> None:
    """One to five axes, over the edge along each."""
    shape, block, element = how
    data = spaced(session.rng, element, shape)
    places = [tuple(0 for _ in shape), tuple(n - 1 for n in shape), tuple(-1 for _ in shape)]
    places += [
        tuple(
            n - b // 2 if axis == other else 0
            for other, (n, b) in enumerate(zip(shape, block, strict=True))
        )
        for axis in range(len(shape))
    ]
    for place in places:
        out = poison(element, block)
        offsets = [0] * (5 - len(place)) + list(place)
        session.launch(
            move_ranked, (1,), on_host(data, element, block), on_host(out, element, block), *offsets
        )
        demand_padded(session, out, data, place, element, "zero")


@tw.jit
def move_made(
    x,
    y,
    n0,
    n1,
    n2,
    n3,
    n4,
    s0,
    s1,
    s2,
    s3,
    e0,
    e1,
    e2,
    e3,
    FROM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    source = tl.make_tensor_descriptor(x, [n0, n1, n2, n3, n4], [s0, s1, s2, s3, 1], BLOCK)
    target = tl.make_tensor_descriptor(y, [n0, n1, n2, n3, n4], [e0, e1, e2, e3, 1], BLOCK)
    at = tl.program_id(0) * BLOCK[2]
    target.store([FROM, 0, at, 0, 0], source.load([FROM, 0, at, 0, 0]))


@case("ranks/made", "descriptor.load", needs=described("f32", tile=256), quick=True)
def five_axes_made(session: Session) -> None:
    """Five axes of a descriptor that the kernel makes, with permuted strides."""
    x = random_bits(session.rng, "f32", (5, 2, 3, 2, 12)).transpose(3, 1, 0, 2, 4)
    y = random_bits(session.rng, "f32", x.shape)
    expected = y.copy()
    expected[1:] = x[1:]
    sizes = [*x.shape, *steps(x)[:-1], *steps(y)[:-1]]
    session.launch(move_made, (3,), x, y, *sizes, FROM=1, BLOCK=(1, 2, 2, 4, 16))
    same_bits(session, y, expected)


# ---- kernels with descriptors


@tw.jit
def transpose(source, target):
    R: tl.constexpr = source.block_shape[0]
    C: tl.constexpr = source.block_shape[1]
    row = tl.program_id(0) * R
    for column in range(0, source.shape[1], C):
        target.store([column, row], tl.trans(source.load([row, column])))


@case(
    "loops/transpose",
    "descriptor.store",
    each=("f32", "i16", "u8"),
    needs=lambda element: described(element, tile=512),
    quick=("i16",),
)
def transposes(session: Session, element: str) -> None:
    """A loop over blocks whose end is an extent of the descriptor."""
    x, y = spaced(session.rng, element, (37, 83)), spaced(session.rng, element, (83, 37))
    session.launch(transpose, (3,), on_host(x, element, (16, 32)), on_host(y, element, (32, 16)))
    same_bits(session, y, x.T)


@tw.jit
def summed(desc, out, n, K: tl.constexpr):
    R: tl.constexpr = desc.block_shape[0]
    total = tl.zeros((R,), tl.int32)
    row = tl.program_id(0) * R
    for k in range(0, n, K):
        total += tl.sum(desc.load([row, k]).to(tl.int32), 1)
    tl.store(out + row + tl.arange(0, R), total)


@case(
    "loops/sums",
    "descriptor.load",
    each=("i8", "i32"),
    needs=lambda element: described(element, "i32", tile=512),
    quick=("i8",),
)
def loops_over_columns(session: Session, element: str) -> None:
    """Add up rows, in which padding counts nothing."""
    for columns in (83, 32, 1):
        x = spaced(session.rng, element, (30, columns))
        out = np.zeros(32, np.int32)
        session.launch(summed, (2,), on_host(x, element, (16, 32)), out, columns, K=32)
        same_bits(
            session,
            out,
            np.concatenate([x.sum(1, dtype=np.int32), np.zeros(2, np.int32)]),
            f"{columns} columns",
        )


@tw.jit
def multiply(a, b, c, k, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    column = tl.program_id(1) * BLOCK
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK):
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)
    c.store([row, column], total)


@case(
    "loops/product",
    "descriptor.load",
    needs=described(
        "f16", "f32", tile=1024, dot=frozenset({("f16", "f32")}), dot_shape=(32, 32, 32)
    ),
    quick=True,
)
def matmuls(session: Session) -> None:
    """A matmul over K, of small whole numbers; the result is cast as it is stored."""
    a, b = (session.rng.integers(-4, 5, shape).astype(np.float16) for shape in ((50, 80), (80, 72)))
    c = poison("f16", (50, 72))
    session.launch(
        multiply,
        (2, 3),
        on_host(a, "f16", (32, 32)),
        on_host(b, "f16", (32, 32)),
        on_host(c, "f16", (32, 32)),
        80,
        BLOCK=32,
    )
    session.check(c, a.astype(np.float64) @ b.astype(np.float64))


@tw.jit
def block_of(desc, row, column):
    return desc.load([row, column])


@tw.jit
def members(desc, both, out, numbers):
    tl.static_assert(desc.dtype == tl.int32)
    tl.store(numbers, desc.shape[0])
    tl.store(numbers + 1, desc.shape[1])
    tl.store(numbers + 2, desc.strides[0])
    tl.store(numbers + 3, desc.strides[1])
    tl.store(numbers + 4, desc.block_shape[0] * 100 + desc.block_shape[1])
    value = block_of(desc, 1, 2)
    if tl.program_id(0) == 0:
        value += block_of(both[1], 0, 0)
    at = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(out + at, value)
    both[0].store([0, 0], 7)


@case("members", "descriptor.shape", needs=described("i32", "i64", tile=32), quick=True)
def members_and_tuples(session: Session) -> None:
    """Read attributes in the kernel: shape, strides and block shape.

    Descriptors are in tuples and arguments of functions; a number is stored to a whole block.
    """
    x, other = spaced(session.rng, "i32", (9, 13)), spaced(session.rng, "i32", (9, 13))
    target, out, numbers = (
        spaced(session.rng, "i32", (3, 5)),
        np.zeros((4, 8), np.int32),
        np.zeros(5, np.int64),
    )
    both = (on_host(target, "i32", (4, 8)), on_host(other, "i32", (4, 8)))
    session.launch(members, (1,), on_host(x, "i32", (4, 8)), both, out, numbers)
    session.check(numbers, np.array([9, 13, steps(x)[0], 1, 408]))
    same_bits(session, out, x[1:5, 2:10] + other[:4, :8])
    same_bits(session, target, np.full((3, 5), 7, np.int32))


@tw.jit
def cast_stored(x, integers, halves):
    at = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :]
    value = tl.load(x + at)
    integers.store([0, 0], value)
    halves.store([0, 0], value)


@case("store/casts", "descriptor.store", needs=described("f32", "i16", "f16", tile=128), quick=True)
def values_are_cast(session: Session) -> None:
    """A stored value becomes one of the tensor's type."""
    x = (session.rng.integers(-8000, 8000, (8, 16)) / 4).astype(np.float32)
    integers, halves = poison("i16", (8, 16)), poison("f16", (8, 16))
    session.launch(
        cast_stored, (1,), x, on_host(integers, "i16", (8, 16)), on_host(halves, "f16", (8, 16))
    )
    same_bits(session, integers, np.trunc(x).astype(np.int16))
    same_bits(session, halves, x.astype(np.float16))


@tw.jit
def rewritten(desc, out):
    first = desc.load([0, 0])
    desc.store([0, 0], first + 1)
    tl.debug_barrier()
    second = desc.load([1, 0])
    tl.debug_barrier()
    desc.store([2, 0], second * 2)
    at = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(out + at, first)


@case("order", "descriptor.store", needs=described("i32", tile=32), quick=True)
def order(session: Session) -> None:
    """Loads and stores of blocks that overlap keep their order, with barriers between."""
    x, out = spaced(session.rng, "i32", (10, 8)), np.zeros((4, 8), np.int32)
    first, expected = x[:4].copy(), x.copy()
    expected[:4] += 1
    expected[2:6] = expected[1:5] * 2
    session.launch(rewritten, (1,), on_host(x, "i32", (4, 8)), out)
    same_bits(session, x, expected)
    same_bits(session, out, first)
