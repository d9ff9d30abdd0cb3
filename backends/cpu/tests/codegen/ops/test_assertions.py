"""Assertions and checks for overflow: reported where, and only where, a condition fails."""

from __future__ import annotations

import itertools
import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import KernelError

TYPES = [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32]
OPERATIONS = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}
RNG = np.random.default_rng(5)


@tw.jit
def two_tiles(x, y, out, op: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(
        out + i, tl.add(a, b) if op == "add" else tl.sub(a, b) if op == "sub" else tl.mul(a, b)
    )


@tw.jit
def tile_and_number(
    x, y, out, op: tl.constexpr, NUMBER: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.arange(0, BLOCK)
    x = tl.load(x + i)
    n: tl.constexpr = NUMBER
    if FIRST:
        tl.store(
            out + i, tl.add(n, x) if op == "add" else tl.sub(n, x) if op == "sub" else tl.mul(n, x)
        )
    else:
        tl.store(
            out + i, tl.add(x, n) if op == "add" else tl.sub(x, n) if op == "sub" else tl.mul(x, n)
        )


@tw.jit
def tile_and_scalar(x, y, out, op: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y)
    tl.store(
        out + i, tl.add(a, b) if op == "add" else tl.sub(a, b) if op == "sub" else tl.mul(a, b)
    )


@tw.jit
def rows(x, y, out, op: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(
        out + i, tl.add(a, b) if op == "add" else tl.sub(a, b) if op == "sub" else tl.mul(a, b)
    )


def overflows(run: Any) -> bool:
    """Return whether a kernel was stopped for an overflow."""
    try:
        run()
    except KernelError as error:
        assert "overflow detected" in str(error)
        return True
    return False


def pairs(op: str, dtype: Any) -> list[tuple[int, int]]:
    """Pairs of numbers about the limits of a type, half of which overflow."""
    info = np.iinfo(dtype)
    ends = [
        info.min,
        info.min + 1,
        -1,
        0,
        1,
        2,
        info.max // 2,
        info.max // 2 + 1,
        info.max - 1,
        info.max,
    ]
    ends += [int(n) for n in RNG.integers(info.min, info.max, 4)] + [
        int(info.max**0.5),
        int(info.max**0.5) + 1,
    ]
    found = [(a, b) for a, b in itertools.product(ends, ends) if info.min <= min(a, b)]
    fits = [pair for pair in found if info.min <= OPERATIONS[op](*pair) <= info.max]
    others = [pair for pair in found if pair not in fits]
    return [pair for group in (fits, others) for pair in RNG.permutation(group).tolist()[:4]]


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", list(OPERATIONS))
@pytest.mark.parametrize("extent", [1, 4, 16, 256])
def test_one_lane_that_overflows_is_reported(op: str, dtype: Any, extent: int) -> None:
    info = np.iinfo(dtype)
    for a, b in pairs(op, dtype):
        exact = OPERATIONS[op](a, b)
        for place in {0, extent - 1, int(RNG.integers(extent))}:
            x, y = np.ones((2, extent), dtype)
            x[place], y[place] = a, b
            out = np.zeros(extent, dtype)
            reported = overflows(
                lambda x=x, y=y, out=out: two_tiles[1,](
                    x, y, out, op, BLOCK=extent, debug=True, backend="cpu"
                )
            )
            assert reported == (not info.min <= exact <= info.max), (a, b)
            if not reported:
                assert out[place] == exact


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint32])
@pytest.mark.parametrize("op", list(OPERATIONS))
@pytest.mark.parametrize("first", [False, True])
def test_sums_and_products_with_a_number(op: str, dtype: Any, first: bool) -> None:
    info = np.iinfo(dtype)
    for number in (0, 1, 3, 100) if info.min == 0 else (-100, -3, -1, 0, 1, 3, 100):
        for edge in {
            info.min,
            info.max,
            0,
            info.max // 3,
            info.max // 3 + 1,
            info.min // 3,
            info.min // 3 - 1,
            info.max - 100,
            info.max - 99,
            100,
            101,
            1,
        }:
            if not info.min <= edge <= info.max:
                continue
            x, out = np.full(32, edge, dtype), np.zeros(32, dtype)
            exact = OPERATIONS[op](*((number, edge) if first else (edge, number)))
            if info.min == 0 and first and op == "sub" and number < 0:
                continue
            reported = overflows(
                lambda x=x, out=out, n=number: tile_and_number[1,](
                    x, x, out, op, n, first, BLOCK=32, debug=True, backend="cpu"
                )
            )
            assert reported == (not info.min <= exact <= info.max), (edge, number)


@pytest.mark.parametrize("op", list(OPERATIONS))
def test_sums_and_products_with_a_scalar(op: str) -> None:
    for a, b in pairs(op, np.int32):
        x, y, out = np.ones(64, np.int32), np.array([b], np.int32), np.zeros(64, np.int32)
        x[:] = 0
        x[37] = a
        exact = [OPERATIONS[op](int(n), b) for n in x]
        reported = overflows(
            lambda x=x, y=y, out=out: tile_and_scalar[1,](
                x, y, out, op, BLOCK=64, debug=True, backend="cpu"
            )
        )
        assert reported == any(not -(2**31) <= n < 2**31 for n in exact), (a, b)


@pytest.mark.parametrize("op", list(OPERATIONS))
def test_every_row_is_looked_at(op: str) -> None:
    for row, column in [(0, 0), (6, 31), (3, 17), (7, 0)]:
        x, y = np.ones((2, 8, 32), np.int32)
        if (row, column) != (0, 0):
            x[row, column], y[row, column] = 2**31 - 1, 2 if op != "sub" else -2
        reported = overflows(
            lambda x=x, y=y: rows[1,](
                x, y, np.zeros_like(x), op, ROWS=8, BLOCK=32, debug=True, backend="cpu"
            )
        )
        assert reported == ((row, column) != (0, 0))


# ---- conditions that are tested at ends


@tw.jit
def between(out, start, step, low, high, BLOCK: tl.constexpr):
    i = start + tl.arange(0, BLOCK) * step
    tl.device_assert(i >= low, "too low")
    tl.device_assert(i <= high, "too high")
    tl.store(out + tl.arange(0, BLOCK), i)


@pytest.mark.parametrize(
    ("start", "step", "low", "high", "message"),
    [
        (0, 1, 0, 63, ""),
        (0, 1, 0, 62, "too high"),
        (0, 1, 1, 99, "too low"),
        (63, -1, 0, 63, ""),
        (63, -1, 1, 63, "too low"),
        (63, -1, 0, 62, "too high"),
        (5, 0, 5, 5, ""),
        (5, 0, 6, 9, "too low"),
        (-64, 7, -64, 377, ""),
        (-64, 7, -64, 376, "too high"),
    ],
)
def test_an_order_is_tested_at_the_ends(
    start: int, step: int, low: int, high: int, message: str
) -> None:
    def run() -> None:
        between[1,](
            np.zeros(64, np.int32), start, step, low, high, BLOCK=64, debug=True, backend="cpu"
        )

    if message:
        with pytest.raises(KernelError, match=message):
            run()
    else:
        run()


@tw.jit
def around(out, start, low, high, BLOCK: tl.constexpr):
    i = tl.add(start.to(tl.uint32), tl.arange(0, BLOCK).to(tl.uint32), sanitize_overflow=False)
    tl.device_assert(i >= low.to(tl.uint32), "too low")
    tl.device_assert(i <= high.to(tl.uint32), "too high")
    tl.store(out + tl.arange(0, BLOCK), i)


def test_numbers_without_a_sign_are_tested_wherever_they_wrap_around() -> None:
    last = 2**32 - 1
    cases = [
        (0, 0, 63, ""),
        (0, 2, 63, "too low"),
        (0, 0, 62, "too high"),
        (last - 63, last - 63, last, ""),
    ]
    cases += [
        (last - 3, 0, last, ""),
        (last - 3, 0, 99, "too high"),
        (last - 3, 60, last, "too low"),
        (last - 3, 0, last - 1, "too high"),
    ]
    for start, low, high, message in cases:
        with pytest.raises(KernelError, match=message) if message else nullcontext():
            around[1,](
                np.zeros(64, np.uint32), start, low, high, BLOCK=64, debug=True, backend="cpu"
            )


@tw.jit
def corners(out, m, n, stride, limit, M: tl.constexpr, N: tl.constexpr):
    at = (m + tl.arange(0, M))[:, None] * stride + (n - tl.arange(0, N))[None, :]
    tl.device_assert(at < limit)
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], at)


@pytest.mark.parametrize("stride", [5, -5, 1, -1, 0])
def test_a_plane_is_tested_at_its_corners(stride: int) -> None:
    at = (3 + np.arange(8))[:, None] * stride + (7 - np.arange(16))[None, :]
    for limit, fails in ((int(at.max()), True), (int(at.max()) + 1, False)):

        def run(limit: int = limit) -> None:
            corners[1,](
                np.zeros((8, 16), np.int32),
                3,
                7,
                stride,
                limit,
                M=8,
                N=16,
                debug=True,
                backend="cpu",
            )

        if fails:
            with pytest.raises(KernelError, match="assertion failed"):
                run()
        else:
            run()


@tw.jit
def first_of_two(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.device_assert(a < 10, "ten")
    b = a * 2
    tl.device_assert(b != 4, "four")
    tl.store(out + i, b, mask=a > 100)


def test_assertions_that_are_tested_together_are_reported_in_order() -> None:
    for value, message in ((12, "ten"), (2, "four")):
        x = np.zeros(64, np.int32)
        x[33] = value
        with pytest.raises(KernelError, match=message):
            first_of_two[1,](x, np.zeros_like(x), BLOCK=64, debug=True, backend="cpu")
    both = np.zeros(64, np.int32)
    both[1], both[50] = 2, 11
    with pytest.raises(KernelError, match="ten"):
        first_of_two[1,](both, np.zeros_like(both), BLOCK=64, debug=True, backend="cpu")
    first_of_two[1,](
        np.ones(64, np.int32), np.zeros(64, np.int32), BLOCK=64, debug=True, backend="cpu"
    )


@tw.jit
def sums(x, out, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(x + i)
    tl.store(out + tl.arange(0, M), tl.sum(a, 1))
    tl.store(out + M + i, tl.cumsum(a, 1))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_sums_overflow_where_their_exact_result_does_not_fit(backend: str) -> None:
    x, out = np.zeros((4, 16), np.int32), np.zeros(4 + 64, np.int32)
    x[2] = RNG.integers(-100, 100, 16)
    sums[1,](x, out, M=4, N=16, debug=True, backend=backend)
    assert np.array_equal(out, np.concatenate((x.sum(1), x.cumsum(1).ravel())))
    x[1, ::2] = 2**30
    with pytest.raises(KernelError, match="int32 overflow detected for operation add"):
        sums[1,](x, out, M=4, N=16, debug=True, backend=backend)


def test_integer_sums_stay_vectors_in_debug_mode() -> None:
    x, out = np.zeros((4, 16), np.int32), np.zeros(4 + 64, np.int32)
    kernel = sums[1,](x, out, M=4, N=16, debug=True, backend="cpu")
    assert re.search(
        r"= add <\d+ x i64>", kernel.asm["llir"]
    )  # twice as wide, so that they do not overflow themselves
