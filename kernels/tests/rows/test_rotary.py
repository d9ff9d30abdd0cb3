"""Rotary embedding against its reference."""

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
from tilewright_kernels.rows.rotary import ROTARY

#: (shape of x, pairs of a head)
CASES = [((5, 3, 8), 4), ((2, 5, 3, 8), 3), ((2, 7, 33, 64), 32), ((0, 4, 8), 4), ((3, 2, 96), 48)]


def arrays(shape, half, batched=False):
    rng = np.random.default_rng(0)
    angles = 3 * rng.standard_normal((*shape[:-2], half) if batched else (shape[-3], half))
    return {"x": rng.standard_normal(shape), "cos": np.cos(angles), "sin": np.sin(angles)}


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("shape", "half"), CASES)
def test_rotary_and_its_gradient(shape, half, interleaved):
    settings = {"interleaved": interleaved}
    check_operation(tk.rotary, tk.rotary_reference, arrays(shape, half), settings)
    given = arrays(shape, half, batched=True)
    check_gradients(tk.rotary, tk.rotary_reference, given, settings, wrt=("x",))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rotary_of_narrow_types(dtype, interleaved):
    settings = {"interleaved": interleaved}
    given = arrays((5, 3, 8), 4)
    check_operation(tk.rotary, tk.rotary_reference, given, settings, dtype=dtype)
    check_gradients(tk.rotary, tk.rotary_reference, given, settings, dtype=dtype, wrt=("x",))


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_in_place_and_back(interleaved):
    given = {name: each.astype(np.float32) for name, each in arrays((2, 7, 33, 64), 20).items()}
    x, settings = given["x"].copy(), {"interleaved": interleaved}
    expected = tk.rotary(**given, **settings)
    assert tk.rotary(x, given["cos"], given["sin"], **settings, out=x) is x
    np.testing.assert_array_equal(x, expected)
    tk.rotary(x, given["cos"], given["sin"], **settings, inverse=True, out=x)
    np.testing.assert_allclose(x, given["x"], atol=1e-6)


def test_rotary_refuses_shapes_that_do_not_fit():
    x, angles = np.ones((5, 3, 8), np.float32), np.ones((5, 4), np.float32)
    with pytest.raises(ValueError, match="axes"):
        tk.rotary(x[0], angles, angles)
    with pytest.raises(ValueError, match="cos and sin have the shapes"):
        tk.rotary(x, angles[:4], angles[:4])
    with pytest.raises(ValueError, match="once for each pair"):
        tk.rotary(x, np.concatenate([angles] * 2, 1), np.concatenate([angles] * 2, 1))


def test_rotary_is_an_operator_of_torch():
    pytest.importorskip("torch")
    given = {name: each.astype(np.float32) for name, each in arrays((5, 3, 8), 4).items()}
    check_operator(ROTARY, *given.values(), True, False)
    check_compiled(tk.rotary, arrays((5, 3, 8), 4), wrt=("x",))


def test_kernels_of_rotary_compile_for_gpus():
    x, angles = np.ones((5, 8, 64), np.float32), np.ones((5, 32), np.float32)
    for interleaved in (False, True):
        check_architectures(ROTARY, x, angles, angles, interleaved)
