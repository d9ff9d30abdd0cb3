"""A right operand whose rows turn out to lie close together is read in place, others are packed."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright_cpu.codegen.gemm.pack import Packer

RNG = np.random.default_rng(0)


@tw.jit
def _matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, sbk, scm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for first in range(0, K, BLOCK_K):
        a_inside = (rows[:, None] < M) & (first + k[None, :] < K)
        b_inside = (first + k[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + first + k[None, :], mask=a_inside, other=0)
        b_places = (first + k[:, None]) * sbk + columns[None, :]
        total = tl.dot(
            a, tl.load(b_ptr + b_places, mask=b_inside, other=0), total, input_precision="ieee"
        )
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * scm + columns[None, :], total, mask=inside)


def _draw(dtype: str, *shape: int) -> np.ndarray:
    return RNG.integers(-8, 8, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stride", [256, 300, 5000])
@pytest.mark.parametrize("m, n, k", [(64, 256, 256), (61, 250, 259), (130, 128, 16), (33, 70, 5)])
def test_near_and_far_rows(dtype: str, stride: int, m: int, n: int, k: int) -> None:
    a, b, c = _draw(dtype, m, k), _draw(dtype, k, stride), np.full((m, n), np.nan, dtype)
    _matmul[tw.cdiv(m, 64), tw.cdiv(n, 128)](
        a, b, c, m, n, k, stride, n, BLOCK_M=64, BLOCK_N=128, BLOCK_K=32,
        SUM=getattr(tl, dtype),
    )  # fmt: skip
    np.testing.assert_array_equal(c, a @ b[:, :n])


@pytest.mark.parametrize("stride", [128, 5000])
def test_a_result_over_the_right_operand(stride: int) -> None:
    """All operands are read before a store of the same program."""
    a, memory = _draw("float32", 64, 64), _draw("float32", 64, stride)
    wanted = memory.copy()
    wanted[:, :128] = a @ memory[:, :128]
    _matmul[(1,)](
        a, memory, memory, 64, 128, 64, stride, stride, BLOCK_M=64, BLOCK_N=128, BLOCK_K=32,
        SUM=tl.float32,
    )  # fmt: skip
    np.testing.assert_array_equal(memory, wanted)


def test_one_kernel_has_both_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    packed, pack = [], Packer.pack_panels

    def counted(self: Packer, *arguments: object) -> None:
        packed.append(self)
        pack(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Packer, "pack_panels", counted)
    for stride in (127, 5001):
        a, b = _draw("float32", 64, 96), _draw("float32", 96, stride)
        c = np.full((64, 120), np.nan, np.float32)
        _matmul[(1,)](
            a, b, c, 64, 120, 96, stride, 120, BLOCK_M=64, BLOCK_N=128, BLOCK_K=32,
            SUM=tl.float32,
        )  # fmt: skip
        np.testing.assert_array_equal(c, a @ b[:, :120])
    assert len(packed) == 1
