"""Convolutions against their formula in float64, and their gradients against PyTorch's."""

import numpy as np
import pytest
from checks import check_architectures, check_compiled, check_gradients, check_operation

import tilewright_kernels as tk
from tilewright_kernels.linear.convolution import CONV2D
from tilewright_kernels.linear.convolution_windows import Window

#: stride, padding, dilation, groups
SETTINGS = [
    (1, 0, 1, 1),
    (2, 1, 1, 3),
    (1, 2, 2, 1),
    ((3, 1), (0, 2), (1, 2), 1),
    ((1, 2), (3, 0), (2, 1), 6),
]


def drawn(layout="NCHW", groups=1):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 18, 11, 13))
    weight, bias = rng.standard_normal((12, 18 // groups, 3, 2)), rng.standard_normal(12)
    return {"x": x if layout == "NCHW" else np.moveaxis(x, 1, 3), "weight": weight, "bias": bias}


def named(stride, padding, dilation, groups, layout):
    return {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "layout": layout,
    }


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("values", SETTINGS)
def test_results_equal_the_formula(layout, values):
    settings = named(*values, layout)
    check_operation(tk.conv2d, tk.conv2d_reference, drawn(layout, values[3]), settings, atol=1e-4)


def test_the_formula_is_that_of_pytorch():
    torch = pytest.importorskip("torch")
    for *settings, groups in SETTINGS:
        given = [torch.from_numpy(each) for each in drawn(groups=groups).values()]
        expected = torch.nn.functional.conv2d(*given, *settings, groups)
        torch.testing.assert_close(tk.conv2d_reference(*given, *settings, groups), expected)


def test_16_bits():
    for dtype in ("float16", "bfloat16"):
        settings = {"layout": "NHWC", "padding": 1}
        check_operation(
            tk.conv2d,
            tk.conv2d_reference,
            drawn("NHWC"),
            settings,
            dtype=dtype,
            layouts=["contiguous"],
            atol=0.1,
        )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("values", SETTINGS[1:])
def test_gradients(layout, values):
    settings = named(*values, layout)
    check_gradients(tk.conv2d, tk.conv2d_reference, drawn(layout, values[3]), settings, atol=1e-3)


def test_compiles_whole():
    settings = named(*SETTINGS[-1], "NCHW")
    arrays = drawn(groups=6)
    check_compiled(tk.conv2d, arrays, settings, wrt=("x", "weight", "bias"))


def test_compiles_for_architectures():
    given = (each.astype(np.float16) for each in drawn("NHWC", 3).values())
    check_architectures(CONV2D, *given, Window.of(2, 1, 1).numbers, 3, "NHWC", "ieee")


@pytest.mark.parametrize("taps", [(1, 1), (2, 3)])
@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("extents", [(5, 7), (40, 33)])
def test_windows_within_and_beyond_the_images(taps, padding, extents):
    """Tiles of rows of pixels end beyond the images; paddings are wider than a window reaches."""
    rng = np.random.default_rng(1)
    arrays = {
        "x": rng.standard_normal((2, 3, *extents)),
        "weight": rng.standard_normal((5, 3, *taps)),
    }
    settings = {"padding": padding}
    check_operation(tk.conv2d, tk.conv2d_reference, arrays, settings, atol=1e-4)
    check_gradients(tk.conv2d, tk.conv2d_reference, arrays, settings, atol=1e-3)


def test_infinite_pixels_that_no_window_has():
    """A tile's last columns read pixels that only other tiles' gradients are multiplied by."""
    torch = pytest.importorskip("torch")
    x = torch.randn(1, 3, 9, 9)
    x[..., 8] = torch.inf
    weight = torch.randn(4, 3, 2, 2, requires_grad=True)
    y = tk.conv2d(x, weight, stride=2)
    expected = torch.nn.functional.conv2d(x, weight, stride=2)
    torch.testing.assert_close(y, expected)
    slope = torch.randn_like(y)
    found, exact = (torch.autograd.grad(each, weight, slope)[0] for each in (y, expected))
    assert exact.isfinite().all()
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)


def test_no_images():
    x, weight, _ = drawn().values()
    assert tk.conv2d(x[:0], weight).shape == (0, 12, 9, 12)


def test_wrong_arguments_are_refused():
    x, w, bias = drawn().values()
    with pytest.raises(ValueError, match="have not the channels of 1 group of filters"):
        tk.conv2d(x[:, :3], w)
    with pytest.raises(ValueError, match="have not the channels of 5 groups of filters"):
        tk.conv2d(x, w, groups=5)
    with pytest.raises(ValueError, match="must have 4 axes"):
        tk.conv2d(x[0], w)
    with pytest.raises(ValueError, match="layout must be"):
        tk.conv2d(x, w, layout="HWC")
    with pytest.raises(ValueError, match="do not fit axes"):
        tk.conv2d(x[:, :, :2], w)
    with pytest.raises(ValueError, match="must be at least 1, and padding"):
        tk.conv2d(x, w, stride=(1, 0))
    with pytest.raises(TypeError, match="padding must be an integer or two of them"):
        tk.conv2d(x, w, padding=(1, 1, 1))
    with pytest.raises(ValueError, match="bias has the shape"):
        tk.conv2d(x, w, bias[:3])
    with pytest.raises(TypeError, match="and weight of float16"):
        tk.conv2d(x, w.astype(np.float16))
