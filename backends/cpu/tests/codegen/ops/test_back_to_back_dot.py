"""Back-to-back matmuls: tiles kept in memory for a later one, and buffers that it may reuse."""

import itertools

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

RNG = np.random.default_rng(0)
#: makes kernels that are compiled anew, whatever is in the cache
SALTS = itertools.count()
N = 64


@tw.jit
def weighted(
    x_ptr, v_ptr, out_ptr, sums_ptr, SALT: tl.constexpr, N: tl.constexpr, ORDER: tl.constexpr
):
    """Matmuls of the rounded exp2(x) with v, and its sums.

    Before the rounding, after it, or both after it.
    """
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    at = rows * N + columns
    weights = tl.exp2(tl.load(x_ptr + at))
    v = tl.load(v_ptr + at)
    narrow = weights.to(v.dtype)
    if ORDER == "sum first":
        sums = tl.sum(weights, 1)
        product = tl.dot(narrow, v)
    elif ORDER == "product first":
        product = tl.dot(narrow, v)
        sums = tl.sum(weights, 1)
    elif ORDER == "sum twice":
        sums = tl.sum(weights, 1) + tl.sum(weights * weights, 1)
        product = tl.dot(narrow, v)
    else:
        sums = tl.sum(weights, 1) + tl.sum(narrow.to(tl.float32), 1)
        product = tl.dot(narrow, v)
    tl.store(out_ptr + at, product)
    tl.store(sums_ptr + tl.arange(0, N), sums)


@pytest.mark.parametrize("order", ["sum first", "product first", "sum twice", "both"])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_tile_whose_later_readers_read_it_rounded(kind: str, order: str) -> None:
    element = np.float16 if kind == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    x, v = (
        RNG.standard_normal((N, N)).astype(np.float32),
        RNG.standard_normal((N, N)).astype(element),
    )
    out, sums = np.full((N, N), 77, np.float32), np.full(N, 77, np.float32)
    weighted[(1,)](x, v, out, sums, SALT=next(SALTS), N=N, ORDER=order)
    weights = np.exp2(x.astype(np.float64))
    narrow = weights.astype(np.float32).astype(element).astype(np.float64)
    exact = {"sum twice": weights + weights**2, "both": weights + narrow}.get(order, weights).sum(1)
    np.testing.assert_allclose(sums, exact, rtol=1e-5 if order != "both" else 1e-3)
    np.testing.assert_allclose(
        out, narrow @ v.astype(np.float64), atol=2e-2 if kind == "float16" else 0.2
    )


@tw.jit
def carried_twice(x_ptr, out_ptr, narrow_ptr, turns, SALT: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    weights = tl.exp2(tl.load(x_ptr + at))
    first, second = weights, weights
    while turns > 0:
        first, second, turns = second * 2, first + second, turns - 1
    tl.store(out_ptr + at, first + second)
    tl.store(narrow_ptr + at, weights.to(tl.float16))


@pytest.mark.parametrize("turns", [0, 3])
def test_a_tile_that_a_loop_begins_with_twice_and_is_read_rounded_after_it(turns: int) -> None:
    x = RNG.standard_normal((N, N)).astype(np.float32)
    out, narrow = np.full((N, N), 77, np.float32), np.full((N, N), 77, np.float16)
    carried_twice[(1,)](x, out, narrow, turns, SALT=next(SALTS), N=N)
    weights = np.exp2(x.astype(np.float64))
    first = second = weights
    for _ in range(turns):
        first, second = second * 2, first + second
    np.testing.assert_allclose(out, first + second, rtol=1e-5)
    np.testing.assert_allclose(narrow, weights, rtol=1e-3)


@tw.jit
def rounded(x_ptr, v_ptr, out_ptr, narrow_ptr, SALT: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    narrow = tl.load(x_ptr + at).to(tl.bfloat16)
    tl.store(out_ptr + at, tl.dot(narrow, tl.load(v_ptr + at)))
    tl.store(narrow_ptr + at, narrow)


def test_an_operand_of_a_matmul_that_is_stored_too_keeps_its_subnormal_numbers() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = (RNG.standard_normal((N, N)) * 1e-39).astype(np.float32)
    v, out, narrow = (
        np.ones((N, N), bfloat16),
        np.full((N, N), 77, np.float32),
        np.full((N, N), 77, bfloat16),
    )
    rounded[(1,)](x, v, out, narrow, SALT=next(SALTS), N=N)
    assert np.abs(out).max() < 1e-36
    assert (narrow == x.astype(bfloat16)).all() and (narrow != 0).any()


@tw.jit
def rescaled(a_ptr, b_ptr, c_ptr, K, SALT: tl.constexpr, N: tl.constexpr, OWN: tl.constexpr):
    """An accumulator that is halved before each matmul; with OWN, it is also the left operand."""
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    total = tl.load(c_ptr + rows * N + columns)
    half = tl.load(c_ptr + tl.arange(0, N)) * 0 + 0.5
    for k in range(K):
        b = tl.load(b_ptr + (k * N + rows) * N + columns)
        if OWN:
            total = tl.dot(total, b, total * half[:, None], input_precision="ieee")
        else:
            total = tl.dot(
                tl.load(a_ptr + rows * N + columns),
                b,
                total * half[:, None],
                input_precision="ieee",
            )
    tl.store(c_ptr + rows * N + columns, total)


@pytest.mark.parametrize("own", [False, True])
def test_an_accumulator_that_is_scaled_before_a_matmul_is_added(own: bool) -> None:
    a, b, c = (
        RNG.standard_normal(shape).astype(np.float32) / 8 for shape in ((N, N), (3, N, N), (N, N))
    )
    exact = c.astype(np.float64)
    for each in b.astype(np.float64):
        exact = (exact if own else a.astype(np.float64)) @ each + exact / 2
    rescaled[(1,)](a, b, c, 3, SALT=next(SALTS), N=N, OWN=own)
    np.testing.assert_allclose(c, exact, atol=1e-4)


@tw.jit
def rounded_of_one_number(x_ptr, most_ptr, out_ptr, SALT: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + tl.zeros((N,), tl.int32)) % 7
    tl.store(most_ptr, tl.max(x, 0))
    tl.store(out_ptr + at, x.to(tl.int8), mask=at < N - 3)


def test_a_tile_of_one_number_is_read_rounded_after_it_was_kept() -> None:
    most, out = np.zeros(1, np.uint32), np.full(N, 77, np.int8)
    rounded_of_one_number[(1,)](np.array([40], np.uint32), most, out, SALT=next(SALTS), N=N)
    assert most == 5
    np.testing.assert_array_equal(out, [5] * (N - 3) + [77] * 3)
