"""A matmul of normalized rows against its twin in float64, and its gradients."""

import checks
import numpy as np
import pytest

import tilewright_kernels as tk
from tilewright_kernels.linear.epilogues.rms_norm_matmul import RSTD
from tilewright_kernels.rows import shapes


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(21, 70), (2, 3, 40), (1, 8)])
def test_results_equal_the_twin(dtype, shape):
    arrays = {"x": 0.1 * drawn(*shape), "w": drawn(shape[-1], 24)}
    checks.check_operation(
        tk.rms_norm_matmul, tk.rms_norm_matmul_reference, arrays, {"eps": 1e-3},
        dtype=dtype, rtol=5e-3 if dtype == "float16" else 1e-4, atol=1e-2,
    )  # fmt: skip


@pytest.mark.parametrize("is_wide", [False, True])
def test_gradients_equal_those_of_the_twin(is_wide, monkeypatch):
    if is_wide:
        monkeypatch.setattr(shapes, "MAX_WHOLE_ROW_ON_CPU", 16)
        monkeypatch.setattr(shapes, "_WIDE_BLOCK", 32)
    arrays = {"x": drawn(2, 9, 70), "w": drawn(70, 24)}
    checks.check_gradients(
        tk.rms_norm_matmul, tk.rms_norm_matmul_reference, arrays, rtol=1e-4, atol=1e-4
    )


def test_invariant_rows_and_no_rows():
    x, w = (each.astype(np.float32) for each in (drawn(40, 64), drawn(64, 12)))
    whole = tk.rms_norm_matmul(x, w, invariant=True)
    np.testing.assert_array_equal(tk.rms_norm_matmul(x[:1], w, invariant=True), whole[:1])
    assert tk.rms_norm_matmul(x[:0], w).shape == (0, 12)
    with pytest.raises(ValueError, match="w must be a matrix"):
        tk.rms_norm_matmul(x, w[0])


@pytest.mark.slow
def test_operator():
    pytest.importorskip("torch")
    checks.check_operator(RSTD, drawn(3, 32).astype(np.float32), 1e-6)
    checks.check_architectures(RSTD, drawn(64, 512).astype(np.float16), 1e-6)
