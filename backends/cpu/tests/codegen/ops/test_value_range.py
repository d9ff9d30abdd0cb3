"""Range checks for overflow: reported where, and only where, an element overflows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import KernelError

EXTENTS = [(1, 1024), (16, 64), (1, 2048), (512, 4)]


@tw.jit
def cube(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a = tl.load(x + i)
    tl.store(out + i, (a * a + 3) * a - 7)


@tw.jit
def difference_of_squares(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a, b = tl.load(x + i), tl.load(y)
    tl.store(out + i, (a + b) * (a - b) * (a - b))


@tw.jit
def of_a_product_that_wraps(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a = tl.load(x + i)
    b = tl.mul(a, a, sanitize_overflow=False)
    tl.store(out + i, b * b * b)


@tw.jit
def widened(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a = tl.load(x + i).to(tl.int32)
    tl.store(out + i, (a * a * a) * (a * a))


def cubes(a: Any, b: Any) -> list[Any]:
    return [a * a, a * a + 3, (a * a + 3) * a, (a * a + 3) * a - 7]


def differences(a: Any, b: Any) -> list[Any]:
    return [a + b, a - b, (a + b) * (a - b), (a + b) * (a - b) * (a - b)]


def wrapped(a: Any, b: Any) -> list[Any]:
    b = (a * a + 2**31) % 2**32 - 2**31
    return [b * b, b * b * b]


def products(a: Any, b: Any) -> list[Any]:
    return [a * a, a * a * a, a * a * a * a * a]


def fits(results: Callable[..., list[Any]], dtype: Any, x: np.ndarray, scalar: int) -> bool:
    """Return whether all results of all elements fit a type, computed in integers of any size."""
    info, b = np.iinfo(dtype), int(scalar)
    return all(
        info.min <= int(number) <= info.max for a in np.unique(x) for number in results(int(a), b)
    )


def reported(
    kernel: Any, x: np.ndarray, scalar: int, extents: tuple[int, int], out: np.ndarray
) -> bool:
    try:
        kernel[(1,)](
            x,
            np.array([scalar], x.dtype),
            out,
            ROWS=extents[0],
            COLUMNS=extents[1],
            backend="cpu",
            debug=True,
        )
    except KernelError as error:
        assert "overflow detected" in str(error)
        return True
    return False


CASES = [
    (cube, cubes, np.int32, np.int32, 0, 1290),
    (cube, cubes, np.uint32, np.uint32, 3, 1625),
    (cube, cubes, np.int8, np.int8, 0, 4),
    (cube, cubes, np.int16, np.int16, 0, 31),
    (difference_of_squares, differences, np.int32, np.int32, -900, 700),
    (difference_of_squares, differences, np.uint32, np.uint32, 2, 1500),
    (of_a_product_that_wraps, wrapped, np.int32, np.int32, 0, 35),
    (widened, products, np.int8, np.int32, 0, 73),
    (widened, products, np.uint8, np.int32, 0, 73),
]


@pytest.mark.each_value
@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize(
    ("kernel", "results", "dtype", "result", "scalar", "edge"),
    CASES,
    ids=lambda case: getattr(case, "__name__", str(case)),
)
def test_one_element_that_overflows_is_reported(
    kernel: Any,
    results: Any,
    dtype: Any,
    result: Any,
    scalar: int,
    edge: int,
    extents: tuple[int, int],
) -> None:
    """Elements about where a result begins to overflow, at the first and the last place and
    between, among small ones."""
    info, random, seen = np.iinfo(dtype), np.random.default_rng(edge), set()
    numbers = {
        edge - 1,
        edge,
        edge + 1,
        -edge,
        1 - edge,
        -edge - 1,
        info.max,
        info.min,
        1 << (info.bits // 2),
        0,
        1,
        2,
        3,
        6,
        9,
    }
    for number in sorted(n for n in numbers if info.min <= n <= info.max):
        for place in {
            0,
            extents[0] * extents[1] - 1,
            int(random.integers(extents[0] * extents[1])),
        }:
            x, out = np.full(extents, 3, dtype), np.zeros(extents, result)
            x.flat[place] = number
            wild = not fits(results, result, x, scalar)
            assert reported(kernel, x, scalar, extents, out) == wild, (number, place)
            seen.add(wild)
            if not wild:
                exact = (
                    np.array([results(int(a), int(scalar))[-1] for a in x.flat], object)
                    .astype(result)
                    .reshape(extents)
                )
                assert np.array_equal(out, exact)
    assert seen == {False, True}


@tw.jit
def products_of_two(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a * b * b * a * b)


@pytest.mark.parametrize("extents", EXTENTS)
def test_elements_that_fit_where_their_ranges_do_not(extents: tuple[int, int]) -> None:
    """Great numbers times small ones: no product overflows, though that of the greatest would."""
    x, y, out = np.ones(extents, np.int32), np.ones(extents, np.int32), np.zeros(extents, np.int32)
    x.flat[::2], y.flat[1::2] = 40000, 1200

    def run() -> None:
        products_of_two[(1,)](
            x, y, out, ROWS=extents[0], COLUMNS=extents[1], backend="cpu", debug=True
        )

    run()
    assert np.array_equal(out, x * y * y * x * y)
    y.flat[-2] = 3
    with pytest.raises(KernelError, match=r"int32 overflow detected for operation mul"):
        run()


@tw.jit
def cubes_of_differences(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a = tl.load(x + i) - tl.load(y + i)
    tl.store(out + i, a * a * a)


def test_a_difference_reaches_from_minimum_less_maximum() -> None:
    for far, overflows in ((645, False), (646, True)):
        x, y, out = np.zeros((3, 1, 1024), np.int32)
        x[0, 7], y[0, 7], x[0, 9], y[0, 9] = far, -far, -far, far
        x[0, 20], y[0, 20] = far, far
        if overflows:
            with pytest.raises(KernelError, match="overflow"):
                cubes_of_differences[(1,)](
                    x, y, out, ROWS=1, COLUMNS=1024, backend="cpu", debug=True
                )
        else:
            cubes_of_differences[(1,)](x, y, out, ROWS=1, COLUMNS=1024, backend="cpu", debug=True)
            assert np.array_equal(out, (x - y) ** 3)


@tw.jit
def square(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a = tl.load(x + i)
    tl.store(out + i, a * a)


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.uint16, np.int8])
def test_squares_of_the_maximum_and_the_minimum(dtype: Any) -> None:
    info = np.iinfo(dtype)
    for number in (info.max, info.min, info.max - 1, int(info.max**0.5), int(info.max**0.5) + 1):
        x, out = np.zeros((1, 2048), dtype), np.zeros((1, 2048), dtype)
        x[0, 77] = number
        assert reported(square, x, 0, (1, 2048), out) == (number**2 > info.max), number


@tw.jit
def behind_a_product_that_wraps(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a, zero = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, (tl.mul(a, a, sanitize_overflow=False) - 5000) * zero * zero)


def test_a_product_that_may_wrap_has_no_range() -> None:
    """2**31 and a little more is less than the least number when it wraps around and 5000 is taken
    from it, and would not be if it did not."""
    for number, wild in ((46340, False), (46341, True)):
        x, (y, out) = np.full((1, 1024), number, np.int32), np.zeros((2, 1, 1024), np.int32)
        with (
            pytest.raises(KernelError, match="overflow detected for operation sub")
            if wild
            else nullcontext()
        ):
            behind_a_product_that_wraps[(1,)](
                x, y, out, ROWS=1, COLUMNS=1024, backend="cpu", debug=True
            )


@tw.jit
def masked(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n, other=5)
    tl.store(out + i, a * a * a, mask=i < n)


def test_lanes_that_are_off_have_what_stands_for_them() -> None:
    for n in (0, 1, 1000, 1023, 1024):
        x, out = np.full(1024, 1290, np.int32), np.zeros(1024, np.int32)
        x[n:] = 2**31 - 1
        masked[(1,)](x, x, out, n, BLOCK=1024, backend="cpu", debug=True)
        assert (out[:n] == 1290**3).all() and not out[n:].any()
        if n:
            x[n - 1] = 1291
            with pytest.raises(KernelError, match="overflow"):
                masked[(1,)](x, x, out, n, BLOCK=1024, backend="cpu", debug=True)
