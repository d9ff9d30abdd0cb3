"""The bits of a row of a matmul do not depend on the number of rows in an invariant launch."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

K, N = 160, 32


@tw.jit
def matmul(a, b, c, M, K, stride_k, stride_n, BM: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, N)
    acc = tl.zeros((BM, N), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * K + k[None, :], rows[:, None] < M, 0.0)
        acc = tl.dot(x, tl.load(b + k[:, None] * stride_k + columns[None, :] * stride_n), acc)
    tl.store(c + rows[:, None] * N + columns[None, :], acc, rows[:, None] < M)


def operands(dtype, transposed: bool):
    rng = np.random.default_rng(1)
    a, b = (
        (rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 6, shape)).astype(dtype)
        for shape in ((70, K), (K, N))
    )
    return a, np.ascontiguousarray(b.T).T if transposed else b


def first_rows(a, b, batches, **options) -> set[bytes]:
    found = set()
    for rows in batches:
        c = np.zeros((rows, N), np.float32)
        strides = [stride // b.itemsize for stride in b.strides]
        grid = (-(-rows // options["BM"]),)
        matmul[grid](a, b, c, rows, K, *strides, N=N, **options)
        found.add(c[0].tobytes())
    return found


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("transposed", [False, True])
def test_all_batches_and_blocks_have_one_pattern(dtype, transposed) -> None:
    a, b = operands(dtype, transposed)
    found = set()
    for rows, depth in ((4, 16), (32, 32)):
        batches = 1, 2, 4, 5, 8, 9, 17, 70
        found |= first_rows(a, b, batches, BM=rows, BK=depth, invariant=True)
    assert len(found) == 1


def test_few_rows_have_bits_of_their_own_in_other_launches() -> None:
    """The test above could not fail if all launches were invariant."""
    assert len(first_rows(*operands(np.float32, True), (1, 70), BM=16, BK=32)) == 2


def test_the_option_is_a_boolean() -> None:
    with pytest.raises(tw.errors.LaunchError, match="option invariant must be True or False"):
        first_rows(*operands(np.float32, False), (1,), BM=16, BK=32, invariant="rows")


@tw.jit
def row_sums(x, out, ROWS: tl.constexpr, N: tl.constexpr, ORDER: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, N)
    values = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(out + rows, tl.sum(values, 1, order=ORDER))


def test_reductions_that_state_no_order_are_trees() -> None:
    x = np.random.default_rng(2).standard_normal((32, 256)).astype(np.float32)

    def sums(rows: int, order: str | None, **options) -> bytes:
        out = np.zeros(rows, np.float32)
        row_sums[(1,)](x, out, ROWS=rows, N=256, ORDER=order, **options)
        return out[:1].tobytes()

    tree = sums(32, "tree", backend="reference")
    assert sums(32, None, invariant=True) == sums(1, None, invariant=True) == tree
    # a stated order is kept
    assert sums(32, "sequential", invariant=True) == sums(1, "sequential") != tree
