"""Softmax and log-softmax against their references."""

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
from tilewright_kernels.rows.softmax import (
    LOG_SOFTMAX,
    LOG_SOFTMAX_BACKWARD,
    SOFTMAX,
    SOFTMAX_BACKWARD,
)

FUNCTIONS = [(tk.softmax, tk.softmax_reference), (tk.log_softmax, tk.log_softmax_reference)]
#: The last is longer than a whole row's tile.
SHAPES = [(1, 1), (3, 7), (2, 5, 1000), (0, 16), (2, 131101)]


def arrays(shape):
    return {"x": 3 * np.random.default_rng(0).standard_normal(shape)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("function", "reference"), FUNCTIONS)
def test_softmax_and_its_gradients(function, reference, shape):
    check_operation(function, reference, arrays(shape))
    check_gradients(function, reference, arrays(shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("function", "reference"), FUNCTIONS)
def test_softmax_of_narrow_types(function, reference, dtype):
    check_operation(function, reference, arrays((5, 100)), dtype=dtype)
    check_gradients(function, reference, arrays((5, 100)), dtype=dtype, atol=0.05)


@pytest.mark.parametrize("columns", [5, 131101])
def test_softmax_of_rows_with_infinities(columns):
    x = np.random.default_rng(0).standard_normal((2, columns)).astype(np.float32)
    x[0, 1:] = -np.inf
    x[1, ::2] = -np.inf
    np.testing.assert_allclose(tk.softmax(x), tk.softmax_reference(x), rtol=1e-5)


def test_softmax_is_an_operator_of_torch():
    pytest.importorskip("torch")
    for operation in (SOFTMAX, LOG_SOFTMAX):
        check_operator(operation, np.ones((3, 40), np.float32))
    check_compiled(tk.softmax, arrays((3, 40)), wrt=("x",))


@pytest.mark.parametrize("columns", [100, 8000, 131101])
def test_kernels_of_softmax_compile_for_gpus(columns):
    x = np.ones((8, columns), np.float32)
    check_architectures(SOFTMAX, x, architectures=["sm_90a", "gfx942"])
    check_architectures(LOG_SOFTMAX_BACKWARD, x, x, architectures=["gfx1100"])
    check_architectures(SOFTMAX_BACKWARD, x, x, architectures=["gfx1201"])
