"""The example kernels on NumPy arrays and PyTorch tensors, odd shapes, against float64."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.attention import attention
from kernels.layer_norm import layer_norm
from kernels.matmul import matmul
from kernels.softmax import softmax
from kernels.vector_add import add

import tilewright as tw

RNG = np.random.default_rng(1)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def poisoned(*shape: int) -> Any:
    return np.full(shape, np.nan, np.float32)


@pytest.fixture(params=["numpy", "torch", "reference"])
def wrap(request: pytest.FixtureRequest) -> Any:
    """How arguments are passed: as arrays, as tensors on the same memory, or as arrays to the reference backend."""
    if request.param == "torch":
        return pytest.importorskip("torch").from_numpy
    if request.param == "reference":
        context = tw.backend("reference")
        context.__enter__()
        request.addfinalizer(lambda: context.__exit__(None, None, None))
    return lambda array: array


@pytest.mark.parametrize("n", [1, 1000, 1024, 5001])
def test_vector_add(wrap: Any, n: int) -> None:
    x, y, out = normal(n), normal(n), poisoned(n)
    add(wrap(x), wrap(y), wrap(out))
    assert np.array_equal(out, x + y)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 7), (5, 128), (4, 781)])
def test_softmax(wrap: Any, rows: int, columns: int) -> None:
    x, out = normal(rows, columns) * 10, poisoned(rows, columns)
    softmax(wrap(x), wrap(out))
    exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    assert np.abs(out - exact).max() < 1e-6


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 7), (2, 1024), (3, 1500)])
def test_layer_norm(wrap: Any, rows: int, columns: int) -> None:
    x, weight, bias, out, mean, rstd = normal(rows, columns) + 2, normal(columns), normal(columns), poisoned(rows, columns), poisoned(rows), poisoned(rows)
    layer_norm(*map(wrap, (x, weight, bias, out, mean, rstd)))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)
    assert np.abs(out - (centred / deviation * weight + bias)).max() < 1e-4
    assert np.allclose(mean, wide.mean(axis=1), atol=1e-5)
    assert np.allclose(rstd, 1 / deviation[:, 0], rtol=1e-4)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (33, 65, 17), (128, 128, 64), (130, 200, 70)])
@pytest.mark.parametrize("activation", ["", "leaky_relu"])
def test_matmul(wrap: Any, m: int, n: int, k: int, activation: str) -> None:
    a, b, c = normal(m, k), normal(k, n), poisoned(m, n)
    matmul(wrap(a), wrap(b), wrap(c), activation, block=(32, 64, 32))
    exact = a.astype(np.float64) @ b
    if activation:
        exact = np.where(exact >= 0, exact, 0.01 * exact)
    assert np.abs(c - exact).max() < 1e-4


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "length", "head"), [(1, 1, 16), (2, 64, 32), (2, 100, 64)])
def test_attention(wrap: Any, heads: int, length: int, head: int, causal: bool) -> None:
    q, k, v = normal(heads, length, head), normal(heads, length, head), normal(heads, length, head)
    out, lse = poisoned(heads, length, head), poisoned(heads, length)
    attention(*map(wrap, (q, k, v, out, lse)), causal=causal, block=(32, 32))
    scores = q.astype(np.float64) @ k.transpose(0, 2, 1) * head**-0.5
    if causal:
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    weights = np.exp(scores)
    assert np.abs(out - weights / weights.sum(axis=-1, keepdims=True) @ v).max() < 1e-4
    assert np.abs(lse - np.log2(weights.sum(axis=-1))).max() < 1e-4
