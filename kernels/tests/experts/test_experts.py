"""Mixtures of experts against their formulas, and their gradients."""

import numpy as np
import pytest
from checks import check_architectures

import tilewright_kernels as tk
from tilewright_kernels.experts.expert_order import EXPERT_ORDER
from tilewright_kernels.experts.routing import ROUTE


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize(("shape", "k"), [((1, 1), 1), ((5, 8), 2), ((2, 3, 60), 7), ((0, 4), 2)])
def test_routes_are_the_most_probable_experts(shape, k, renormalize):
    logits = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    weights, experts = tk.route(logits[..., ::-1], k, renormalize=renormalize)
    expected = tk.route_reference(logits[..., ::-1].astype(np.float64), k, renormalize=renormalize)
    np.testing.assert_allclose(weights, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(experts, expected[1])
    with pytest.raises(ValueError, match="cannot choose"):
        tk.route(logits, shape[-1] + 1)


@pytest.mark.parametrize(
    ("tokens", "k", "n_experts"), [(1, 1, 1), (700, 3, 20), (3000, 2, 5), (0, 2, 4)]
)
def test_order_is_that_of_a_stable_sort(tokens, k, n_experts):
    experts = np.random.default_rng(0).integers(0, n_experts, (tokens, k)).astype(np.int32)
    experts[experts == 3] = 0  # an expert without tokens
    found = tk.expert_order(experts, n_experts)
    for each, expected in zip(found, tk.expert_order_reference(experts, n_experts), strict=True):
        np.testing.assert_array_equal(each, expected)


def mixture(framework=np.asarray, tokens=37, k=3, columns=40, hidden=24, n_experts=6):
    """Return the arguments of a mixture of experts."""
    rng = np.random.default_rng(0)
    experts = np.stack([rng.permutation(n_experts)[:k] for _ in range(tokens)]).astype(np.int32)
    floats = [
        rng.standard_normal((tokens, columns)),
        rng.random((tokens, k)),
        rng.standard_normal((n_experts, columns, 2 * hidden)) / 6,
        rng.standard_normal((n_experts, hidden, columns)) / 5,
    ]
    x, weights, gate_up, down = (framework(each.astype(np.float32)) for each in floats)
    return x, weights, framework(experts), gate_up, down


def test_permutation_and_sum_equal_their_formulas():
    x, weights, experts, *_ = mixture()
    order = tk.expert_order(experts, 6)
    rows = tk.permute(x, order)
    np.testing.assert_array_equal(rows, tk.permute_reference(x, order))
    np.testing.assert_allclose(
        tk.combine(rows, weights, order), tk.combine_reference(rows, weights, order), rtol=1e-5
    )
    with pytest.raises(ValueError, match="do not share"):
        tk.permute(x[:-1], order)


def test_experts_equal_their_formula_and_its_gradients():
    torch = pytest.importorskip("torch")
    given = mixture(torch.from_numpy)
    names = (0, 1, 3, 4)
    exact = [each.double().requires_grad_() if each.is_floating_point() else each for each in given]
    given = [each.requires_grad_() if each.is_floating_point() else each for each in given]
    y, expected = tk.expert_swiglu(*given), tk.expert_swiglu_reference(*exact)
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    y.backward(dy)
    expected.backward(dy.double())
    for place in names:
        torch.testing.assert_close(
            given[place].grad.double(), exact[place].grad, rtol=1e-4, atol=1e-4
        )


def test_experts_of_no_tokens_return_no_rows():
    weights, experts = np.empty((0, 2), np.float32), np.empty((0, 2), np.int32)
    gate_up, down = np.ones((4, 8, 12), np.float32), np.ones((4, 6, 8), np.float32)
    y = tk.expert_swiglu(np.empty((0, 8), np.float32), weights, experts, gate_up, down)
    assert y.shape == (0, 8)


@pytest.mark.parametrize("renormalize", [False, True])
def test_gradients_of_routes_equal_those_of_the_formula(renormalize):
    torch = pytest.importorskip("torch")
    logits = torch.randn(9, 12, generator=torch.Generator().manual_seed(0)).requires_grad_()
    exact = logits.detach().double().requires_grad_()
    weights, experts = tk.route(logits, 4, renormalize=renormalize)
    chosen = torch.softmax(exact, 1).gather(1, experts.long())
    if renormalize:
        chosen = chosen / chosen.sum(1, keepdim=True)
    dweights = torch.randn(9, 4)
    weights.backward(dweights)
    chosen.backward(dweights.double())
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)


def test_kernels_compile_for_gpus():
    x, _, experts, *_ = mixture()
    for operation, *arguments in ((ROUTE, x, 2, True), (EXPERT_ORDER, experts, 6)):
        check_architectures(operation, *arguments, architectures=("sm_90a",))
