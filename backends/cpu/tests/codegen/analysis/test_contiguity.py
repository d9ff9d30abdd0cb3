"""Index tiles that are contiguous unless they wrap around: both versions of the code are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function

Check = Callable[..., list[Any]]


def numbers(count: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-50, 50, count).astype(dtype)


# ---- kernels; each reads x through indices that wrap around n


@device_function
def copy_wrapped(x, o, start, n, m, BLOCK: tl.constexpr):
    """``x`` may be read at negative indices: those of a negative start."""
    at = tl.arange(0, BLOCK)
    index = tl.max_contiguous((start + at) % n, BLOCK)
    tl.store(o + at, tl.load(x + index, mask=at < m, other=-1.0))


@device_function
def softmax_wrapped(x, o, start, n, m, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    index = tl.max_contiguous((start + at) % n, BLOCK)
    v = tl.load(x + index, mask=at < m, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + at, e / tl.sum(e, 0), mask=at < m)


@device_function
def store_wrapped(x, o, start, n, m, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    index = tl.max_contiguous((start + at) % n, BLOCK)
    tl.store(o + index, tl.load(x + at) + 1, mask=at < m)
    tl.store(o + n + index, tl.load(x + index), mask=(at < m) & (index < 20))


@device_function
def loop_wrapped(x, o, start, n, m, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    fixed = (start + at) % n
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(m):
        moving = tl.max_contiguous((start + k * 5 + at) % n, BLOCK)
        total += tl.load(x + moving) * tl.load(x + fixed)
        if k % 2 == 1:
            total += tl.load(x + moving, mask=at < k * 9, other=0.0)
    tl.store(o + at, total)


@device_function
def columns_wrapped(x, o, start, n, m, BLOCK: tl.constexpr):
    """Two index tiles in one pointer tile, with a mask along each axis, read along both axes."""
    at = tl.arange(0, BLOCK)
    rows = (start + at) % m
    columns = tl.max_contiguous(tl.multiple_of((start + 2 * BLOCK + at) % n, BLOCK), BLOCK)
    pointers = x + rows[:, None] * n + columns[None, :]
    v = tl.load(pointers, mask=(at[:, None] < n) & (at[None, :] < m + 9), other=2.0)
    tl.store(o + at, tl.sum(v, 1))
    tl.store(o + BLOCK + at, tl.max(v, 0))
    tl.store(o + 2 * BLOCK + at[:, None] * BLOCK + at[None, :], tl.trans(v))


KERNELS = {
    kernel.__name__: kernel
    for kernel in (copy_wrapped, softmax_wrapped, store_wrapped, loop_wrapped, columns_wrapped)
}


class Compiled:
    """Compiles each kernel once a block: both before and after the passes."""

    def __init__(self, compiled: Any, module_of: Any) -> None:
        self.compiled, self.module_of = compiled, module_of
        self.known: dict[tuple[str, int], Any] = {}

    def __call__(self, name: str, block: int) -> Any:
        key = (name, block)
        if key not in self.known:
            like = [np.zeros(1, np.float32)] * 2 + [0, 0, 0]
            modules = [
                self.module_of(KERNELS[name], like, optimise=optimise, BLOCK=block)
                for optimise in (False, True)
            ]
            self.known[key] = [
                (module, self.compiled(module, {"enable_fp_fusion": False})) for module in modules
            ]
        return self.known[key]


@pytest.fixture(scope="module")
def kernels(compiled: Any, module_of: Any) -> Compiled:
    return Compiled(compiled, module_of)


def arguments_of(
    name: str, block: int, start: int, n: int, m: int, seed: int
) -> tuple[list[Any], list[Any]]:
    """(arguments, the arrays behind them). The data of the kernels that may index below zero start
    in the middle of an array."""
    if name == "columns_wrapped":
        data, out = (
            numbers(2 * n * m + 64, seed=seed),
            np.full(2 * block + block * block, 99.0, np.float32),
        )
        return [data[n * m + 32 :], out, start, n, m], [data, out]
    data, out = numbers(2 * (n + block), seed=seed), np.full(4 * (n + block), 99.0, np.float32)
    return [data[n:], out[n:], start, n, m], [data, out]


@settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_random_starts_and_moduli(data: Any, kernels: Compiled, guarded: Any) -> None:
    from tilewright.reference import interpreter

    name = data.draw(st.sampled_from(sorted(KERNELS)))
    block = data.draw(
        st.sampled_from((2, 16, 32) if name == "columns_wrapped" else (1, 2, 16, 64, 128))
    )
    n = data.draw(
        st.one_of(st.integers(1, 3 * block), st.sampled_from((block, block + 1, 2 * block)))
    )
    start = data.draw(
        st.one_of(st.sampled_from((0, n - block, n - block + 1, n - 1, n)), st.integers(0, 4 * n))
    )
    m = data.draw(
        st.integers(1, 12)
        if name == "loop_wrapped"
        else st.one_of(st.integers(1, block + 3), st.just(block))
    )
    if name in ("copy_wrapped", "loop_wrapped") and data.draw(st.booleans()):
        start = -start
    if name == "store_wrapped":
        n, start = max(n, block), abs(start)  # stores to one place from two lanes have no order
    seed = data.draw(st.integers(0, 1000))
    for module, kernel in kernels(name, block):
        arguments, arrays = arguments_of(name, block, start, n, m, seed)
        with np.errstate(all="ignore"):
            interpreter.run(module, arguments, (1, 1, 1))
        expected = [array.copy() for array in arrays]
        arguments, arrays = arguments_of(name, block, start, n, m, seed)
        kernel(arguments)
        for right, ours in zip(expected, arrays, strict=True):
            np.testing.assert_allclose(
                ours, right, rtol=1e-6, atol=1e-6, err_msg=f"{name} {block=} {start=} {n=} {m=}"
            )


# ---- the fast way is there


def blocks_of(text: str) -> list[str]:
    return re.split(r"\n(?=[\w.$-]+:)", text)


@pytest.mark.parametrize(
    "name", ["copy_wrapped", "loop_wrapped", "columns_wrapped", "softmax_wrapped"]
)
def test_loads_are_vectors_in_one_version_and_gathers_in_the_other(
    name: str, kernels: Compiled
) -> None:
    (_, kernel) = kernels(name, 32)[1]
    blocks = blocks_of(kernel.code.stages["llir"])
    gathers = {
        number
        for number, block in enumerate(blocks)
        if "call <" in block and "@llvm.masked.gather" in block
    }
    vectors = {
        number
        for number, block in enumerate(blocks)
        if re.search(r"= (load <\d+ x float>|call <\d+ x float> @llvm.masked.load)", block)
    } - gathers
    assert gathers and vectors


def test_stores_are_vectors_on_one_way_and_scatters_on_the_other(kernels: Compiled) -> None:
    (_, kernel) = kernels("store_wrapped", 32)[1]
    text = kernel.code.stages["llir"]
    assert "@llvm.masked.scatter" in text and re.search(
        r"store <\d+ x float>|@llvm.masked.store.v\d+f32", text
    )


# ---- matrix products whose operands wrap


@device_function
def matmul_wrapped(
    a,
    b,
    c,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    MASKED: tl.constexpr,
    PROMISED: tl.constexpr,
):
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)) % M
    columns = (tl.program_id(1) * BN + tl.arange(0, BN)) % N
    if PROMISED:
        rows = tl.max_contiguous(tl.multiple_of(rows, BM), BM)
        columns = tl.max_contiguous(tl.multiple_of(columns, BN), BN)
    inner = tl.arange(0, BK)
    ap = a + rows[:, None] * K + inner[None, :]
    bp = b + inner[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        if MASKED:
            x = tl.load(ap, mask=inner[None, :] < K - k * BK, other=0.0)
            y = tl.load(bp, mask=inner[:, None] < K - k * BK, other=0.0)
        else:
            x, y = tl.load(ap), tl.load(bp)
        total = tl.dot(x, y, total)
        ap += BK
        bp += BK * N
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.store(
        c + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@pytest.mark.each_value
@pytest.mark.parametrize("promised", [False, True])
@pytest.mark.parametrize(
    "shape", [(64, 64, 32), (37, 50, 29), (5, 7, 16), (32, 33, 17), (65, 31, 64)]
)
def test_matmuls_with_rows_and_columns_that_wrap(
    shape: tuple[int, int, int], promised: bool, kernel_agrees: Check
) -> None:
    m, n, k = shape
    a, b, c = numbers(m * k), numbers(k * n, seed=1), np.full(m * n, 99.0, np.float32)
    grid = (-(-m // 32), -(-n // 32), 1)
    found = kernel_agrees(
        matmul_wrapped,
        [a, b, c, m, n, k],
        grid,
        BM=32,
        BN=32,
        BK=16,
        MASKED=k % 16 != 0,
        PROMISED=promised,
    )
    np.testing.assert_array_equal(found[2].reshape(m, n), a.reshape(m, k) @ b.reshape(k, n))


# ---- promises that do not hold


@device_function
def clamped(x, o, start, n, BLOCK: tl.constexpr):
    """The other usual way to keep indices valid, with the same promise."""
    index = start + tl.arange(0, BLOCK)
    index = tl.max_contiguous(tl.multiple_of(tl.where(index < n, index, 0), BLOCK), BLOCK)
    tl.store(o + tl.arange(0, BLOCK), tl.load(x + index))


@pytest.mark.parametrize("start", [0, 3, 40, 57, 63, 64, 100])
def test_a_promise_that_is_broken_by_clamping(start: int, kernel_agrees: Check) -> None:
    kernel_agrees(clamped, [numbers(64), np.zeros(32, np.float32), start, 64], BLOCK=32)
