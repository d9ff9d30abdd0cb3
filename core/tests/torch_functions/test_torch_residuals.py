"""Functions of PyTorch whose kernels store residuals for the backward pass."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright as tw  # noqa: E402
import tilewright.language as tl  # noqa: E402
import tilewright.torch  # noqa: E402
from tilewright.torch import like  # noqa: E402


@tw.jit
def standardize(x, w, out, n, eps, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside, row = columns < n, tl.program_id(0) * n
    value = tl.load(x + row + columns, mask=inside, other=0.0)
    mean = tl.sum(value, axis=0) / n
    centered = tl.where(inside, value - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered, axis=0) / n + eps)
    weight = tl.load(w + columns, mask=inside, other=0.0)
    tl.store(out + row + columns, centered * rstd * weight, mask=inside)


def rows(x):
    return x.shape[:1]


norm = tilewright.torch.function(
    standardize,
    outputs={"out": like("x")},
    wrt=("x", "w"),
    residuals={name: like("x", shape=rows, dtype=torch.float32) for name in ("mean", "rstd")},
    grid=lambda meta: (meta["x"].shape[0],),
    BLOCK=64,
    name="test_residual_norm",
)


def expected(x, w):
    return torch.nn.functional.layer_norm(x, x.shape[1:], w, eps=1e-5)


def drawn():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 50, generator=generator).requires_grad_()
    w = torch.randn(50, generator=generator).requires_grad_()
    return x, w, torch.randn(6, 50, generator=generator)


def test_autograd_keeps_residuals_for_the_backward_pass() -> None:
    x, w, d_out = drawn()
    result = norm(x, w, 50, 1e-5)
    assert isinstance(result, torch.Tensor)
    shapes = [tuple(each.shape) for each in result.grad_fn.saved_tensors]
    assert shapes == [(6, 50), (50,), (6,), (6,)]
    torch.testing.assert_close(result.grad_fn.saved_tensors[2], x.detach().mean(1))
    found = torch.autograd.grad(result, (x, w), d_out)
    for own, other in zip(found, torch.autograd.grad(expected(x, w), (x, w), d_out), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


def test_graphs_hold_the_operators() -> None:
    x, w, d_out = drawn()
    compiled = torch.compile(
        lambda x, w: norm(2 * x, w, 50, 1e-5), fullgraph=True, backend="aot_eager"
    )
    found = torch.autograd.grad(compiled(x, w), (x, w), d_out)
    for own, other in zip(
        found, torch.autograd.grad(expected(2 * x, w), (x, w), d_out), strict=True
    ):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


def test_second_derivatives_need_no_residuals() -> None:
    x, w, d_out = drawn()

    def second(function):
        (slope,) = torch.autograd.grad(function(x, w), x, d_out, create_graph=True)
        return torch.autograd.grad((slope * slope).sum(), (x, w))

    found = second(lambda x, w: norm(x, w, 50, 1e-5))
    for own, other in zip(found, second(expected), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-4)
