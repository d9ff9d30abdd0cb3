"""Convolutions against their formula in float64, and their gradients against PyTorch's."""

import numpy as np
import pytest

import tilewright_kernels as tk

SETTINGS = [(1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 1, 2)]


def drawn(layout, dtype=np.float32):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 19, 11, 13)).astype(dtype)
    w, bias = (
        rng.standard_normal((21, 19, 3, 2)).astype(dtype),
        rng.standard_normal(21).astype(dtype),
    )
    return (x if layout == "NCHW" else np.moveaxis(x, 1, 3)), w, bias


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("stride, padding, dilation", SETTINGS)
def test_results_equal_the_formula(layout, stride, padding, dilation):
    x, w, bias = drawn(layout)
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "layout": layout}
    expected = tk.conv2d_reference(*(each.astype(np.float64) for each in (x, w, bias)), **settings)
    out = np.full(expected.shape, np.nan, np.float32)
    tk.conv2d(x, w, bias, out=out, **settings)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


def test_the_formula_is_that_of_pytorch():
    torch = pytest.importorskip("torch")
    x, w, bias = (torch.from_numpy(each) for each in drawn("NCHW", np.float64))
    for stride, padding, dilation in SETTINGS:
        expected = torch.nn.functional.conv2d(x, w, bias, stride, padding, dilation)
        found = tk.conv2d_reference(x, w, bias, stride, padding, dilation)
        torch.testing.assert_close(found, expected)


def test_float16():
    x, w, bias = drawn("NHWC", np.float16)
    found = tk.conv2d(x, w, bias, layout="NHWC", padding=1)
    doubled = (each.astype(np.float64) for each in (x, w, bias))
    expected = tk.conv2d_reference(*doubled, layout="NHWC", padding=1)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("stride, padding, dilation", SETTINGS[1:])
def test_gradients(layout, stride, padding, dilation):
    torch = pytest.importorskip("torch")
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "layout": layout}
    given = [torch.from_numpy(np.array(each)).requires_grad_() for each in drawn(layout)]
    exact = [each.detach().double().requires_grad_() for each in given]
    expected = tk.conv2d_reference(*exact, **settings)
    dy = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0))
    expected.backward(dy.double())
    tk.conv2d(*given, **settings).backward(dy)
    for found, reference in zip(given, exact, strict=True):
        torch.testing.assert_close(found.grad.double(), reference.grad, rtol=1e-4, atol=1e-3)


def test_no_images():
    x, w, _ = drawn("NCHW")
    assert tk.conv2d(x[:0], w).shape == (0, 21, 9, 12)


def test_wrong_arguments_are_refused():
    x, w, bias = drawn("NCHW")
    with pytest.raises(ValueError, match="have not the channels"):
        tk.conv2d(x[:, :3], w)
    with pytest.raises(ValueError, match="layout must be"):
        tk.conv2d(x, w, layout="HWC")
    with pytest.raises(ValueError, match="do not fit an axis"):
        tk.conv2d(x[:, :, :2], w)
    with pytest.raises(ValueError, match="is too small"):
        tk.conv2d(x, w, stride=0)
    with pytest.raises(ValueError, match="bias has the shape"):
        tk.conv2d(x, w, bias[:3])
    with pytest.raises(TypeError, match="and weight of float16"):
        tk.conv2d(x, w.astype(np.float16))
