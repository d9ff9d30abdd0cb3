"""Layer norm against its reference."""

import numpy as np
import pytest
from checks import (
    check_architectures,
    check_compiled,
    check_gradients,
    check_operation,
    check_operator,
)

import tilewright_kernels as tk
from tilewright_kernels.rows.layer_norm import LAYER_NORM, LAYER_NORM_BACKWARD

#: The last is longer than a whole row's tile.
SHAPES = [(3, 1), (2, 5, 1000), (0, 16), (2, 131101)]


def arrays(shape, has_weight=True, has_bias=True):
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal(shape) + 3,
        "weight": rng.standard_normal(shape[-1]) if has_weight else None,
        "bias": rng.standard_normal(shape[-1]) if has_bias else None,
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm_and_its_gradients(shape):
    given = arrays(shape)
    check_operation(tk.layer_norm, tk.layer_norm_reference, given)
    check_gradients(tk.layer_norm, tk.layer_norm_reference, given, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", [9, 131101])
@pytest.mark.parametrize(("has_weight", "has_bias"), [(False, False), (True, False), (False, True)])
def test_layer_norm_without_weight_or_bias(has_weight, has_bias, columns):
    given = arrays((3, columns), has_weight, has_bias)
    layouts = ("contiguous",)
    check_operation(tk.layer_norm, tk.layer_norm_reference, given, layouts=layouts)
    check_gradients(
        tk.layer_norm, tk.layer_norm_reference, given, layouts=layouts, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_layer_norm_of_narrow_types(dtype):
    given = arrays((5, 100))
    check_operation(tk.layer_norm, tk.layer_norm_reference, given, dtype=dtype, atol=0.02)
    check_gradients(tk.layer_norm, tk.layer_norm_reference, given, dtype=dtype, atol=0.05)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_gradients_of_many_rows_are_rounded_once(dtype):
    """Sums over rows are taken in float32, unlike PyTorch's on CPUs."""
    torch = pytest.importorskip("torch")
    generator, narrow = torch.Generator().manual_seed(0), getattr(torch, dtype)
    x, weight, bias, dy = (
        torch.randn(shape, generator=generator).to(narrow)
        for shape in ((4096, 40), (40,), (40,), (4096, 40))
    )
    given = [each.requires_grad_() for each in (x, weight, bias)]
    found = torch.autograd.grad(tk.layer_norm(*given), given, dy)
    exact = [each.detach().double().requires_grad_() for each in given]
    y = torch.nn.functional.layer_norm(exact[0], (40,), *exact[1:])
    for result, expected in zip(found, torch.autograd.grad(y, exact, dy.double()), strict=True):
        torch.testing.assert_close(
            result.double(), expected, rtol=0.51 * torch.finfo(narrow).eps, atol=1e-3
        )


def test_layer_norm_refuses_weights_that_do_not_fit():
    with pytest.raises(ValueError, match="an element for each column"):
        tk.layer_norm(np.ones((3, 4), np.float32), None, np.ones(5, np.float32))


def test_layer_norm_is_an_operator_of_torch():
    pytest.importorskip("torch")
    given = {name: each.astype(np.float32) for name, each in arrays((3, 40)).items()}
    check_operator(LAYER_NORM, *given.values(), 1e-5)
    check_compiled(tk.layer_norm, arrays((3, 40)), wrt=("x", "weight", "bias"))


def test_kernels_of_layer_norm_compile_for_gpus():
    for columns, architectures in ((1000, ["sm_90a", "gfx1100"]), (131101, ["gfx942", "gfx1201"])):
        x, weight = np.ones((8, columns), np.float32), np.ones(columns, np.float32)
        rows = np.ones(8, np.float32)
        check_architectures(LAYER_NORM, x, weight, weight, architectures=architectures)
        check_architectures(
            LAYER_NORM_BACKWARD,
            *(x, x, rows, rows, weight, weight, 1e-5),
            architectures=architectures[:1],
        )
