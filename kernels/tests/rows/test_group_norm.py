"""Group norm against its reference."""

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
from tilewright_kernels.rows.group_norm import GROUP_NORM, GROUP_NORM_BACKWARD

#: (shape, groups); the groups of the last but one are longer than a tile.
CASES = [((2, 6, 3, 5), 2), ((3, 4), 4), ((1, 4, 9001), 2), ((0, 4, 8), 2)]


def arrays(shape, has_weight=True, has_bias=True):
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal(shape) + 2,
        "weight": rng.standard_normal(shape[1]) if has_weight else None,
        "bias": rng.standard_normal(shape[1]) if has_bias else None,
    }


@pytest.mark.parametrize(("shape", "groups"), CASES)
def test_group_norm_and_its_gradients(shape, groups):
    settings = {"groups": groups, "eps": 1e-2}
    check_operation(tk.group_norm, tk.group_norm_reference, arrays(shape), settings)
    check_gradients(
        tk.group_norm, tk.group_norm_reference, arrays(shape), settings, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(("has_weight", "has_bias"), [(False, False), (True, False), (False, True)])
def test_group_norm_without_weight_or_bias(has_weight, has_bias):
    given, settings = arrays((2, 6, 7), has_weight, has_bias), {"groups": 3}
    check_operation(
        tk.group_norm, tk.group_norm_reference, given, settings, layouts=("contiguous",)
    )
    check_gradients(tk.group_norm, tk.group_norm_reference, given, settings, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_group_norm_of_narrow_types(dtype):
    given, settings = arrays((2, 6, 30)), {"groups": 3}
    check_operation(tk.group_norm, tk.group_norm_reference, given, settings, dtype=dtype, atol=0.02)
    check_gradients(tk.group_norm, tk.group_norm_reference, given, settings, dtype=dtype, atol=0.06)


def test_group_norm_refuses_what_does_not_fit():
    x = np.ones((2, 6, 4), np.float32)
    with pytest.raises(ValueError, match="divisible by the 4 groups"):
        tk.group_norm(x, 4)
    with pytest.raises(ValueError, match="each of the 6 channels"):
        tk.group_norm(x, 3, np.ones(3, np.float32))


def test_group_norm_is_an_operator_of_torch():
    pytest.importorskip("torch")
    given = {name: each.astype(np.float32) for name, each in arrays((2, 6, 7)).items()}
    check_operator(GROUP_NORM, given["x"], 3, given["weight"], given["bias"])
    check_compiled(tk.group_norm, arrays((2, 6, 7)), {"groups": 3}, wrt=("x", "weight", "bias"))


def test_kernels_of_group_norm_compile_for_gpus():
    x, weight, rows = (np.ones(shape, np.float32) for shape in [(2, 64, 100), (64,), (2, 8)])
    check_architectures(GROUP_NORM, x, 8, weight, weight)
    check_architectures(
        GROUP_NORM_BACKWARD, x, x, rows, rows, 8, weight, True, architectures=["sm_90a", "gfx942"]
    )
