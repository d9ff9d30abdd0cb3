"""Loops over ranges: bounds and steps of every integer type, loop-carried values, nests, hints.

The hints are those of ``tl.range``; loops are unrolled, too.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles import dtypes
from tilewright_conformance.suite.case import Needs
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import numbers
from tilewright_conformance.testlib.case_table import Table, elements

CASES = Table("branches", "core", "Python and NumPy")

#: Places for the values that a loop goes through, a row of them for each program.
ROOM = 16


def _and_wide(name: str) -> Needs:
    """The needs of a kernel of a type, and of the type that results are kept in."""
    return elements(name, *["uint64"] * name.startswith("u"))


# ---- bounds


@tw.jit
def list_range(bounds, out, counts, ROOM: tl.constexpr):
    row = tl.program_id(0)
    start = tl.load(bounds + row * 3)
    stop = tl.load(bounds + row * 3 + 1)
    step = tl.load(bounds + row * 3 + 2)
    count = 0
    for i in tl.range(start, stop, step):
        tl.store(out + row * ROOM + count, i)
        count += 1
    tl.store(counts + row, count)


@tw.jit
def list_fixed_step(bounds, out, counts, STEP: tl.constexpr, ROOM: tl.constexpr):
    row = tl.program_id(0)
    count = 0
    for i in range(tl.load(bounds + row * 2), tl.load(bounds + row * 2 + 1), STEP):
        tl.store(out + row * ROOM + count, i)
        count += 1
    tl.store(counts + row, count)


def _ranges(name: str, rng: np.random.Generator) -> list[tuple[int, int, int]]:
    """(start, stop, step) of loops of at most :data:`ROOM` iterations, and the ends of the type."""
    low, high = np.iinfo(dtypes.kind(name)).min, np.iinfo(dtypes.kind(name)).max
    third = high // 3
    found = [
        *((0, 5, 1), (3, 20, 4), (5, 5, 1), (7, 2, 2), (1, 2, 10), (0, 16, 1), (0, 1, 127)),
        *(
            (high - 4, high, 1),
            (high - 5, high, 2),
            (high - 1, high, 1),
            (high, high, 1),
            (high, low, 1),
        ),
        # The number behind the last one would wrap around.
        *(
            (0, high, third),
            (high - 10, high, 7),
            (low, high, high),
            (low, low + 9, 4),
            (1, high, high - 2),
        ),
    ]
    if low < 0:
        found += [
            (-6, 7, 3),
            (-9, -2, 2),
            (low, low + 3, 1),
            (-1, 2, 1),
            (low, high, third),
            (-5, -5, 1),
            (2, -3, 1),
        ]
    else:
        middle = high // 2  # unsigned numbers on both sides of the sign bit
        found += [
            (middle - 2, middle + 4, 1),
            (middle + 1, high, third),
            (middle, low, 1),
            (low, middle + 1, middle),
            (middle + 3, middle - 3, 1),
        ]
    for _ in range(12):
        start = int(rng.integers(low, high, dtype=dtypes.kind(name)))
        step = int(rng.integers(1, min(high, 1 << 20), dtype=dtypes.kind(name)))
        found.append((start, min(high, start + step * int(rng.integers(0, ROOM))), step))
    return found


def _check_ranges(
    session: Session, ranges: list[tuple[int, int, int]], out: dtypes.Array, counts: dtypes.Array
) -> None:
    expected = np.full(out.shape, -1).astype(out.dtype)
    for row, bounds in enumerate(ranges):
        values = np.array(range(*bounds), out.dtype)
        expected[row, : len(values)] = values
    session.check(
        counts,
        np.array([len(range(*bounds)) for bounds in ranges], np.int32),
        name="numbers of iterations",
    )
    session.check(out, expected, name="values of the loop variable")


@CASES(
    "for/bounds",
    "for",
    each={dtypes.IR[name]: name for name in dtypes.INTEGERS},
    needs=_and_wide,
    quick=("i8", "i32", "u32", "u64"),
)
def bounds_of_a_type(session: Session, name: str) -> None:
    """The variable, of the bounds' type, is stored with 64 bits, so that its sign shows."""
    ranges = _ranges(name, session.rng)
    assert max(len(range(*bounds)) for bounds in ranges) <= ROOM
    wide = np.uint64 if name in dtypes.UNSIGNED else np.int64
    out = np.full((len(ranges), ROOM), -1).astype(wide)
    counts = np.full(len(ranges), -1, np.int32)
    session.launch(
        list_range, (len(ranges),), np.array(ranges, wide).astype(name), out, counts, ROOM=ROOM
    )
    _check_ranges(session, ranges, out, counts)


@CASES(
    "for/constant_step",
    "for",
    each={str(step): step for step in (1, 3, 7, -1, -2, -5)},
    quick=("-2", "3"),
)
def constant_steps(session: Session, step: int) -> None:
    """Steps known at compile time, of either sign; bounds of both 32 and 64 bits."""
    sign = 1 if step > 0 else -1
    for dtype in (np.int32, np.int64):
        base = 0 if dtype is np.int32 else sign << 40
        ends = [(0, sign * length) for length in (0, 1, 2, 9, 16)] + [
            (5, -5),
            (-5, 5),
            (3, 3),
            (-7, -2),
            (-2, -7),
            (10, 1),
            (10, 0),
        ]
        out, counts = np.full((len(ends), ROOM), -1, np.int64), np.full(len(ends), -1, np.int32)
        session.launch(
            list_fixed_step,
            (len(ends),),
            (np.array(ends) + base).astype(dtype),
            out,
            counts,
            STEP=step,
            ROOM=ROOM,
        )
        _check_ranges(
            session, [(start + base, stop + base, step) for start, stop in ends], out, counts
        )


@tw.jit
def list_arguments(out, count, start, stop, step):
    n = 0
    for i in range(start, stop, step):
        tl.store(out + n, i)
        n += 1
    tl.store(count, n)


@tw.jit
def list_to(out, count, stop):
    n = 0
    for i in range(stop):
        tl.store(out + n, i)
        n += 1
    tl.store(count, n)


@CASES(
    "for/arguments",
    "for",
    each={"i32": (0,), "i64": (1 << 35,), "mixed": (0, 1 << 33)},
    quick=("mixed",),
)
def bounds_are_arguments(session: Session, bases: tuple[int, ...]) -> None:
    """Loop between bounds from the launch, of two types.

    1 and multiples of 16, which have specializations, are among them.
    """
    for base in bases:
        for start, stop, step in (
            (1, 16, 1),
            (0, 16, 3),
            (16, 48, 16),
            (2, 1, 1),
            (1, 2, 1),
            (5, 6, 7),
        ):
            bounds = (start + base, stop + base, step)
            out, count = np.full(ROOM, -1, np.int64), np.zeros(1, np.int32)
            session.launch(list_arguments, (1,), out, count, *bounds)
            expected = np.full(ROOM, -1, np.int64)
            expected[: len(range(*bounds))] = range(*bounds)
            session.check(out, expected)
            session.require(count[0] == len(range(*bounds)), f"range{bounds} ran {count[0]} times")


@CASES("for/one_argument", "for", quick=True)
def ranges_from_zero(session: Session) -> None:
    for stop in (0, 1, 5, 16, -3):
        out, count = np.full(ROOM, -1, np.int64), np.full(1, 99, np.int32)
        session.launch(list_to, (1,), out, count, stop)
        session.check(out, np.array([i if i < stop else -1 for i in range(ROOM)]))
        session.require(count[0] == max(stop, 0), f"range({stop}) ran {count[0]} times")


# ---- carried values


@tw.jit
def add_rows(x, out, n, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), TYPE)
    for row in range(n):
        acc += tl.load(x + row * BLOCK + offsets)
    tl.store(out + offsets, acc)


@CASES(
    "carried/tile",
    "for",
    each={dtypes.IR[name]: name for name in dtypes.NUMBERS},
    needs=lambda name: elements(name, tile=64),
    quick=("f32", "bf16", "u8", "i64"),
)
def tiles_are_carried(session: Session, name: str) -> None:
    """Add up tiles of every type in a loop; numbers are small, so the results are exact."""
    for rows in (0, 1, 7):
        x = numbers.draw(session.rng, name, (max(rows, 1), 64), limit=8)
        out = np.full(64, 3, dtypes.kind(name))
        session.launch(add_rows, (1,), x, out, rows, TYPE=dtypes.language(name), BLOCK=64)
        numbers.check(
            session,
            out,
            x[:rows].astype(np.float64).sum(0).astype(out.dtype)
            if name in dtypes.FLOATS
            else x[:rows].sum(0).astype(out.dtype),
        )


@tw.jit
def add_planes(x, out, n, SHAPE: tl.constexpr, COUNT: tl.constexpr):
    offsets = tl.reshape(tl.arange(0, COUNT), SHAPE)
    acc = tl.zeros(SHAPE, tl.float32)
    scale = 1
    for plane in range(n):
        acc = acc + tl.load(x + plane * COUNT + offsets) * scale
        scale = -scale
    tl.store(out + offsets, acc)


@CASES(
    "carried/shape",
    "for",
    each={
        "1": (1,),
        "1024": (1024,),
        "8x16": (8, 16),
        "1x64": (1, 64),
        "32x1": (32, 1),
        "2x4x8": (2, 4, 8),
        "128x64": (128, 64),
    },
    needs=elements("f32", tile=1 << 13),
    quick=("8x16",),
)
def shapes_are_carried(session: Session, shape: tuple[int, ...]) -> None:
    x, out = numbers.draw(session.rng, "float32", (5, *shape)), np.empty(shape, np.float32)
    session.launch(add_planes, (1,), x, out, 5, SHAPE=shape, COUNT=int(np.prod(shape)))
    session.check(out, x[0] - x[1] + x[2] - x[3] + x[4])


@tw.jit
def fibonacci(out, n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    tl.store(out, a)
    tl.store(out + 1, b)


@CASES("carried/exchanged", "for", quick=True)
def values_change_places(session: Session) -> None:
    for n in (0, 1, 2, 7, 40):
        out = np.zeros(2, np.int32)
        session.launch(fibonacci, (1,), out, n)
        a, b = 0, 1
        for _ in range(n):
            a, b = b, a + b
        session.check(out, np.array([a, b], np.int64).astype(np.int32))


@tw.jit
def rotate(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    a, b, c = tl.load(x + offsets), tl.load(x + BLOCK + offsets), tl.load(x + 2 * BLOCK + offsets)
    turns = 0
    for _ in range(n):
        a, b, c = b, c, a
        turns += 1
    tl.store(out + offsets, a)
    tl.store(out + BLOCK + offsets, b)
    tl.store(out + 2 * BLOCK + offsets, c)
    tl.store(out + 3 * BLOCK, turns)


@CASES("carried/rotated_tiles", "for", needs=elements("f32", tile=32), quick=True)
def tiles_change_places(session: Session) -> None:
    for n in (0, 1, 2, 5):
        x, out = numbers.draw(session.rng, "float32", (3, 32)), np.zeros(97, np.float32)
        session.launch(rotate, (1,), x, out, n, BLOCK=32)
        session.check(out, np.concatenate([np.roll(x, -n, 0).ravel(), [n]]))


@tw.jit
def keep_last(out, n):
    i = 77
    before = 5
    for i in range(n):
        before = i * 10
        i = i + 100
        before += i
    tl.store(out, i)
    tl.store(out + 1, before)


@CASES("carried/loop_variable", "for", quick=True)
def the_loop_variable_may_be_changed(session: Session) -> None:
    """Change the loop variable, for this iteration alone.

    After a loop that never ran it has the value from before.
    """
    for n in (0, 1, 4):
        out = np.zeros(2, np.int32)
        session.launch(keep_last, (1,), out, n)
        session.check(out, np.array([n - 1 + 100, (n - 1) * 11 + 100] if n else [77, 5], np.int32))


@tw.jit
def walk_pointers(x, out, n, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    pointers = x + tl.arange(0, BLOCK)
    cursor = x
    acc = tl.zeros((BLOCK,), tl.float32)
    firsts = 0.0
    for row in range(n):
        acc += tl.load(pointers)
        firsts += tl.load(cursor)
        pointers += STRIDE
        if row % 2 == 0:
            cursor += STRIDE
    tl.store(out + tl.arange(0, BLOCK), acc)
    tl.store(out + BLOCK, firsts)


@CASES("carried/pointers", "for", needs=elements("f32", tile=16), quick=True)
def pointers_are_carried(session: Session) -> None:
    for n in (0, 1, 6):
        x, out = numbers.draw(session.rng, "float32", (8, 23)), np.zeros(17, np.float32)
        session.launch(walk_pointers, (1,), x, out, n, STRIDE=23, BLOCK=16)
        firsts, row = 0.0, 0
        for i in range(n):
            firsts += float(x[row, 0])
            row += i % 2 == 0
        session.check(out, np.concatenate([x[:n, :16].sum(0), [firsts]]))


@tw.jit
def count_up(out, n, BLOCK: tl.constexpr):
    """A recurrence that no formula replaces."""
    state = tl.arange(0, BLOCK).to(tl.uint32) + tl.program_id(0).to(tl.uint32)
    for _ in range(n):
        state = (state * 1664525 + 1013904223) ^ (state >> 13)
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), state)


@CASES("for/many_iterations", "for", needs=elements("u32", tile=32))
def many_iterations(session: Session) -> None:
    out = np.zeros((3, 32), np.uint32)
    session.launch(count_up, (3,), out, 3001, BLOCK=32)
    state = np.arange(32, dtype=np.uint32) + np.arange(3, dtype=np.uint32)[:, None]
    for _ in range(3001):
        state = (state * np.uint32(1664525) + np.uint32(1013904223)) ^ (state >> np.uint32(13))
    session.check(out, state)


# ---- nests


@tw.jit
def triangle(out, n):
    total = 0
    steps = 0
    for i in range(n):
        for j in range(i):
            if j % 2 == 1:
                for k in range(j, i):
                    total += i * 100 + j * 10 + k
                    steps += 1
            else:
                total -= j
        steps += 1000
    tl.store(out, total)
    tl.store(out + 1, steps)


@CASES("nested/triangle", "for", quick=True)
def bounds_depend_on_outer_loops(session: Session) -> None:
    for n in (0, 1, 2, 7):
        out = np.zeros(2, np.int32)
        session.launch(triangle, (1,), out, n)
        total = steps = 0
        for i in range(n):
            for j in range(i):
                for k in range(j, i) if j % 2 else ():
                    total, steps = total + i * 100 + j * 10 + k, steps + 1
                total -= 0 if j % 2 else j
            steps += 1000
        session.check(out, np.array([total, steps], np.int32))


@tw.jit
def ragged_totals(starts, x, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    first, last = tl.load(starts + row), tl.load(starts + row + 1)
    offsets = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, last, BLOCK):
        acc += tl.load(x + start + offsets, mask=start + offsets < last, other=0.0)
    total = 0.0
    for _ in range(2):
        for start in range(first, last, BLOCK):
            total += tl.sum(
                tl.load(x + start + offsets, mask=start + offsets < last, other=0.0), axis=0
            )
    tl.store(out + row * 2, tl.sum(acc, axis=0))
    tl.store(out + row * 2 + 1, total)


@CASES("nested/ragged", "for", needs=elements("f32", tile=16), quick=True)
def bounds_come_from_memory(session: Session) -> None:
    """Rows of their own length each, none and one element among them."""
    lengths = np.array([0, 1, 15, 16, 17, 40, 0, 33])
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    x, out = (
        numbers.draw(session.rng, "float32", int(starts[-1])),
        np.zeros((len(lengths), 2), np.float32),
    )
    session.launch(ragged_totals, (len(lengths),), starts, x, out, BLOCK=16)
    totals = np.array([x[a:b].astype(np.float64).sum() for a, b in itertools.pairwise(starts)])
    session.check(out, np.stack([totals, 2 * totals], 1), zero_sign=False)


@tw.jit
def totals_in_memory(x, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    for i in range(1, n):
        before = tl.load(x + (i - 1) * BLOCK + offsets)
        tl.store(x + i * BLOCK + offsets, tl.load(x + i * BLOCK + offsets) + before)
        tl.debug_barrier()


@CASES("for/through_memory", "for", needs=elements("f32", tile=64))
def an_iteration_reads_what_the_one_before_stored(session: Session) -> None:
    x = numbers.draw(session.rng, "float32", (9, 64))
    expected = np.cumsum(x, 0)
    session.launch(totals_in_memory, (1,), x, 9, BLOCK=64)
    session.check(x, expected)


# ---- unrolled loops and hints


@tw.jit
def unrolled(x, out, n, START: tl.constexpr, STOP: tl.constexpr, STEP: tl.constexpr):
    total = 0
    for i in tl.static_range(START, STOP, STEP):
        WIDTH: tl.constexpr = 2 ** (i % 4)
        total = total * 3 + i + tl.sum(tl.load(x + i + tl.arange(0, WIDTH)), axis=0)
        for j in tl.static_range(i % 3):
            total += j * n
    tl.store(out, total)


@CASES(
    "static_range",
    "static_range",
    each={"up": (0, 9, 1), "by_2": (1, 9, 2), "down": (8, 0, -3), "empty": (5, 5, 1)},
    needs=elements(tile=8),
    quick=("down",),
)
def unrolled_loops(session: Session, bounds: tuple[int, int, int]) -> None:
    """The variable is a constant, which may be a tile's extent."""
    x, out, n = session.rng.integers(0, 100, 20).astype(np.int32), np.zeros(1, np.int32), 7
    session.launch(unrolled, (1,), x, out, n, *bounds)
    total = 0
    for i in range(*bounds):
        total = (
            total * 3 + i + int(x[i : i + 2 ** (i % 4)].sum()) + sum(j * n for j in range(i % 3))
        )
    session.check(out, np.array([total], np.int32))


@tw.jit
def over_tuple(x, out, n):
    total = tl.load(x)
    for value, factor in ((n, 2), (3, n), (total, 5)):
        total = total * 2 + value * factor
    tl.store(out, total)


@CASES("static_range/tuple", "static_range", quick=True)
def loops_over_tuples(session: Session) -> None:
    x, out, n = np.array([11], np.int32), np.zeros(1, np.int32), 9
    session.launch(over_tuple, (1,), x, out, n)
    total = 11
    for value, factor in ((n, 2), (3, n), (11, 5)):
        total = total * 2 + value * factor
    session.check(out, np.array([total], np.int32))


@tw.jit
def hinted(
    x,
    out,
    n,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    UNROLL: tl.constexpr,
    FLATTEN: tl.constexpr,
    SPECIALIZE: tl.constexpr,
    NO_LICM: tl.constexpr,
):
    offsets = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    last = -1
    for i in tl.range(
        0,
        n,
        1,
        num_stages=STAGES,
        loop_unroll_factor=UNROLL,
        flatten=FLATTEN,
        warp_specialize=SPECIALIZE,
        disable_licm=NO_LICM,
    ):
        acc = acc * 0.5 + tl.load(x + i * BLOCK + offsets)
        last = i
    tl.store(out + offsets, acc)
    tl.store(out + BLOCK, last)


_PLAIN = {"STAGES": None, "UNROLL": None, "FLATTEN": False, "SPECIALIZE": False, "NO_LICM": False}


@CASES(
    "hints",
    "tl.range",
    each={
        "none": {},
        **{f"num_stages_{n}": {"STAGES": n} for n in (1, 2, 3, 5)},
        **{f"unroll_{n}": {"UNROLL": n} for n in (1, 2, 4, 7)},
        "flatten": {"FLATTEN": True},
        "warp_specialize": {"SPECIALIZE": True},
        "disable_licm": {"NO_LICM": True},
        "several": {"STAGES": 3, "UNROLL": 2, "NO_LICM": True},
    },
    needs=elements("f32", tile=64),
    quick=("unroll_4", "num_stages_3"),
)
def hints_change_nothing(session: Session, hints: dict[str, Any]) -> None:
    """Trip counts above, at and below the pipelined or unrolled number of iterations.

    Quarters halved a few times stay exact.
    """
    for n in (0, 1, 2, 3, 4, 8, 9):
        x, out = (
            session.rng.integers(-8, 9, (max(n, 1), 64)).astype(np.float32),
            np.zeros(65, np.float32),
        )
        session.launch(hinted, (1,), x, out, n, BLOCK=64, **{**_PLAIN, **hints})
        acc = np.zeros(64)
        for i in range(n):
            acc = acc * 0.5 + x[i]
        session.check(out, np.concatenate([acc, [n - 1]]), zero_sign=False)
