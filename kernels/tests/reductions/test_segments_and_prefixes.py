"""Prefix sums, segment sums and histograms against their formulas, and their gradients."""

import numpy as np
import pytest

import tilewright_kernels as tk


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"), [((1,), 0), ((3, 5, 7), 1), ((2, 3000), -1), ((70000,), 0), ((0, 3), 1)]
)
def test_prefix_sums_equal_their_formula(shape, axis, reverse):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    out = np.full(shape, np.nan, np.float32)
    tk.cumsum(x, axis, reverse=reverse, out=out)
    expected = tk.cumsum_reference(x.astype(np.float64), axis, reverse=reverse)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=2e-3)
    integers = np.asfortranarray((x * 10).astype(np.int32))
    expected = tk.cumsum_reference(integers.astype(np.int64), axis, reverse=reverse)
    np.testing.assert_array_equal(tk.cumsum(integers, axis, reverse=reverse), expected)


@pytest.mark.parametrize("shape", [(60,), (60, 5), (60, 3, 300)])
def test_segment_sums_equal_their_formula(shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    bounds = np.array([2, 2, 10, 11, 50, 50], np.int32)
    found = tk.segment_sum(x, bounds)
    expected = tk.segment_sum_reference(x.astype(np.float64), bounds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="must be a vector"):
        tk.segment_sum(x, bounds[None])


@pytest.mark.parametrize("n_bins", [1, 7, 2000])
def test_histograms_equal_their_formula(n_bins):
    rng = np.random.default_rng(0)
    x = rng.integers(-2, n_bins + 3, (50, 50)).astype(np.int32)
    np.testing.assert_array_equal(
        tk.histogram(x[:, ::2], n_bins), tk.histogram_reference(x[:, ::2], n_bins)
    )
    x = (rng.integers(-8, 72, 4000) / 64).astype(np.float32)
    x[:2] = np.nan, np.inf
    found = tk.histogram(x, 32, minimum=0, maximum=1)
    np.testing.assert_array_equal(found, np.histogram(x[np.isfinite(x)], 32, (0, 1))[0])
    with pytest.raises(TypeError, match="take minimum="):
        tk.histogram(x, 3)


def test_gradients_equal_those_of_the_formulas():
    torch = pytest.importorskip("torch")
    x = torch.randn(20, 3).requires_grad_()
    exact = x.detach().double().requires_grad_()
    bounds = torch.tensor([1, 4, 4, 19])
    for name, arguments in (("cumsum", (0,)), ("segment_sum", (bounds,))):
        x.grad = exact.grad = None
        y = getattr(tk, name)(x, *arguments)
        dy = torch.randn(y.shape)
        y.backward(dy)
        getattr(tk, f"{name}_reference")(exact, *arguments).backward(dy.double())
        torch.testing.assert_close(x.grad.double(), exact.grad, rtol=1e-5, atol=1e-5)
