"""Reductions over axes against their formulas in float64, and their gradients."""

import numpy as np
import pytest

import tilewright_kernels as tk

CASES = [
    ((7,), None),
    ((3, 5), 0),
    ((2, 3, 4, 5), (0, 2)),
    ((2, 3, 4, 5), (1, 3)),
    ((2, 3, 2, 3, 2), (0, 2, 4)),
    ((3, 1000), -1),
    ((1000, 3), 0),
    ((70000, 2), 0),
    ((0, 4), 1),
]
NAMES = ["sum", "mean", "var", "max", "min"]


def variants(x):
    """Return the array in C order, in Fortran's, and with every second element of a wider one."""
    return x, np.asfortranarray(x), np.repeat(x, 2, -1)[..., ::2]


@pytest.mark.each_value
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_reductions_equal_their_formulas(name, shape, axis):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    operation, reference = getattr(tk, name), getattr(tk, f"{name}_reference")
    expected = reference(x.astype(np.float64), axis, keepdims=True)
    for each in variants(x):
        out = np.full(expected.shape, np.nan, np.float32)
        assert operation(each, axis, keepdims=True, out=out) is out
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5 * np.sqrt(x.size + 1))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(("shape", "axis"), [((5, 7), 0), ((5, 7), None), ((2, 70000), 1)])
def test_positions_are_those_of_the_first_extremum(name, shape, axis):
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)
    operation, reference = getattr(tk, name), getattr(tk, f"{name}_reference")
    for each in (*variants(x), x.astype(np.int32)):
        np.testing.assert_array_equal(operation(each, axis), reference(each, axis))
    x[..., 3:5] = np.nan
    np.testing.assert_array_equal(operation(x, axis), reference(x, axis))


def test_extrema_of_nan_and_infinity():
    x = np.array([[1, np.nan, 2], [-np.inf, -np.inf, -np.inf]], np.float32)
    np.testing.assert_array_equal(tk.max(x, 1), [np.nan, -np.inf])
    np.testing.assert_array_equal(tk.argmax(x, 1), [1, 0])
    with pytest.raises(ValueError, match="no elements"):
        tk.max(np.empty((2, 0), np.float32), 1)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_positions_are_of_the_first_of_equal_elements(axis):
    x = np.full((300, 1001), -np.inf, np.float32)
    for places in ((), ((299, 1000),), ((7, 1000), (8, 0)), ((120, 3), (7, 1000))):
        for place in places:
            x[place] = 1
        np.testing.assert_array_equal(tk.argmax(x, axis), np.argmax(x, axis))
        np.testing.assert_array_equal(tk.argmin(-x, axis), np.argmin(-x, axis))
    x[[40, 90], [0, 999]] = np.nan
    np.testing.assert_array_equal(tk.argmax(x, axis), np.argmax(x, axis))
    integers = np.full((70, 90), np.iinfo(np.int32).min, np.int32)
    np.testing.assert_array_equal(tk.argmax(integers, axis), np.argmax(integers, axis))


def test_results_may_have_any_strides():
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 7)).astype(np.float32)
    out = np.full((7, 5, 2, 2), np.nan, np.float32)[..., 1].transpose(2, 1, 0)
    tk.sum(x, 1, out=out)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-5, atol=1e-5)
    scattered = np.full((4, 10, 14), np.nan, np.float32)[::2, ::2, ::2]
    tk.max(x, 1, out=scattered)
    np.testing.assert_array_equal(scattered, x.max(1))


def test_integers_are_added_up_in_64_bits_and_mean_refuses_them():
    x = np.full((3, 1000), 2**31 - 1, np.int32)
    np.testing.assert_array_equal(tk.sum(x, 1), x.sum(1, dtype=np.int64))
    np.testing.assert_array_equal(tk.max(x, 1), x.max(1))
    with pytest.raises(TypeError, match="takes floats, not int32"):
        tk.mean(x)
    with pytest.raises(ValueError, match="named twice"):
        tk.sum(x, (1, -1))


@pytest.mark.each_value
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("shape", "axis"), [((5,), None), ((3, 1, 70), 2), ((4, 5, 6), 1), ((2, 3, 2, 3, 2), (0, 2, 4))]
)
def test_gradients_equal_those_of_the_formulas(name, shape, axis):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).requires_grad_()
    exact = x.detach().double().requires_grad_()
    y = getattr(tk, name)(x, axis)
    dy = torch.randn(y.shape, generator=generator)
    y.backward(dy)
    expected = getattr(tk, f"{name}_reference")(exact, axis)
    expected.backward(dy.double())
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(x.grad.double(), exact.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["sum", "max"])
def test_reductions_are_operators_of_torch(name):
    torch = pytest.importorskip("torch")
    x = torch.randn(3, 40, dtype=torch.bfloat16).requires_grad_()

    def function(x):
        return getattr(tk, name)(x, -1)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), function(x))
    expected = getattr(tk, f"{name}_reference")(x.detach().double(), -1)
    torch.testing.assert_close(function(x).double(), expected, rtol=1e-2, atol=1e-2)
