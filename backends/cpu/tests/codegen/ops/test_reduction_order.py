"""Reductions, scans and matmuls in a stated order: the reference's bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.types import F16, F32, F64, Type
from tilewright_conformance.testlib import reduction_order
from tilewright_conformance.testlib.reduction_order import ORDERS

_SHAPES = [
    ((1,), 0),
    ((7,), 0),
    ((100,), 0),
    ((515,), 0),
    ((5, 33), 1),
    ((33, 5), 0),
    ((3, 20, 9), 1),
]


@pytest.mark.each_value
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("shape", "axis"), _SHAPES, ids=str)
@pytest.mark.parametrize("type_", [F32, F64, F16], ids=str)
def test_any_extent(
    type_: Type, shape: tuple[int, ...], axis: int, order: str, agree: Callable[..., Any]
) -> None:
    sample = reduction_order.sum_sample(type_, shape, axis, order)
    found = agree(sample)
    assert reduction_order.bits(sample, found) == reduction_order.run_on_reference(sample)


@pytest.mark.each_value
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rows", [1, 4, 16, 64])
@pytest.mark.parametrize("n", [2, 32, 512])
def test_rows_of_a_tile_do_not_change_bits(n: int, rows: int, order: str) -> None:
    for kernel in (
        reduction_order.sum_rows,
        reduction_order.sum_columns,
        reduction_order.mean_rows,
    ):
        x = reduction_order.spread(
            (rows, n) if kernel is not reduction_order.sum_columns else (n, rows)
        )
        found = {name: np.zeros(rows, np.float32) for name in ("cpu", "reference")}
        for name, out in found.items():
            kernel[(1,)](x, out, n, rows, order, backend=name)
        assert found["cpu"].tobytes() == found["reference"].tobytes()


@pytest.mark.parametrize("order", ORDERS)
def test_probes_find_the_tree(order: str) -> None:
    for n in (32, 64, 512):
        pairs = reduction_order.some_pairs(n)
        out = np.zeros(len(pairs), np.float32)
        reduction_order.sum_rows[(len(pairs),)](
            reduction_order.probes(n, pairs), out, n, 1, order, backend="cpu"
        )
        assert out.tolist() == [n - reduction_order.subtree(order, n, *pair) for pair in pairs]


@tw.jit
def matmul(
    a,
    b,
    c,
    M,
    K,
    M_BLOCK: tl.constexpr,
    N: tl.constexpr,
    K_BLOCK: tl.constexpr,
    ORDER: tl.constexpr,
):
    i = tl.program_id(0) * M_BLOCK + tl.arange(0, M_BLOCK)
    j, k = tl.arange(0, N), tl.arange(0, K_BLOCK)
    total = tl.zeros((M_BLOCK, N), tl.float32)
    for start in range(0, K, K_BLOCK):
        inside = (i[:, None] < M) & (start + k[None, :] < K)
        x = tl.load(a + i[:, None] * K + start + k[None, :], inside, 0.0)
        y = tl.load(b + (start + k[:, None]) * N + j[None, :], start + k[:, None] < K, 0.0)
        total = tl.dot(x, y, total, order=ORDER)
    tl.store(c + i[:, None] * N + j[None, :], total, i[:, None] < M)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_matmuls_in_sequence_do_not_depend_on_batch_and_blocks(dtype: Any) -> None:
    n, k = 32, 96
    a, b = (
        reduction_order.spread((70, k)).astype(dtype),
        reduction_order.spread((k, n), 1).astype(dtype),
    )
    patterns = set()
    for m in (1, 2, 3, 5, 8, 17, 33, 64, 70):
        for m_block, k_block in ((16, 16), (16, 32), (64, 32), (1, 8)):
            c = np.zeros((m, n), np.float32)
            grid = (-(-m // m_block),)
            matmul[grid](a, b, c, m, k, m_block, n, k_block, "sequential", backend="cpu")
            patterns.add(c[0].tobytes())
    assert len(patterns) == 1
    expected = np.zeros((1, n), np.float32)
    matmul[(1,)](a, b, expected, 1, k, 1, n, 32, "sequential", backend="reference")
    assert patterns == {expected.tobytes()}
