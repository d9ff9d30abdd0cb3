"""Cross entropy of a linear layer against its reference."""

from unittest.mock import patch

import numpy as np
import pytest
from checks import check_architectures, check_gradients, check_operation, check_operator

import tilewright_kernels as tk
from tilewright_kernels.linear import linear_cross_entropy as module

SETTINGS = [{}, {"reduction": "sum", "z_loss": 1e-2, "label_smoothing": 0.1, "ignore_index": 2}]


def arrays(shape, classes):
    rng = np.random.default_rng(0)
    target = rng.integers(0, classes, shape[:-1])
    target.reshape(-1)[::3] = 2
    return {
        "x": rng.standard_normal(shape),
        "weight": rng.standard_normal((classes, shape[-1])) / 3,
        "target": target,
    }


@pytest.mark.parametrize("settings", SETTINGS)
def test_linear_cross_entropy_in_chunks_and_its_gradients(settings):
    given = arrays((2, 5, 12), 70)
    functions = (tk.linear_cross_entropy, tk.linear_cross_entropy_reference)
    with patch.object(module, "_LOGITS_ON_CPU", 4 * 70):  # chunks of 4 rows
        check_operation(*functions, given, settings)
        check_gradients(*functions, given, settings, wrt=("x", "weight"), rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_linear_cross_entropy_of_narrow_types(dtype):
    given = arrays((9, 40), 33)
    functions = (tk.linear_cross_entropy, tk.linear_cross_entropy_reference)
    check_operation(*functions, given, dtype=dtype, layouts=("contiguous",))
    check_gradients(*functions, given, dtype=dtype, wrt=("x", "weight"), layouts=("contiguous",))


def test_linear_cross_entropy_refuses_what_does_not_fit():
    x, target = np.ones((3, 5), np.float32), np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="give mean or sum"):
        tk.linear_cross_entropy(x, x, target, reduction="none")
    with pytest.raises(ValueError, match=r"\(classes, columns\)"):
        tk.linear_cross_entropy(x, x[:, :2], target)


def test_linear_cross_entropy_is_an_operator_of_torch():
    pytest.importorskip("torch")
    x, target = np.ones((3, 40), np.float32), np.zeros(3, np.int64)
    check_operator(module.LINEAR_CROSS_ENTROPY, x, np.ones((7, 40), np.float32), target)


def test_kernels_of_linear_cross_entropy_compile_for_gpus():
    x, target = np.ones((64, 64), np.float16), np.zeros(64, np.int64)
    check_architectures(
        module.LINEAR_CROSS_ENTROPY, x, x, target, architectures=["sm_90a", "gfx942"]
    )
