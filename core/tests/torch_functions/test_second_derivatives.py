"""Gradients of gradients of kernels in PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright as tw  # noqa: E402
import tilewright.language as tl  # noqa: E402
import tilewright.torch  # noqa: E402


@tw.jit
def softmax_kernel(x, w, out, row_stride, n, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    a = tl.load(x + row * row_stride + columns, mask=mask, other=-float("inf"))
    e = tl.exp(a * factor - tl.max(a * factor, axis=0))
    b = tl.load(w + columns, mask=mask)
    tl.store(out + row * n + columns, e / tl.sum(e, axis=0) * b, mask=mask)


weighted = tilewright.torch.function(
    softmax_kernel,
    outputs={"out": lambda a: a["x"].new_empty(a["x"].shape)},
    wrt=("x", "w"),
    saved=(),
    grid=lambda meta: (meta["x"].shape[0],),
    name="test_weighted_softmax",
    BLOCK=32,
)


def derivatives(function, order, *inputs):
    """Return the derivatives of sums along a random cotangent, up to an order."""
    out = function(*inputs)
    generator = torch.Generator().manual_seed(3)
    cotangent = torch.randn(out.shape, generator=generator, dtype=out.dtype).requires_grad_()
    found = [torch.autograd.grad(out, inputs, cotangent, create_graph=True)]
    for _ in range(order - 1):
        loss = sum((each.sin() * each).sum() for each in found[-1])
        found.append(torch.autograd.grad(loss, [*inputs, cotangent], create_graph=True))
    return [each.detach() for some in found for each in some]


@pytest.mark.parametrize(
    ("expanded", "order"), [pytest.param(False, 3, marks=pytest.mark.full), (True, 2)]
)
def test_derivatives_of_any_order_are_those_of_pytorch(expanded, order) -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((1 if expanded else 5, 20), (20,))
    )

    def kernel(x, w):
        x = x.expand(5, 20)
        return weighted(x, w, x.stride(0), 20, 0.5)

    def pytorch(x, w):
        return torch.softmax(x.expand(5, 20) * 0.5, 1) * w

    # the third derivatives of sums have cancelled digits
    torch.testing.assert_close(
        derivatives(kernel, order, x, w), derivatives(pytorch, order, x, w), rtol=1e-9, atol=1e-10
    )


def test_gradients_of_gradients_that_nobody_wants_cost_no_launch() -> None:
    x, w = torch.randn(5, 20, requires_grad=True), torch.randn(20)
    out = weighted(x, w, 20, 20, 0.5)
    (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((gradient**2).sum(), x)
    (tangent,) = [each for (names, _), each in weighted._tangents.items() if names == ("x",)]
    # of the tangent kernel only the adjoint with respect to x was made
    assert {wrt for _, wrt, _ in tangent._adjoints} == {("x",)}
    xs = x.detach().requires_grad_()
    (expected,) = torch.autograd.grad((torch.softmax(xs * 0.5, 1) * w).sum(), xs, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad((expected**2).sum(), xs)[0])
