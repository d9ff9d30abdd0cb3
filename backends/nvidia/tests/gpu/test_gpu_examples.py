"""The kernels of ``examples``, unchanged, on CUDA tensors: odd shapes, against float64; the
gradients of attention against PyTorch's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples"))
from gpu_support import gpu_is_there
from kernels.attention import attention
from kernels.attention_backward import attention_backward
from kernels.layer_norm import layer_norm
from kernels.matmul import matmul
from kernels.softmax import softmax
from kernels.vector_add import add

sys.path.remove(
    str(Path(__file__).resolve().parents[4] / "examples")
)  # the folder triton in there is not the module

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not gpu_is_there() or not torch.cuda.is_available(), reason="there is no NVIDIA GPU here"
    ),
]

#: dtype -> the maximum error, relative to the maximum result, that rounding operands and weights to
#: it explains
ERROR = {"float32": 2e-5, "float16": 3e-3, "bfloat16": 2.5e-2}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def normal(*shape: int, dtype: str = "float32") -> Any:
    return torch.randn(*shape, device="cuda").to(getattr(torch, dtype))


def poisoned(*shape: int, dtype: str = "float32") -> Any:
    return torch.full(shape, float("nan"), device="cuda", dtype=getattr(torch, dtype))


def error(found: Any, exact: Any) -> float:
    """Return the maximum error relative to the maximum result; NaN if there is a NaN."""
    return float((found.double() - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("n", [1, 1000, 1024, 5001, 98432])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_vector_add(n: int, dtype: str) -> None:
    x, y, out = normal(n, dtype=dtype), normal(n, dtype=dtype), poisoned(n, dtype=dtype)
    add(x, y, out)
    assert torch.equal(out, x + y)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 7), (5, 128), (4, 781), (200, 4097)])
def test_softmax(rows: int, columns: int) -> None:
    x, out = normal(rows, columns) * 10, poisoned(rows, columns)
    softmax(x, out)
    assert (out.double() - torch.softmax(x.double(), 1)).abs().max() < 2e-6


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 7), (2, 1024), (37, 1500)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layer_norm(rows: int, columns: int, dtype: str) -> None:
    x, weight, bias, out = (
        normal(rows, columns, dtype=dtype) + 2,
        normal(columns, dtype=dtype),
        normal(columns, dtype=dtype),
        poisoned(rows, columns, dtype=dtype),
    )
    mean, rstd = poisoned(rows), poisoned(rows)
    layer_norm(x, weight, bias, out, mean, rstd)
    wide = x.double()
    deviation = (wide.var(1, correction=0) + 1e-5).sqrt()
    exact = torch.nn.functional.layer_norm(wide, (columns,), weight.double(), bias.double(), 1e-5)
    torch.testing.assert_close(
        out.double(),
        exact,
        rtol=1e-3 if dtype == "float16" else 1e-5,
        atol=1e-3 if dtype == "float16" else 1e-4,
    )
    torch.testing.assert_close(mean.double(), wide.mean(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rstd.double(), 1 / deviation, rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (33, 65, 17), (128, 128, 64), (130, 200, 70), (257, 384, 500)]
)
@pytest.mark.parametrize(
    ("dtype", "block"),
    [
        ("float32", (32, 64, 32)),
        ("float16", (128, 128, 64)),
        ("bfloat16", (64, 64, 32)),
        ("float16", (32, 64, 32)),
    ],
)
@pytest.mark.parametrize("activation", ["", "leaky_relu"])
def test_matmul(
    m: int, n: int, k: int, dtype: str, block: tuple[int, int, int], activation: str
) -> None:
    a, b, c = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype), poisoned(m, n, dtype=dtype)
    matmul(a, b, c, activation, block=block)
    exact = a.double() @ b.double()
    if activation:
        exact = torch.nn.functional.leaky_relu(exact, 0.01)
    assert error(c, exact) < ERROR[dtype]


def test_matmul_of_f32_in_the_blocks_of_the_demo() -> None:
    a, b, c = normal(300, 200), normal(200, 140), poisoned(300, 140)
    matmul(a, b, c)
    assert error(c, a.double() @ b.double()) < ERROR["float32"]


def exact_attention(q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, Any]:
    """Attention in float64, and log2 of its rows' sums."""
    scores = q @ k.transpose(1, 2) * q.shape[2] ** -0.5
    if causal:
        scores = scores.masked_fill(
            ~torch.ones_like(scores, dtype=torch.bool).tril(), float("-inf")
        )
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1) * 1.4426950408889634


SHAPES = [(1, 1, 16), (2, 64, 32), (3, 100, 64), (2, 333, 128)]
KINDS = [
    ("float32", (32, 32)),
    ("float16", (64, 64)),
    ("bfloat16", (64, 32)),
    ("float16", (16, 64)),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "block"), KINDS)
@pytest.mark.parametrize(("heads", "length", "head"), SHAPES)
def test_attention(
    heads: int, length: int, head: int, dtype: str, block: tuple[int, int], causal: bool
) -> None:
    q, k, v = (normal(heads, length, head, dtype=dtype) for _ in range(3))
    out, lse = poisoned(heads, length, head, dtype=dtype), poisoned(heads, length)
    attention(q, k, v, out, lse, causal=causal, block=block)
    exact, exact_lse = exact_attention(q.double(), k.double(), v.double(), causal)
    assert error(out, exact) < ERROR[dtype]
    assert (lse.double() - exact_lse).abs().max() < 1e-4


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "block"), KINDS)
@pytest.mark.parametrize(("heads", "length", "head"), SHAPES)
def test_gradients_of_attention(
    heads: int, length: int, head: int, dtype: str, block: tuple[int, int], causal: bool
) -> None:
    q, k, v, dout = (normal(heads, length, head, dtype=dtype) for _ in range(4))
    out, lse, delta = (
        poisoned(heads, length, head, dtype=dtype),
        poisoned(heads, length),
        poisoned(heads, length),
    )
    found = [poisoned(heads, length, head, dtype=dtype) for _ in range(3)]
    attention(q, k, v, out, lse, causal=causal, block=block)
    attention_backward(q, k, v, out, lse, dout, *found, delta, causal=causal, block=block)
    inputs = [x.double().requires_grad_() for x in (q, k, v)]
    exact = torch.autograd.grad(exact_attention(*inputs, causal)[0], inputs, dout.double())
    for name, gradient, wanted in zip(("dq", "dk", "dv"), found, exact, strict=True):
        if length == 1 and name != "dv":  # a single weight is 1 whatever the score
            assert gradient.abs().max() <= 4 * ERROR[dtype], name
        else:
            assert error(gradient, wanted) < 2 * ERROR[dtype], name
