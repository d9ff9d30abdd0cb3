"""Reductions, scans, maps and movements of elements on CPU and GPU, several in a kernel, with data
of any kind, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.core.reductions.several_tiles import moments
from tilewright_conformance.oracles.dtypes import FLOATS, INTEGERS, kind

Run = Callable[..., None]
RNG = np.random.default_rng(41)
#: The fixture has no state of its own, so that one will do for all examples.
EXAMPLES = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def draw(name: str, *shape: int) -> Any:
    """Numbers of which some are equal."""
    if name in FLOATS:
        return (RNG.integers(-40, 40, shape) / 8).astype(kind(name))
    return RNG.integers(0 if name[0] == "u" else -60, 60, shape).astype(name)


# -- reductions ------------------------------------------------------------------------------------


@tw.jit
def extremes(
    x_ptr,
    high,
    low,
    first_high,
    first_low,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    AXIS: tl.constexpr,
):
    x = tl.load(x_ptr + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    biggest, place = tl.max(x, AXIS, return_indices=True)
    at = tl.arange(0, biggest.numel)
    tl.store(high + at, biggest)
    tl.store(first_high + at, place)
    tl.static_assert(place.dtype == tl.int32)
    tl.store(low + at, tl.min(x, AXIS))
    tl.store(first_low + at, tl.argmin(x, AXIS, tie_break_left=True))


@pytest.mark.each_value
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_extremes_and_the_first_place_of_each(launch: Run, name: str, axis: int) -> None:
    x = draw(name, 8, 32)
    count = x.shape[1 - axis]
    high, low = np.zeros(count, kind(name)), np.zeros(count, kind(name))
    places = np.zeros(count, np.int32), np.zeros(count, np.int32)
    launch(extremes, (1,), x, high, low, *places, ROWS=8, COLUMNS=32, AXIS=axis)
    wide = x.astype(np.float64)
    assert np.array_equal(high.astype(np.float64), wide.max(axis))
    assert np.array_equal(low.astype(np.float64), wide.min(axis))
    assert np.array_equal(places[0], wide.argmax(axis))
    assert np.array_equal(places[1], wide.argmin(axis))


@tw.jit
def total(x_ptr, out, N: tl.constexpr):
    value = tl.sum(tl.load(x_ptr + tl.arange(0, N)))
    tl.static_assert(value.dtype == x_ptr.dtype.element_ty)
    tl.store(out, value)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_narrow_floats_are_summed_in_fp32_and_rounded_once(launch: Run, name: str) -> None:
    """1 + 2**-9 + 2**-9 + ...: every single term is lost in a narrow sum."""
    x = np.full(1024, 2.0**-11, np.float32).astype(kind(name))
    x[0] = 1
    out = np.zeros(1, kind(name))
    launch(total, (1,), x, out, N=1024)
    assert (
        out[0] == x.astype(np.float64).sum().astype(np.float32).astype(kind(name)) and out[0] > 1.4
    )


@tw.jit
def three_axes(
    x_ptr,
    sums,
    tops,
    A: tl.constexpr,
    B: tl.constexpr,
    C: tl.constexpr,
    AXIS: tl.constexpr,
    KEEP: tl.constexpr,
):
    x = tl.load(x_ptr + tl.arange(0, A * B * C).reshape(A, B, C))
    total = tl.sum(x, AXIS, keep_dims=KEEP)
    top = tl.max(x, axis=AXIS, keep_dims=KEEP)
    if KEEP:
        tl.static_assert(len(total.shape) == 3)
    at = tl.arange(0, total.numel)
    tl.store(sums + at, tl.reshape(total, [total.numel]))
    tl.store(tops + at, tl.reshape(top, [total.numel]))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, None])
@pytest.mark.parametrize("shape", [(4, 8, 2), (2, 1, 32)])
def test_three_axes(launch: Run, shape: tuple[int, int, int], axis: int | None, keep: bool) -> None:
    x = draw("int32", *shape)
    wanted = np.asarray(x.sum(axis)).ravel(), np.asarray(x.max(axis)).ravel()
    found = [np.zeros(max(1, wanted[0].size), np.int32) for _ in range(2)]
    launch(three_axes, (1,), x, *found, A=shape[0], B=shape[1], C=shape[2], AXIS=axis, KEEP=keep)
    assert np.array_equal(found, wanted)


def test_several_values_reduce_together(launch: Run) -> None:
    x, out = RNG.standard_normal((4, 64)).astype(np.float32) + 3, np.zeros((2, 4), np.float32)
    launch(moments, (1,), x, out, ROWS=4, COLUMNS=64)
    np.testing.assert_allclose(out, [x.mean(1), x.var(1)], rtol=1e-5)


@tw.jit
def counted_add(a, b):
    tl.device_assert((a >= 0) & (b >= 0), "a negative term")
    return a + b


@tw.jit
def checked_sum(x_ptr, out, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out, tl.reduce(x, 0, counted_add))
    tl.store(out + 1 + tl.arange(0, N), tl.associative_scan(x, 0, counted_add))


def test_what_combines_may_have_effects(launch: Run) -> None:
    x, out = draw("uint8", 64).astype(np.int32), np.zeros(65, np.int32)
    launch(checked_sum, (1,), x, out, N=64, debug=True)
    assert np.array_equal(out, [x.sum(), *x.cumsum()])


# -- scans -----------------------------------------------------------------------------------------


@tw.jit
def running(x_ptr, sums, products, N: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(sums + at, tl.cumsum(x, 0, REVERSE))
    tl.store(products + at, tl.cumprod(x, 0, REVERSE, dtype=products.dtype.element_ty))


@EXAMPLES
@given(hnp.arrays(np.int16, 32, elements=st.integers(-300, 300)), st.booleans())
def test_running_sums_and_products(launch: Run, x: Any, reverse: bool) -> None:
    """Sums of narrow integers widen to int32; products wrap around in the type asked for."""
    sums, products = np.zeros(32, np.int32), np.zeros(32, np.int64)
    launch(running, (1,), x, sums, products, N=32, REVERSE=reverse)
    wide = (x[::-1] if reverse else x).astype(np.int64)
    with np.errstate(over="ignore"):
        wanted = [wide.cumsum(), wide.cumprod()]
    assert np.array_equal([sums, products], [w[::-1] for w in wanted] if reverse else wanted)


# -- places ----------------------------------------------------------------------------------------


@tw.jit
def moved(
    x_ptr,
    y_ptr,
    index_ptr,
    flipped,
    gathered,
    joined,
    stacked,
    turned,
    R: tl.constexpr,
    C: tl.constexpr,
    AXIS: tl.constexpr,
):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    x, y, index = tl.load(x_ptr + at), tl.load(y_ptr + at), tl.load(index_ptr + at)
    tl.store(flipped + at, tl.flip(x, AXIS))
    tl.store(gathered + at, tl.gather(x, index, AXIS))
    tl.store(joined + tl.arange(0, 2 * R * C), tl.ravel(tl.interleave(x, y)))
    tl.store(stacked + tl.arange(0, 2 * R * C), tl.ravel(tl.cat(x, y, dim=AXIS)))
    left, right = tl.split(tl.reshape(x, (R, C // 2, 2)))
    tl.store(turned + tl.arange(0, R * C), tl.ravel(tl.permute(tl.join(right, left), (2, 1, 0))))


@pytest.mark.each_value
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(
    "name", ["int8", "uint16", "int32", "float16", "bfloat16", "float32", "int64"]
)
def test_elements_move(launch: Run, name: str, axis: int) -> None:
    x, y = draw(name, 8, 16), draw(name, 8, 16)
    index = RNG.integers(0, x.shape[axis], (8, 16)).astype(np.int32)
    found = [np.zeros(size, kind(name)) for size in (128, 128, 256, 256, 128)]
    launch(moved, (1,), x, y, index, *found, R=8, C=16, AXIS=axis)
    turned = np.stack([x[:, 1::2], x[:, ::2]], -1).transpose(2, 1, 0)
    wanted = [
        np.flip(x, axis),
        np.take_along_axis(x, index, axis),
        np.stack([x, y], -1),
        np.concatenate([x, y], axis),
        turned,
    ]
    for a, b in zip(found, wanted, strict=True):
        assert np.array_equal(a, b.ravel())


@tw.jit
def order_of(x, y):
    if x < y:
        return -1
    elif x == y:
        return 0
    else:
        return 1


@tw.jit
def divided_pairs(a0, a1, b0, b1):
    return a0 // b0, a1 // b1, a0 % b0, a1 % b1


@tw.jit
def mapped(x_ptr, y_ptr, orders, quotients, remainders, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(orders + at, tl.map_elementwise(order_of, x, y))
    whole, rest = tl.map_elementwise(divided_pairs, x, y, pack=2)
    tl.store(quotients + at, whole)
    tl.store(remainders + at, rest)


@EXAMPLES
@given(hnp.arrays(np.uint32, 32), hnp.arrays(np.uint32, 32, elements=st.integers(1, 2**32 - 1)))
def test_functions_run_on_every_element(launch: Run, x: Any, y: Any) -> None:
    orders, quotients, remainders = (
        np.zeros(32, np.int32),
        np.zeros(32, np.uint32),
        np.zeros(32, np.uint32),
    )
    launch(mapped, (1,), x, y, orders, quotients, remainders, N=32)
    assert np.array_equal(orders, np.sign(x.astype(np.int64) - y.astype(np.int64)))
    assert np.array_equal(quotients, x // y)
    assert np.array_equal(remainders, x % y)
