"""SwiGLU and GeGLU against their references."""

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
from tilewright_kernels.rows.geglu import GEGLU, GEGLU_BACKWARD
from tilewright_kernels.rows.swiglu import SWIGLU, SWIGLU_BACKWARD

FUNCTIONS = {
    "swiglu": (tk.swiglu, tk.swiglu_reference, {}),
    "geglu": (tk.geglu, tk.geglu_reference, {}),
    "geglu of erf": (tk.geglu, tk.geglu_reference, {"approximate": "none"}),
}


def arrays(shape):
    rng = np.random.default_rng(0)
    return {"gate": 2 * rng.standard_normal(shape), "up": rng.standard_normal(shape)}


@pytest.mark.parametrize("shape", [(1, 1), (2, 5, 1000), (0, 16), (3, 5000)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gated_activations_and_their_gradients(name, shape):
    function, reference, settings = FUNCTIONS[name]
    check_operation(function, reference, arrays(shape), settings)
    check_gradients(function, reference, arrays(shape), settings, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gated_activations_of_narrow_types(name, dtype):
    function, reference, settings = FUNCTIONS[name]
    check_operation(function, reference, arrays((3, 70)), settings, dtype=dtype)
    check_gradients(function, reference, arrays((3, 70)), settings, dtype=dtype, atol=0.03)


def test_gated_activations_refuse_what_does_not_fit():
    x = np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match="give arrays of one shape"):
        tk.swiglu(x, x[:2])
    with pytest.raises(ValueError, match="'tanh' or 'none'"):
        tk.geglu(x, x, approximate="relu")


def test_gated_activations_are_operators_of_torch():
    pytest.importorskip("torch")
    x = np.ones((3, 40), np.float32)
    check_operator(SWIGLU, x, x)
    check_operator(GEGLU, x, x, "none")
    check_compiled(tk.swiglu, arrays((3, 40)), wrt=("gate", "up"))


def test_kernels_of_gated_activations_compile_for_gpus():
    x = np.ones((8, 1000), np.float32)
    check_architectures(SWIGLU, x, x, architectures=["sm_90a", "gfx1201"])
    check_architectures(SWIGLU_BACKWARD, x, x, x, architectures=["gfx942"])
    check_architectures(GEGLU, x, x, "none", architectures=["gfx942"])
    check_architectures(GEGLU_BACKWARD, x, x, x, "tanh", architectures=["sm_90a", "gfx1100"])
