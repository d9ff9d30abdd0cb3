"""Rows divided by their Euclidean norms, and the gradients."""

import numpy as np
import pytest
from checks import check_gradients, check_operation, check_operator

import tilewright_kernels as tk
from tilewright_kernels.rows.l2_norm import L2_NORM


@pytest.mark.parametrize("shape", [(3, 2, 7), (1, 1), (40, 130), (0, 4), (2, 33000)])
def test_norms_and_gradients_equal_their_formula(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    layouts = ("contiguous", "columns") if len(shape) == 3 else ("contiguous",)
    check_operation(tk.l2_norm, tk.l2_norm_reference, {"x": x}, {"eps": 0.1}, layouts=layouts)
    check_gradients(tk.l2_norm, tk.l2_norm_reference, {"x": x}, layouts=layouts)


def test_types_and_operator():
    x = np.random.default_rng(0).standard_normal((5, 24))
    for dtype in ("float16", "bfloat16"):
        check_operation(tk.l2_norm, tk.l2_norm_reference, {"x": x}, dtype=dtype)
    check_operator(L2_NORM, x.astype(np.float32))
