"""Calls that are not inlined, tuples and aggregates in control flow, maps over elements."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles import dtypes
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import numbers
from tilewright_conformance.testlib.case_table import Table, elements

CASES = Table("control", "control", "Python and NumPy")

# ---- functions compiled on their own


@tw.jit(noinline=True)
def affine(x, y, BY: tl.constexpr):
    if x > y:
        return x - y
    return x * BY + y


@tw.jit
def call_on_scalars(x, y, out, n):
    for i in range(n):
        a, b = tl.load(x + i), tl.load(y + i)
        first = affine(a, b, 3)
        tl.store(out + i, affine(first, b, 3))
        tl.store(out + n + i, affine(b, a, 5))


@CASES(
    "noinline/scalars",
    "call",
    each={
        dtypes.IR[name]: name
        for name in (
            "int8",
            "int16",
            "int32",
            "int64",
            "uint32",
            "uint64",
            "float16",
            "bfloat16",
            "float32",
            "float64",
        )
    },
    needs=lambda name: elements(dtypes.IR[name], features={"noinline"}),
    quick=("i32", "f32"),
)
def functions_of_scalars(session: Session, name: str) -> None:
    """Arguments and results of every type, with numbers so small that nothing overflows."""
    x, y = numbers.draw(session.rng, name, 9, limit=4), numbers.draw(session.rng, name, 9, limit=4)
    out = np.zeros((2, 9), x.dtype)
    session.launch(call_on_scalars, (1,), x, y, out, 9)
    wide = [array.astype(np.float64) for array in (x, y)]

    def formula(a: Any, b: Any, by: int) -> Any:
        return np.where(a > b, a - b, a * by + b)

    first = formula(wide[0], wide[1], 3)
    found = np.stack([formula(first, wide[1], 3), formula(wide[1], wide[0], 5)])
    numbers.check(session, out, found.astype(out.dtype), zero_sign=False)


@tw.jit(noinline=True)
def row_of(x, row, scale, BLOCK: tl.constexpr):
    tile = tl.load(x + row * BLOCK + tl.arange(0, BLOCK)) * scale
    return tile, tl.sum(tile, axis=0)


@tw.jit(noinline=True)
def put(out, value):
    tl.store(out, value)


@tw.jit
def call_for_tiles(x, out, totals, rows, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        if row % 3 != 1:
            tile, total = row_of(x, row, 2.0, BLOCK)
            acc += tile
            put(totals + row, total)
    tl.store(out + tl.arange(0, BLOCK), acc)


@CASES("noinline/tiles", "call", needs=elements("f32", tile=64, features={"noinline"}), quick=True)
def functions_return_tiles_and_store(session: Session) -> None:
    x = numbers.draw(session.rng, "float32", (7, 64))
    out, totals = np.zeros(64, np.float32), np.full(7, 99, np.float32)
    session.launch(call_for_tiles, (1,), x, out, totals, 7, BLOCK=64)
    rows = np.arange(7) % 3 != 1
    session.check(out, 2 * x[rows].sum(0), zero_sign=False)
    session.check(totals, np.where(rows, 2 * x.astype(np.float64).sum(1), 99), zero_sign=False)


@tw.jit(noinline=True)
def power(x, N: tl.constexpr):
    if N == 0:
        return x - x + 1
    return x * power(x, N - 1)


@tw.jit(noinline=True)
def powers(x):
    return power(x, 3), power(x, 1), power(x, 0)


@tw.jit
def call_in_calls(x, out):
    pid = tl.program_id(0)
    cube, same, one = powers(tl.load(x + pid))
    tl.store(out + pid * 3, cube)
    tl.store(out + pid * 3 + 1, same)
    tl.store(out + pid * 3 + 2, one)


@CASES("noinline/nested", "call", needs=elements(features={"noinline"}), quick=True)
def functions_call_functions(session: Session) -> None:
    x, out = np.array([3, -2, 0, 1000], np.int32), np.zeros((4, 3), np.int32)
    session.launch(call_in_calls, (4,), x, out)
    session.check(out, np.stack([x**3, x, x**0], 1).astype(np.int32))


@tw.jit(noinline=True)
def doubled(x):
    return x * 2


@tw.jit
def by_function(x, out, FN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, FN(tl.load(x + offsets)))


@tw.jit
def squared(x):
    return x * x


@tw.jit
def negated(x):
    return -x


@CASES("call/function_argument", "call", needs=elements(tile=16), quick=True)
def functions_are_arguments(session: Session) -> None:
    """A kernel is compiled for each function that it is given."""
    x = session.rng.integers(-100, 100, 16).astype(np.int32)
    for function, expected in ((squared, x * x), (negated, -x), (squared, x * x)):
        out = np.zeros(16, np.int32)
        session.launch(by_function, (1,), x, out, FN=function, BLOCK=16)
        session.check(out, expected)


@tw.jit
def call_both_ways(x, out):
    value = tl.load(x)
    tl.store(out, doubled(value) + squared(value))
    if value > 3:
        tl.store(out + 1, doubled(doubled(value)))
    else:
        tl.store(out + 1, doubled(negated(value)))


@CASES("noinline/in_branches", "call", needs=elements(features={"noinline"}), quick=True)
def calls_in_branches(session: Session) -> None:
    for value in (2, 5):
        out = np.zeros(2, np.int32)
        session.launch(call_both_ways, (1,), np.array([value], np.int32), out)
        session.check(
            out,
            np.array([2 * value + value * value, 4 * value if value > 3 else -2 * value], np.int32),
        )


# ---- tuples and aggregates


class Pair(NamedTuple):
    left: Any
    right: Any


@tw.jit
def swap(pair):
    return Pair(pair.right, pair.left)


@tw.jit
def tuples_through_control(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    state = (tl.load(x + offsets), (n, 0))
    pair = Pair(1, n)
    for i in range(n):
        state = (state[0] + i, (state[1][1], state[1][0]))
        if i % 2 == 0:
            pair = swap(pair)
        else:
            pair = Pair(left=pair.left + i, right=pair.right)
    while state[1][0] > 3:
        state = (state[0] * 2, (state[1][0] - 1, state[1][1] + 1))
    tile, (a, b) = state
    tl.store(out + offsets, tile)
    tl.store(out + BLOCK, a)
    tl.store(out + BLOCK + 1, b)
    tl.store(out + BLOCK + 2, pair.left)
    tl.store(out + BLOCK + 3, pair[1])


@CASES("tuples", "tuple", needs=elements(tile=16), quick=True)
def tuples_are_carried_and_merged(session: Session) -> None:
    for n in (0, 3, 6):
        x, out = session.rng.integers(-9, 9, 16).astype(np.int32), np.zeros(20, np.int32)
        session.launch(tuples_through_control, (1,), x, out, n, BLOCK=16)
        tile, a, b, pair = x.copy(), n, 0, (1, n)
        for i in range(n):
            tile, a, b = tile + i, b, a
            pair = pair[::-1] if i % 2 == 0 else (pair[0] + i, pair[1])
        while a > 3:
            tile, a, b = tile * 2, a - 1, b + 1
        session.check(out, np.array([*tile, a, b, *pair], np.int32))


@tw.aggregate
class Running:
    """A mean in the making."""

    count: tl.tensor
    total: tl.tensor
    width: tl.constexpr

    @tw.jit  # type: ignore[misc]
    def __init__(self, count, total, width: tl.constexpr):
        self.count = count
        self.total = total
        self.width = width

    @tw.jit
    def add(self, value):
        return Running(self.count + 1, self.total + value, self.width)

    @tw.jit
    def scaled(self):
        return self.total * self.width


@tw.jit
def aggregates_through_control(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    state = Running(0, tl.zeros((BLOCK,), tl.float32), BLOCK)
    for i in range(n):
        row = tl.load(x + i * BLOCK + offsets)
        if tl.sum(row, axis=0) > 0.0:
            state = state.add(row)
        else:
            state = Running(state.count + 100, state.total, state.width)
    while state.count % 7 != 0:
        state = state.add(tl.full((BLOCK,), 1.0, tl.float32))
    tl.store(out + offsets, state.scaled())
    tl.store(out + BLOCK, state.count)


@CASES("aggregates", "aggregate", needs=elements("f32", tile=16), quick=True)
def aggregates_are_carried_and_merged(session: Session) -> None:
    for n in (0, 1, 8):
        x, out = numbers.draw(session.rng, "float32", (max(n, 1), 16)), np.zeros(17, np.float32)
        session.launch(aggregates_through_control, (1,), x, out, n, BLOCK=16)
        total, count = np.zeros(16), 0
        for row in x[:n].astype(np.float64):
            total, count = (total + row, count + 1) if row.sum() > 0 else (total, count + 100)
        while count % 7:
            total, count = total + 1, count + 1
        session.check(out, np.array([*(total * 16), count]), zero_sign=False)


# ---- functions mapped over elements


@tw.jit
def clipped_steps(x, limit):
    steps = 0
    while x > limit:
        x = x - limit
        steps += 1
    if steps % 2 == 1:
        x = -x
    return x, steps


@tw.jit
def map_one(x, limits, out, counts, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value, steps = tl.map_elementwise(
        clipped_steps, tl.load(x + offsets), tl.load(limits + offsets)
    )
    tl.store(out + offsets, value)
    tl.store(counts + offsets, steps)


@CASES(
    "map/control_flow",
    "map_elementwise",
    each={"f32": "float32", "i32": "int32", "i64": "int64"},
    needs=lambda name: elements(name, tile=64),
    quick=("f32",),
)
def elements_take_their_own_branches(session: Session, name: str) -> None:
    x = session.rng.integers(-20, 60, 64).astype(name)
    limits = session.rng.integers(3, 9, 64).astype(name)
    out, counts = np.zeros_like(x), np.zeros(64, np.int32)
    session.launch(map_one, (1,), x, limits, out, counts, BLOCK=64)
    steps = np.maximum(
        -((-(x.astype(np.int64) - limits.astype(np.int64))) // limits.astype(np.int64)), 0
    )
    rest = x - steps.astype(name) * limits
    session.check(counts, steps.astype(np.int32))
    session.check(out, np.where(steps % 2 == 1, -rest, rest).astype(name), zero_sign=False)


@tw.jit
def pair_up(a, b):
    return b * 10, a - b


@tw.jit
def rotate_four(a, b, c, d, w, x, y, z):
    if a > b:
        return d, a, b, c, w + x, y, z, 0
    return b, c, d, a, x, w, y - z, 1


@tw.jit
def map_pack(x, y, out, second, PACK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    offsets = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    if PACK == 2:
        tl.store(out + offsets, tl.map_elementwise(pair_up, tl.load(x + offsets), pack=2))
    else:
        first, other = tl.map_elementwise(
            rotate_four, tl.load(x + offsets), tl.load(y + offsets), pack=4
        )
        tl.store(out + offsets, first)
        tl.store(second + offsets, other)


@CASES(
    "map/pack",
    "map_elementwise",
    each={"2": (2, 8, 16), "2_row": (2, 1, 2), "4": (4, 4, 32), "4_row": (4, 1, 8)},
    needs=elements(tile=128),
    quick=("2", "4"),
)
def packs_are_neighbours_in_order(session: Session, given: tuple[int, int, int]) -> None:
    pack, rows, columns = given
    x, y = (session.rng.integers(-100, 100, (rows, columns)).astype(np.int32) for _ in range(2))
    out, second = np.zeros_like(x), np.zeros_like(x)
    session.launch(map_pack, (1,), x, y, out, second, PACK=pack, ROWS=rows, COLUMNS=columns)
    if pack == 2:
        a, b = x.reshape(-1, 2).T
        session.check(out, np.stack([b * 10, a - b], 1).reshape(rows, columns))
        return
    results = []
    for (a, b, c, d), (w, p, q, z) in zip(
        x.reshape(-1, 4).tolist(), y.reshape(-1, 4).tolist(), strict=True
    ):
        results.append((d, a, b, c, w + p, q, z, 0) if a > b else (b, c, d, a, p, w, q - z, 1))
    found = np.array(results, np.int32)
    session.check(out, found[:, :4].reshape(rows, columns))
    session.check(second, found[:, 4:].reshape(rows, columns))
