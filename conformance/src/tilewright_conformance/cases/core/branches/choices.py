"""Branches: ``if`` with results, conditional expressions, conditions of every type.

Constants decide at compile time; kernels and functions return early.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles import dtypes
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import numbers
from tilewright_conformance.testlib.case_table import Table, elements

CASES = Table("branches", "core", "Python and NumPy")


# ---- if with results


@tw.jit
def choose_of_four(x, out, fractions, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    tile = tl.load(x + pid * BLOCK + offsets)
    number = pid * 3
    fraction = 0.5
    if pid % 4 == 0:
        tile = tile + 1
        number = -number
    elif pid % 4 == 1:
        tile = tile * 2
        fraction = tl.sum(tile, axis=0)
    elif pid % 4 == 2 and pid > 2:
        number += 1000
    else:
        tile = -tile
        number, fraction = number * number, fraction * 4
    tl.store(out + pid * (BLOCK + 1) + offsets, tile)
    tl.store(out + pid * (BLOCK + 1) + BLOCK, number)
    tl.store(fractions + pid, fraction)


@CASES("if/elif", "if", needs=elements("f32", tile=16), quick=True)
def programs_take_their_own_branches(session: Session) -> None:
    x = numbers.draw(session.rng, "float32", (9, 16))
    out, fractions = np.zeros((9, 17), np.float32), np.zeros(9, np.float32)
    session.launch(choose_of_four, (9,), x, out, fractions, BLOCK=16)
    expected, totals = np.empty((9, 17)), np.full(9, 0.5)
    for pid in range(9):
        tile, number = x[pid].astype(np.float64), pid * 3
        if pid % 4 == 0:
            tile, number = tile + 1, -number
        elif pid % 4 == 1:
            tile = tile * 2
            totals[pid] = tile.sum()
        elif pid % 4 == 2 and pid > 2:
            number += 1000
        else:
            tile, number, totals[pid] = -tile, number * number, 2.0
        expected[pid] = [*tile, number]
    session.check(out, expected, zero_sign=False)
    session.check(fractions, totals, zero_sign=False)


@tw.jit
def choose_type(conditions, a, b, out, scalars, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    if tl.load(conditions + pid) > 0:
        tile = tl.load(a + offsets)
        scalar = tl.load(b)
    else:
        tile = tl.load(b + offsets)
        scalar = tl.load(a)
    tl.store(out + pid * BLOCK + offsets, tile)
    tl.store(scalars + pid, scalar)


@CASES(
    "if/results",
    "if",
    each={dtypes.IR[name]: name for name in dtypes.NUMBERS},
    needs=lambda name: elements(name, tile=32),
    quick=("f16", "i8", "u64"),
)
def results_of_every_type(session: Session, name: str) -> None:
    """Tiles and scalars of a type come out of the branch that ran."""
    a, b = numbers.wide(session.rng, name, 32), numbers.wide(session.rng, name, 32)
    conditions = np.array([1, 0, -5, 7], np.int32)
    out, scalars = np.zeros((4, 32), a.dtype), np.zeros(4, a.dtype)
    session.launch(choose_type, (4,), conditions, a, b, out, scalars, BLOCK=32)
    numbers.check(session, out, np.stack([a, b, b, a]))
    numbers.check(session, scalars, np.stack([b[0], a[0], a[0], b[0]]))


@tw.jit
def exchange_where(x, out, n):
    low, high = tl.load(x), tl.load(x + 1)
    swaps = 0
    for i in range(n):
        other = tl.load(x + 2 + i)
        if other < low:
            low, other = other, low
            swaps += 1
        if other > high:
            high, other = other, high
        if low > high:
            low, high = high, low
            swaps += 100
    tl.store(out, low)
    tl.store(out + 1, high)
    tl.store(out + 2, swaps)


@CASES("if/in_loop", "if", quick=True)
def branches_in_a_loop_exchange_values(session: Session) -> None:
    for n in (0, 1, 9):
        x, out = session.rng.integers(-100, 100, 11).astype(np.int32), np.zeros(3, np.int32)
        session.launch(exchange_where, (1,), x, out, n)
        low, high, swaps = int(x[0]), int(x[1]), 0
        for other in map(int, x[2 : 2 + n]):
            if other < low:
                low, other, swaps = other, low, swaps + 1
            high = max(high, other)
            if low > high:
                low, high, swaps = high, low, swaps + 100
        session.check(out, np.array([low, high, swaps], np.int32))


@tw.jit
def accumulate_some(x, keep, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    evens = tl.zeros((BLOCK,), tl.float32)
    odds = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        if tl.load(keep + i) != 0:
            row = tl.load(x + i * BLOCK + offsets)
            if i % 2 == 0:
                evens += row
            else:
                odds += row
    tl.store(out + offsets, evens)
    tl.store(out + BLOCK + offsets, odds)


@CASES("if/accumulators", "if", needs=elements("f32", tile=64), quick=True)
def loads_and_additions_under_a_condition(session: Session) -> None:
    x, keep = (
        numbers.draw(session.rng, "float32", (12, 64)),
        session.rng.integers(0, 2, 12).astype(np.int32),
    )
    out = np.zeros((2, 64), np.float32)
    session.launch(accumulate_some, (1,), x, keep, out, 12, BLOCK=64)
    kept = x * keep[:, None]
    session.check(out, np.stack([kept[0::2].sum(0), kept[1::2].sum(0)]), zero_sign=False)


@tw.jit
def store_under_conditions(x, out, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + pid)
    if value > 0:
        tl.store(out + pid * BLOCK + offsets, value + offsets)
        if value > 10:
            tl.store(out + pid * BLOCK, -1)
        else:
            tl.store(out + pid * BLOCK + 1, -2)
    elif value == 0:
        tl.store(out + pid * BLOCK + offsets, offsets, mask=offsets % 2 == 0)


@CASES("if/stores", "if", needs=elements(tile=8), quick=True)
def only_the_branch_taken_stores(session: Session) -> None:
    x, out = np.array([5, 0, -3, 20, 1, 11, -1], np.int32), np.full((7, 8), 99, np.int32)
    expected = out.copy()
    session.launch(store_under_conditions, (7,), x, out, BLOCK=8)
    for pid, value in enumerate(x):
        if value > 0:
            expected[pid] = value + np.arange(8)
            expected[pid, 0 if value > 10 else 1] = -1 if value > 10 else -2
        elif value == 0:
            expected[pid, ::2] = np.arange(0, 8, 2)
    session.check(out, expected)


@tw.jit
def read_what_is_there(pointers, x, out, length):
    pid = tl.program_id(0)
    at = tl.load(pointers + pid)
    if at >= 0 and at < length:
        value = tl.load(x + at)
    else:
        value = -1
    tl.store(out + pid, value)
    tl.store(out + 8 + pid, tl.load(x + at) if (at >= 0) and (at < length) else -2)


@CASES("if/guarded_load", "if")
def a_branch_not_taken_reads_nothing(session: Session) -> None:
    """Offsets far outside of the array: a load in a branch that is not taken must not happen."""
    at = np.array([0, 5, -(1 << 40), 9, 1 << 40, 10, -1, 3], np.int64)
    x, out = np.arange(10, dtype=np.int32) * 7, np.zeros((2, 8), np.int32)
    session.launch(read_what_is_there, (8,), at, x, out, 10)
    inside = (at >= 0) & (at < 10)
    values = x[np.where(inside, at, 0)]
    session.check(
        out, np.stack([np.where(inside, values, -1), np.where(inside, values, -2)]).astype(np.int32)
    )


# ---- conditions


@tw.jit
def truth(x, out):
    pid = tl.program_id(0)
    value = tl.load(x + pid)
    found = 0
    if value:
        found += 1
    else:
        found += 10
    found += 100 if value else 200
    tl.store(out + pid, found)


@CASES(
    "condition",
    "if",
    each={dtypes.IR[name]: name for name in ("bool", *dtypes.NUMBERS)},
    needs=elements,
    quick=("i1", "f32", "u8"),
)
def numbers_are_conditions(session: Session, name: str) -> None:
    """Take numbers for conditions as Python does.

    Any number but zero is true, NaN and the smallest number included; zeros of both signs are
    false.
    """
    if name == "bool":
        x = np.array([False, True])
    elif name in dtypes.FLOATS:
        x = numbers.special(name)
    else:
        about = np.iinfo(name)
        x = np.array([0, 1, about.max, about.min, 2, 1 << (about.bits - 2), about.max - 1], name)
    out = np.zeros(len(x), np.int32)
    session.launch(truth, (len(x),), x, out)
    session.check(
        out,
        np.array(
            [
                101 if bool(value) else 210
                for value in x.astype(np.float64 if name in dtypes.FLOATS else x.dtype)
            ],
            np.int32,
        ),
    )


@tw.jit
def logic(out, a, b, c):
    bits = 0
    if a > 0 and b > 0:
        bits += 1
    if a > 0 or (b > 0 and c > 0):
        bits += 2
    if not (a > 0 or b > 0):
        bits += 4
    if a < b < c:
        bits += 8
    if a == b == c or not a != c:  # noqa: SIM202  (to be compiled as it stands)
        bits += 16
    if (a > 0) == (b > 0):
        bits += 32
    bits += 64 if a > b else (128 if b > c else 256)
    x = 512 if a > 0 and not b > 0 else 0
    tl.store(out, bits + x)


@CASES("condition/logic", "if", quick=True)
def logic_of_conditions(session: Session) -> None:
    for a in (-1, 2):
        for b in (-1, 2, 3):
            for c in (2, -1, 5):
                out = np.zeros(1, np.int32)
                session.launch(logic, (1,), out, a, b, c)
                expected = (
                    (a > 0 and b > 0) * 1
                    + (a > 0 or (b > 0 and c > 0)) * 2
                    + (not (a > 0 or b > 0)) * 4
                    + (a < b < c) * 8
                )
                expected += (a == b == c or a == c) * 16 + ((a > 0) == (b > 0)) * 32
                expected += 64 if a > b else 128 if b > c else 256
                session.check(
                    out,
                    np.array([expected + 512 * (a > 0 and not b > 0)], np.int32),
                    name=f"bits of {a}, {b}, {c}",
                )


@tw.jit
def ternaries(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tile = tl.load(x + offsets) if n > 2 else tl.zeros((BLOCK,), tl.float32)
    tile = tile * 2 if n % 2 == 0 else tile + n if n < 4 else -tile
    tl.store(out + offsets, tile)
    tl.store(out + BLOCK, 1.5 if n > 3 else 2.5)


@CASES("ternary", "if", needs=elements("f32", tile=32), quick=True)
def conditional_expressions(session: Session) -> None:
    for n in range(7):
        x, out = numbers.draw(session.rng, "float32", 32), np.zeros(33, np.float32)
        session.launch(ternaries, (1,), x, out, n, BLOCK=32)
        tile = x if n > 2 else np.zeros(32, np.float32)
        tile = tile * 2 if n % 2 == 0 else tile + n if n < 4 else -tile
        session.check(out, np.concatenate([tile, [1.5 if n > 3 else 2.5]]), zero_sign=False)


# ---- what is known at compile time


@tw.jit
def by_constants(x, bias, out, n, MODE: tl.constexpr, WIDTH: tl.constexpr):
    offsets = tl.arange(0, WIDTH)
    value = tl.load(x + offsets)
    if bias is not None:
        value += tl.load(bias + offsets)
    if MODE == "double":
        value = value * 2
    elif MODE == "sum" and WIDTH > 4:
        value = value + tl.sum(value, axis=0)
    elif MODE == "nothing":
        value = undefined_name  # type: ignore[name-defined]  # noqa: F821  (never compiled)
    else:
        value = value - n if WIDTH == 4 else value + n
    if WIDTH > 8:
        tl.static_assert(MODE != "double", "not for wide ones")
    tl.store(out + offsets, value)


@CASES("constexpr", "if", needs=elements(tile=16), quick=True)
def constants_decide_at_compile_time(session: Session) -> None:
    """The side that is not taken is not compiled: it could not be."""
    x, bias = (
        session.rng.integers(0, 100, 16).astype(np.int32),
        session.rng.integers(0, 100, 16).astype(np.int32),
    )
    for mode, width, given in (
        ("double", 4, True),
        ("double", 8, False),
        ("sum", 4, False),
        ("sum", 8, True),
        ("sum", 16, False),
        ("other", 16, True),
    ):
        out = np.zeros(16, np.int32)
        session.launch(
            by_constants, (1,), x, bias if given else None, out, 7, MODE=mode, WIDTH=width
        )
        value = x[:width] + (bias[:width] if given else 0)
        if mode == "double":
            value = value * 2
        elif mode == "sum" and width > 4:
            value = value + value.sum()
        else:
            value = value - 7 if width == 4 else value + 7
        session.check(
            out,
            np.concatenate([value, np.zeros(16 - width)]).astype(np.int32),
            name=f"{mode} of {width}",
        )


# ---- early returns


@tw.jit
def return_early(x, out, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    value = tl.load(x + pid)
    tl.store(out + pid, value)
    if value < 0:
        tl.store(out + pid, 1000)
        if value < -10:
            return
        tl.store(out + pid, 2000)
    elif value == 0:
        return
    tl.store(out + 16 + pid, value * 2)


@CASES("return", "return", quick=True)
def kernels_return_early(session: Session) -> None:
    for n in (0, 5, 12):
        x, out = (
            np.array([3, 0, -5, -50, 7, -1, 9, 0, -11, 4, 2, -9], np.int32),
            np.full((2, 16), 9, np.int32),
        )
        expected = out.copy()
        session.launch(return_early, (12,), x, out, n)
        for pid, value in enumerate(x[:n]):
            expected[0, pid] = value if value >= 0 else 1000 if value < -10 else 2000
            if value > 0 or -10 <= value < 0:
                expected[1, pid] = value * 2
        session.check(out, expected)


@tw.jit
def classify(value, x, BLOCK: tl.constexpr):
    if value < 0:
        return tl.zeros((BLOCK,), tl.int32), -1
    tile = tl.load(x + tl.arange(0, BLOCK))
    if value > 10:
        return tile, 1
    elif value > 5:
        return tile * value, value
    return tile + value, 0


@tw.jit
def use_returns(values, x, out, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    tile, label = classify(tl.load(values + pid), x, BLOCK)
    total, _ = classify(label + 6, x, BLOCK)
    tl.store(out + pid * (BLOCK + 1) + tl.arange(0, BLOCK), tile + total)
    tl.store(out + pid * (BLOCK + 1) + BLOCK, label)


@CASES("return/function", "return", needs=elements(tile=16), quick=True)
def functions_return_from_branches(session: Session) -> None:
    values, x = (
        np.array([-4, 0, 6, 11, 3, 10], np.int32),
        session.rng.integers(-50, 50, 16).astype(np.int32),
    )
    out = np.zeros((6, 17), np.int32)
    session.launch(use_returns, (6,), values, x, out, BLOCK=16)

    def found(value: int) -> tuple[np.ndarray[Any, Any], int]:
        if value < 0:
            return 0 * x, -1
        return (x, 1) if value > 10 else (x * value, value) if value > 5 else (x + value, 0)

    expected = [
        [*(found(value)[0] + found(found(value)[1] + 6)[0]), found(value)[1]]
        for value in values.tolist()
    ]
    session.check(out, np.array(expected, np.int32))


@tw.jit
def defined_in_both(out, n):
    if n > 3:
        scratch = n * 2
        tl.store(out, scratch)
        y = n
        z = 1.5
    else:
        y = -n
        z = 2.5
    scratch = 0.25
    tl.store(out + 1, y)
    tl.store(out + 2, z + scratch)


@CASES("if/defined_inside", "if", needs=elements("f32"), quick=True)
def variables_of_both_branches_are_defined_after_them(session: Session) -> None:
    for n in (2, 5):
        out = np.zeros(3, np.float32)
        session.launch(defined_in_both, (1,), out, n)
        session.check(out, np.array([10, 5, 1.75] if n > 3 else [0, -2, 2.75]))
