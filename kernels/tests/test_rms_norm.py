"""RMS norm against its formula in float64, and its gradients."""

import numpy as np
import pytest

import tilewright_kernels as tk

SHAPES = [(1, 1), (3, 7), (2, 5, 1000), (4, 4096), (0, 16)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_weight", [False, True])
def test_rms_norm_of_numpy_arrays_equals_its_formula(shape, has_weight):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    weight = rng.standard_normal(shape[-1]).astype(np.float32) if has_weight else None
    out = np.full(shape, np.nan, np.float32)
    found = tk.rms_norm(x, weight, out=out)
    expected = tk.rms_norm_reference(
        x.astype(np.float64), None if weight is None else weight.astype(np.float64)
    )
    assert found is out
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_rms_norm_equal_those_of_its_formula(shape):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(shape, generator=generator) for _ in range(2))
    weight = torch.randn(shape[-1], generator=generator)
    given = [each.requires_grad_() for each in (x, weight)]
    exact = [each.detach().double().requires_grad_() for each in given]
    tk.rms_norm(*given).backward(dy)
    tk.rms_norm_reference(*exact).backward(dy.double())
    for found, expected in zip(given, exact, strict=True):
        torch.testing.assert_close(found.grad.double(), expected.grad, rtol=1e-4, atol=1e-5)
