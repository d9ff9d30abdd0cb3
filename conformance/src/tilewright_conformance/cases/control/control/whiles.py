"""``while`` loops that end by their data, and early exits from loops.

The exits are ``break``, ``continue``, ``return``; the ``else`` of loops is here, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import numbers
from tilewright_conformance.testlib.case_table import Table, elements

CASES = Table("control", "control", "Python and NumPy")

# ---- exits that depend on the data


@tw.jit
def collatz(starts, steps, peaks):
    pid = tl.program_id(0)
    n = tl.load(starts + pid)
    count = 0
    peak = n
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        peak = tl.maximum(peak, n)
        count += 1
    tl.store(steps + pid, count)
    tl.store(peaks + pid, peak)


@CASES(
    "while/collatz",
    "while",
    each={"i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64},
    needs=lambda dtype: elements(dtype.__name__),
    quick=("i32",),
)
def programs_loop_for_their_own_time(session: Session, dtype: Any) -> None:
    """One program never enters its loop, and one stays for over a hundred iterations."""
    starts = np.array([1, 2, 27, 97, 0, 7, 6, 171], dtype)
    steps, peaks = np.full(8, -1, np.int32), np.zeros(8, dtype)
    session.launch(collatz, (8,), starts, steps, peaks)
    expected = []
    for n in starts.tolist():
        values = [n]
        while values[-1] > 1:
            values.append(values[-1] // 2 if values[-1] % 2 == 0 else 3 * values[-1] + 1)
        expected.append((len(values) - 1, max(values)))
    session.check(steps, np.array([one[0] for one in expected], np.int32))
    session.check(peaks, np.array([one[1] for one in expected], dtype))


@tw.jit
def divisor(a, b, out):
    pid = tl.program_id(0)
    x, y = tl.load(a + pid), tl.load(b + pid)
    while y != 0:
        x, y = y, x % y
    tl.store(out + pid, x)


@CASES(
    "while/divisor",
    "while",
    each={"u32": np.uint32, "i64": np.int64, "u64": np.uint64},
    needs=lambda dtype: elements(dtype.__name__),
    quick=("u64",),
)
def common_divisors(session: Session, dtype: Any) -> None:
    top = np.iinfo(dtype).max
    a, b = (session.rng.integers(0, top, 32, dtype=dtype) for _ in range(2))
    a[:4], b[:4] = [0, 12, top, 12], [5, 0, top, 18]
    a[16:], b[16:] = a[16:] // 1000 * 12, b[16:] // 1000 * 18
    out = np.zeros(32, dtype)
    session.launch(divisor, (32,), a, b, out)
    session.check(
        out, np.array([math.gcd(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], dtype)
    )


@tw.jit
def follow_links(following, weights, starts, out, limit):
    pid = tl.program_id(0)
    at = tl.load(starts + pid)
    total = 0.0
    hops = 0
    while at >= 0 and hops < limit:
        total += tl.load(weights + at)
        at = tl.load(following + at)
        hops += 1
    tl.store(out + pid * 2, total)
    tl.store(out + pid * 2 + 1, hops)


@CASES("while/links", "while", needs=elements("f32"), quick=True)
def lists_in_memory(session: Session) -> None:
    """Follow lists in memory, whose ends are the only bound.

    One starts at its end, one is a circle.
    """
    order = session.rng.permutation(40).astype(np.int32)
    following = np.full(40, -1, np.int32)
    following[order[:30]] = order[1:31]
    following[order[33]], following[order[34]] = order[34], order[33]
    weights = numbers.draw(session.rng, "float32", 40)
    starts = np.array([order[0], order[20], order[30], -1, order[33]], np.int32)
    out = np.zeros((5, 2), np.float32)
    session.launch(follow_links, (5,), following, weights, starts, out, 100)
    expected = np.zeros((5, 2))
    for row, at in enumerate(starts.tolist()):
        while at >= 0 and expected[row, 1] < 100:
            expected[row] += [weights[at], 1]
            at = following[at]
    session.check(out, expected, zero_sign=False)


@tw.jit
def search(keys, wanted, out, n):
    pid = tl.program_id(0)
    key = tl.load(wanted + pid)
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if tl.load(keys + middle) < key:
            low = middle + 1
        else:
            high = middle
    tl.store(out + pid, low)


@CASES("while/search", "while", needs=elements("f32"), quick=True)
def binary_search(session: Session) -> None:
    for n in (37, 1, 0):
        keys = np.sort(numbers.draw(session.rng, "float32", 37))
        wanted = np.concatenate([keys[::4], np.array([-100, 100, 0.3], np.float32)])
        out = np.zeros(len(wanted), np.int32)
        session.launch(search, (len(wanted),), keys, wanted, out, n)
        session.check(out, np.searchsorted(keys[:n], wanted).astype(np.int32))


@tw.jit
def halve_until(x, out, counts, limit, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    tile = tl.load(x + pid * BLOCK + offsets)
    rounds = 0
    while tl.max(tl.abs(tile), axis=0) > limit:
        tile = tl.where(tl.abs(tile) > limit, tile * 0.5, tile)
        rounds += 1
    tl.store(out + pid * BLOCK + offsets, tile)
    tl.store(counts + pid, rounds)


@CASES(
    "while/tile",
    "while",
    each={"8": 8, "64": 64, "512": 512},
    needs=elements("f32", tile=512),
    quick=("64",),
)
def the_condition_reduces_a_tile(session: Session, block: int) -> None:
    x = session.rng.standard_normal((4, block)).astype(np.float32) * np.array(
        [[0.1], [10], [1000], [1]], np.float32
    )
    x[0] = np.clip(x[0], -1, 1)
    out, counts = np.zeros_like(x), np.full(4, -1, np.int32)
    session.launch(halve_until, (4,), x, out, counts, 1.0, BLOCK=block)
    expected, rounds = x.copy(), np.zeros(4, np.int32)
    for row in range(4):
        while np.abs(expected[row]).max() > 1:
            expected[row][np.abs(expected[row]) > 1] *= 0.5
            rounds[row] += 1
    session.check(out, expected)
    session.check(counts, rounds)


@tw.jit
def never(out, x, limit):
    i = 5
    total = 0
    tile = tl.arange(0, 8)
    while i < limit:
        i += 1
        total += tl.load(x + i)
        tile += 1
    tl.store(out, i)
    tl.store(out + 1, total)
    tl.store(out + 2 + tl.arange(0, 8), tile)


@CASES("while/never", "while", needs=elements(tile=8), quick=True)
def a_false_condition_runs_nothing(session: Session) -> None:
    x = np.arange(20, dtype=np.int32)
    for limit in (5, -3, 6, 9):
        out = np.zeros(10, np.int32)
        session.launch(never, (1,), out, x, limit)
        count = max(limit - 5, 0)
        session.check(
            out, np.array([5 + count, x[6 : 6 + count].sum(), *(np.arange(8) + count)], np.int32)
        )


@tw.jit
def exchanging(out, n):
    a, b, c = 1, 2, 3
    while n > 0:
        a, b, c = b, c, a + b
        n -= 1
    tl.store(out, a)
    tl.store(out + 1, b)
    tl.store(out + 2, c)


@CASES("while/exchanged", "while", quick=True)
def values_change_places(session: Session) -> None:
    for n in (0, 1, 2, 11):
        out = np.zeros(3, np.int32)
        session.launch(exchanging, (1,), out, n)
        a, b, c = 1, 2, 3
        for _ in range(n):
            a, b, c = b, c, a + b
        session.check(out, np.array([a, b, c], np.int32))


@tw.jit
def hinted_condition(out, n):
    i = 0
    while tl.condition(i * i < n, disable_licm=True):
        i += 1
    while (half := n // 2) > 3:
        n = half
    tl.store(out, i * 100 + n * 10 + half)


@CASES("while/condition", "tl.condition", quick=True)
def conditions_with_hints_and_names(session: Session) -> None:
    for n in (0, 1, 50):
        out = np.zeros(1, np.int32)
        session.launch(hinted_condition, (1,), out, n)
        i = next(i for i in range(100) if i * i >= n)
        rest = n
        while (half := rest // 2) > 3:
            rest = half
        session.check(out, np.array([i * 100 + rest * 10 + half], np.int32))


@tw.jit
def nested(x, out, rows, columns, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    found = tl.zeros((BLOCK,), tl.float32)
    row = 0
    visits = 0
    while row < rows:
        for column in range(columns):
            tile = tl.load(x + (row * columns + column) * BLOCK + offsets)
            inner = 0
            while tl.sum(tile, axis=0) > 20.0:
                tile = tile * 0.5
                inner += 1
            if inner % 2 == 1:
                found += tile
            visits += inner
        row += 2 if visits % 3 == 0 else 1
    tl.store(out + offsets, found)
    tl.store(out + BLOCK, visits)


@CASES("nested", "while", needs=elements("f32", tile=16), quick=True)
def loops_and_branches_nest(session: Session) -> None:
    for rows, columns in ((5, 3), (1, 1), (0, 2), (3, 0)):
        x = session.rng.integers(-4, 40, (max(rows, 1), max(columns, 1), 16)).astype(np.float32)
        out = np.zeros(17, np.float32)
        session.launch(nested, (1,), x, out, rows, columns, BLOCK=16)
        found, row, visits = np.zeros(16), 0, 0
        while row < rows:
            for column in range(columns):
                tile, inner = x[row, column].astype(np.float64), 0
                while tile.sum() > 20:
                    tile, inner = tile * 0.5, inner + 1
                found += tile if inner % 2 else 0
                visits += inner
            row += 2 if visits % 3 == 0 else 1
        # Additions of a few halved integers: at most a dozen bits, so exact.
        session.check(out, np.array([*found, visits]), zero_sign=False)


# ---- leaving early


@tw.jit
def jumps_of_for(x, out, n, stop, skip):
    total = 0
    for i in range(n):
        value = tl.load(x + i)
        if value == skip:
            continue
        if value == stop:
            total += 1000
            break
        total += value * i
    else:
        total += 100000
    tl.store(out, total)


def _jumps_of_for(x: np.ndarray, n: int, stop: int, skip: int) -> int:
    total = 0
    for i, value in enumerate(x[:n].tolist()):
        if value == skip:
            continue
        if value == stop:
            return total + 1000
        total += value * i
    return total + 100000


@tw.jit
def jumps_of_while(x, out, n, stop, skip):
    total, i = 0, 0
    while True:
        if i >= n:
            break
        value = tl.load(x + i)
        i += 1
        if value == skip:
            continue
        elif value > stop:
            total = -total
            break
        total += value
    tl.store(out, total * 100 + i)


def _jumps_of_while(x: np.ndarray, n: int, stop: int, skip: int) -> int:
    total = i = 0
    for value in x[:n].tolist():
        i += 1
        if value == skip:
            continue
        if value > stop:
            total = -total
            break
        total += value
    return total * 100 + i


@tw.jit
def jumps_of_nest(x, out, n, stop, skip):
    total = 0
    for i in range(n):
        j = 0
        while j < i:
            value = tl.load(x + j)
            j += 1
            if value == skip:
                break
            if value > stop:
                continue
            total += value
        else:
            total += 1000
        if total > 20000:
            break
    tl.store(out, total)


def _jumps_of_nest(x: np.ndarray, n: int, stop: int, skip: int) -> int:
    total = 0
    for i in range(n):
        for value in x[:i].tolist():
            if value == skip:
                break
            total += 0 if value > stop else value
        else:
            total += 1000
        if total > 20000:
            break
    return total


@tw.jit
def jumps_of_unrolled(x, out, n, stop, skip):
    total = 0
    for i in tl.static_range(12):
        if i == 3:
            continue
        if i < n:
            value = tl.load(x + i)
            if value == stop:
                break
            if value != skip:
                total = total * 2 + value
    else:
        total += 7
    tl.store(out, total)


def _jumps_of_unrolled(x: np.ndarray, n: int, stop: int, skip: int) -> int:
    total = 0
    for i in range(12):
        if i == 3 or i >= n:
            continue
        value = int(x[i])
        if value == stop:
            return total
        total = total * 2 + value if value != skip else total
    return total + 7


JUMPS: dict[str, tuple[object, Callable[[np.ndarray, int, int, int], int]]] = {
    "for": (jumps_of_for, _jumps_of_for),
    "while": (jumps_of_while, _jumps_of_while),
    "nest": (jumps_of_nest, _jumps_of_nest),
    "static_range": (jumps_of_unrolled, _jumps_of_unrolled),
}


@CASES("jumps", "break", each=JUMPS, quick=("for", "nest"))
def loops_are_left_early(
    session: Session, given: tuple[object, Callable[[np.ndarray, int, int, int], int]]
) -> None:
    kernel, oracle = given
    x = session.rng.permutation(12).astype(np.int32)
    for n in (0, 1, 12):
        for stop, skip in (
            (int(x[5]), int(x[2])),
            (int(x[0]), 99),
            (99, int(x[11])),
            (6, 3),
            (-5, -5),
        ):
            out = np.zeros(1, np.int32)
            session.launch(kernel, (1,), x, out, n, stop, skip)
            session.check(
                out,
                np.array([oracle(x, n, stop, skip)], np.int32),
                name=f"n={n}, stop={stop}, skip={skip}",
            )


@tw.jit
def find(x, rows, columns, wanted):
    for i in range(rows):
        for j in range(columns):
            if tl.load(x + i * columns + j) == wanted:
                return i, j
    return -1, -1


@tw.jit
def positions(x, out, rows, columns, wanted):
    pid = tl.program_id(0)
    i, j = find(x, rows, columns, tl.load(wanted + pid))
    tl.store(out + pid * 2, i)
    tl.store(out + pid * 2 + 1, j)


@CASES("return/from_loops", "return", quick=True)
def functions_return_from_nested_loops(session: Session) -> None:
    x = session.rng.permutation(30).astype(np.int32).reshape(5, 6)
    wanted = np.array([x[0, 0], x[4, 5], x[2, 3], 30, x[3, 0]], np.int32)
    out = np.zeros((5, 2), np.int32)
    session.launch(positions, (5,), x, out, 5, 6, wanted)
    session.check(
        out,
        np.array(
            [np.argwhere(x == value)[0] if (x == value).any() else (-1, -1) for value in wanted],
            np.int32,
        ),
    )


@tw.jit
def first_above(x, rows, limit, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    i = 0
    while True:
        if i == rows:
            return total, -1
        total += tl.load(x + i * BLOCK + tl.arange(0, BLOCK))
        if tl.max(total, axis=0) > limit:
            return total * 2, i
        i += 1


@tw.jit
def totals_above(x, out, rows, limit, BLOCK: tl.constexpr):
    total, i = first_above(x, rows, limit, BLOCK)
    tl.store(out + tl.arange(0, BLOCK), total)
    tl.store(out + BLOCK, i)
    for k in range(rows):
        if k == 2:
            return
        tl.store(out + BLOCK + 1 + k, k)


@CASES("return/tiles", "return", needs=elements("f32", tile=32), quick=True)
def tiles_are_returned_from_loops(session: Session) -> None:
    x = numbers.draw(session.rng, "float32", (6, 32))
    for rows, limit in ((6, 8.0), (6, 1e6), (0, 0.0), (1, -1e6)):
        out = np.full(40, 9, np.float32)
        session.launch(totals_above, (1,), x, out, rows, limit, BLOCK=32)
        total, at = np.zeros(32), -1
        for i in range(rows):
            total += x[i]
            if total.max() > limit:
                total, at = total * 2, i
                break
        rest = np.full(7, 9.0)
        rest[: min(rows, 2)] = range(min(rows, 2))
        session.check(out, np.concatenate([total, [at], rest]), zero_sign=False)


@tw.jit
def stop_before_the_end(out, start, stop, limit):
    count = 0
    for _ in range(start, stop, 1000000000):
        if count == limit:
            break
        count += 1
    tl.store(out, count)


@CASES("jumps/extremes", "break", needs=elements("u32"), quick=True)
def a_loop_with_break_at_the_ends_of_a_type(session: Session) -> None:
    """A loop ends, though the next value of its variable would wrap around."""
    low, high = -(2**31), 2**31 - 1
    for start, stop, limit in (
        (low, high, 9),
        (low, high, 3),
        (high - 1, high, 9),
        (high, low, 9),
        (0, high, 9),
    ):
        out = np.full(1, -1, np.int32)
        session.launch(stop_before_the_end, (1,), out, start, stop, limit)
        session.check(out, np.array([min(limit, len(range(start, stop, 1000000000)))], np.int32))
