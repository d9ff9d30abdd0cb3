"""The example kernels on NumPy arrays and PyTorch tensors, odd shapes, against float64."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.attention import attention
from kernels.attention_backward import attention_backward
from kernels.layer_norm import layer_norm
from kernels.matmul import matmul
from kernels.softmax import softmax
from kernels.split_k_matmul import parts_of, split_k_matmul
from kernels.vector_add import add

sys.path.remove(
    str(Path(__file__).resolve().parents[1])
)  # the folder triton in there is not the module

import tilewright as tw
from tilewright_conformance.oracles import attention as attention_oracle
from tilewright_conformance.oracles import rowwise as rows_oracle

RNG = np.random.default_rng(1)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def poisoned(*shape: int) -> Any:
    return np.full(shape, np.nan, np.float32)


@pytest.fixture(params=["numpy", "torch", "reference"])
def wrap(request: pytest.FixtureRequest) -> Any:
    """Kinds of arguments.

    Arrays, tensors on the same memory, or arrays for the reference backend.
    """
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
    assert np.abs(out - rows_oracle.softmax(x)).max() < 1e-6


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 7), (2, 1024), (3, 1500)])
def test_layer_norm(wrap: Any, rows: int, columns: int) -> None:
    x, weight, bias, out, mean, rstd = (
        normal(rows, columns) + 2,
        normal(columns),
        normal(columns),
        poisoned(rows, columns),
        poisoned(rows),
        poisoned(rows),
    )
    layer_norm(*map(wrap, (x, weight, bias, out, mean, rstd)))
    exact, exact_mean, exact_rstd = rows_oracle.layer_norm(x, weight, bias, 1e-5)
    assert np.abs(out - exact).max() < 1e-4
    assert np.allclose(mean, exact_mean, atol=1e-5)
    assert np.allclose(rstd, exact_rstd, rtol=1e-4)


@pytest.mark.each_value
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (33, 65, 17), (128, 128, 64), (130, 200, 70)])
@pytest.mark.parametrize("activation", ["", "leaky_relu"])
def test_matmul(wrap: Any, m: int, n: int, k: int, activation: str) -> None:
    a, b, c = normal(m, k), normal(k, n), poisoned(m, n)
    matmul(wrap(a), wrap(b), wrap(c), activation, block=(32, 64, 32))
    exact = a.astype(np.float64) @ b
    if activation:
        exact = np.where(exact >= 0, exact, 0.01 * exact)
    assert np.abs(c - exact).max() < 1e-4


@pytest.mark.parametrize(
    ("m", "n", "k", "split"), [(33, 70, 300, 3), (1, 5, 129, 4), (64, 64, 64, 1), (40, 40, 500, 16)]
)
def test_split_k_matmul(wrap: Any, m: int, n: int, k: int, split: int) -> None:
    a, b, c, parts = normal(m, k), normal(k, n), poisoned(m, n), poisoned(split, m, n)
    split_k_matmul(wrap(a), wrap(b), wrap(c), wrap(parts), block=(32, 32, 32))
    assert np.abs(c - a.astype(np.float64) @ b).max() < 1e-4


def test_parts_fill_the_processors() -> None:
    assert parts_of(4096, 4096, 4096, 132) == 1  # 1024 blocks keep them busy
    assert parts_of(1024, 1024, 4096, 132) == 2  # 64 blocks do not
    assert parts_of(128, 128, 8192, 132) == 16
    assert parts_of(128, 128, 64, 132) == 1  # one step cannot be split


@pytest.mark.each_value
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "length", "head"), [(1, 1, 16), (2, 64, 32), (2, 100, 64)])
def test_attention(wrap: Any, heads: int, length: int, head: int, causal: bool) -> None:
    q, k, v = normal(heads, length, head), normal(heads, length, head), normal(heads, length, head)
    out, lse = poisoned(heads, length, head), poisoned(heads, length)
    attention(*map(wrap, (q, k, v, out, lse)), causal=causal, block=(32, 32))
    exact, exact_lse = attention_oracle.forward(q, k, v, head**-0.5, causal)
    assert np.abs(out - exact).max() < 1e-4
    assert np.abs(lse - exact_lse / np.log(2)).max() < 1e-4


@pytest.mark.each_value
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "length", "head"), [(1, 1, 16), (2, 64, 32), (2, 100, 16)])
@pytest.mark.parametrize("block", [(32, 32), (32, 16), (16, 64)])
def test_attention_backward(
    wrap: Any, heads: int, length: int, head: int, causal: bool, block: tuple[int, int]
) -> None:
    q, k, v, dout = (normal(heads, length, head) for _ in range(4))
    out, lse, delta = (
        poisoned(heads, length, head),
        poisoned(heads, length),
        poisoned(heads, length),
    )
    dq, dk, dv = (poisoned(heads, length, head) for _ in range(3))
    attention(*map(wrap, (q, k, v, out, lse)), causal=causal, block=(32, 32))
    attention_backward(
        *map(wrap, (q, k, v, out, lse, dout, dq, dk, dv, delta)), causal=causal, block=block
    )
    for found, exact in zip(
        (dq, dk, dv), attention_oracle.gradients(q, k, v, dout, head**-0.5, causal), strict=True
    ):
        assert np.abs(found - exact).max() < 1e-4


def test_attention_backward_far_below_zero() -> None:
    """The weight of a key past the end, whose score is 0, would be infinite beside such scores."""
    length, head = 20, 16
    q, k, v, dout = (
        np.full((1, length, head), 8, np.float32),
        np.full((1, length, head), -8, np.float32),
        normal(1, length, head),
        normal(1, length, head),
    )
    out, lse, delta, dq, dk, dv = (
        poisoned(1, length, head) if i in (0, 3, 4, 5) else poisoned(1, length) for i in range(6)
    )
    attention(q, k, v, out, lse, block=(32, 32))
    attention_backward(q, k, v, out, lse, dout, dq, dk, dv, delta, block=(32, 32))
    assert np.abs(dv - dout.mean(axis=1, keepdims=True)).max() < 1e-5
    dscores = (
        (dout @ v.transpose(0, 2, 1))
        - (v.mean(axis=1, keepdims=True) * dout).sum(axis=-1, keepdims=True)
    ) / length
    assert np.abs(dq - dscores @ k * head**-0.5).max() < 1e-4
    assert np.abs(dk - dscores.transpose(0, 2, 1) @ q * head**-0.5).max() < 1e-4
