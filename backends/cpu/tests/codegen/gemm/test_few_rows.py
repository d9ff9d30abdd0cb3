"""Matmuls with few rows, which stream the right operand through once, in either memory order."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
RNG = np.random.default_rng(0)


@tw.jit
def _matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, sbk, sbn, scm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        a_inside = (rows[:, None] < M) & (first + k[None, :] < K)
        b_inside = (first + k[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + first + k[None, :], mask=a_inside, other=0)
        b_places = (first + k[:, None]) * sbk + columns[None, :] * sbn
        b = tl.load(b_ptr + b_places, mask=b_inside, other=0)
        total = tl.dot(a, b, total, input_precision="ieee")
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * scm + columns[None, :], total, mask=inside)


@pytest.mark.parametrize("kind", [np.float32, np.float16, bfloat16])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("m", range(1, 10))
@pytest.mark.parametrize("n, k", [(128, 192), (75, 147), (5, 64)])
def test_each_number_of_rows(kind: type, is_transposed: bool, m: int, n: int, k: int) -> None:
    a = RNG.integers(-8, 8, (m, k)).astype(kind)
    b = RNG.integers(-8, 8, (n, k) if is_transposed else (k, n)).astype(kind)
    b = b.T if is_transposed else b
    # rows of the result lie apart, and nothing may be stored between them or below
    c = np.full((12, n + 3), np.nan, np.float32)
    strides = [each // b.itemsize for each in b.strides]
    _matmul[(tw.cdiv(n, 64),)](
        a, b, c, m, n, k, *strides, n + 3, BLOCK_M=16, BLOCK_N=64, BLOCK_K=64
    )
    np.testing.assert_array_equal(c[:m, :n], a.astype(np.float32) @ b.astype(np.float32))
    assert np.isnan(c[m:]).all() and np.isnan(c[:, n:]).all()
