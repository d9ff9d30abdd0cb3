"""RMS norm against its formula in float64, and its gradients."""

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
from tilewright_kernels.rows.rms_norm import RMS_NORM, RMS_NORM_BACKWARD

SHAPES = [(1, 1), (3, 7), (2, 5, 1000), (0, 16)]


def arrays(shape, has_weight=True):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(shape[-1]) if has_weight else None
    return {"x": rng.standard_normal(shape), "weight": weight}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_weight", [False, True])
def test_rms_norm_equals_its_formula(shape, has_weight):
    check_operation(tk.rms_norm, tk.rms_norm_reference, arrays(shape, has_weight), {"eps": 1e-3})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rms_norm_of_narrow_types(dtype):
    check_operation(tk.rms_norm, tk.rms_norm_reference, arrays((2, 5, 1000)), dtype=dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_rms_norm_equal_those_of_its_formula(shape):
    pytest.importorskip("torch")
    check_gradients(tk.rms_norm, tk.rms_norm_reference, arrays(shape), rtol=1e-4, atol=1e-5)


def test_rms_norm_is_an_operator_of_torch():
    pytest.importorskip("torch")
    given = {name: each.astype(np.float32) for name, each in arrays((3, 40)).items()}
    check_operator(RMS_NORM, *given.values(), 1e-5)
    check_compiled(tk.rms_norm, arrays((3, 40)), {"eps": 1e-5}, wrt=("x", "weight"))


def test_kernels_of_rms_norm_compile_for_gpus():
    x, weight = (each.astype(np.float32) for each in arrays((8, 1000)).values())
    check_architectures(RMS_NORM, x, weight)
    check_architectures(RMS_NORM_BACKWARD, x, x, np.ones(8, np.float32), weight, 1e-6)
