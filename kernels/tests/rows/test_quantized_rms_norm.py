"""Quantized RMS norm against its reference."""

import numpy as np
import pytest
from checks import check_architectures, check_operator

import tilewright_kernels as tk
from tilewright_kernels.rows.quantized_rms_norm import RMS_NORM_QUANTIZED


@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 1000), (0, 16), (2, 131101)])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
def test_rms_norm_quantized(shape, dtype):
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(each).astype(np.float32) for each in (shape, shape[-1]))
    found, scale = tk.rms_norm_quantized(x, weight, dtype=dtype, offset=1.0)
    expected, expected_scale = tk.rms_norm_quantized_reference(
        x.astype(np.float64), weight.astype(np.float64), dtype, offset=1.0
    )
    assert str(found.dtype) == dtype
    np.testing.assert_allclose(scale, expected_scale, rtol=1e-5)
    step = 0.5 if dtype == "int8" else np.maximum(np.abs(expected) / 16, 2.0**-10)
    assert (np.abs(found.astype(np.float64) - expected) <= 1.001 * step).all()


def test_rows_of_zeros_have_a_scale():
    found, scale = tk.rms_norm_quantized(np.zeros((2, 8), np.float16), dtype="int8")
    assert not found.any() and (scale > 0).all()


def test_rms_norm_quantized_refuses_other_types():
    with pytest.raises(ValueError, match="float8_e4m3fn, int8"):
        tk.rms_norm_quantized(np.ones((2, 8), np.float32), dtype="int16")


def test_rms_norm_quantized_is_an_operator_of_torch():
    pytest.importorskip("torch")
    check_operator(RMS_NORM_QUANTIZED, np.ones((3, 40), np.float32), None, "int8")


def test_kernels_of_rms_norm_quantized_compile_for_gpus():
    x = np.ones((8, 1000), np.float16)
    check_architectures(RMS_NORM_QUANTIZED, x, None, "int8", architectures=["gfx1100"])
    check_architectures(RMS_NORM_QUANTIZED, x, None, architectures=["sm_90a", "gfx1201"])
