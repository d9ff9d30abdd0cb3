"""Matmuls with quantized results against their twin in float64."""

import checks
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
import tilewright_kernels as tk
from tilewright_kernels.linear.epilogues.quantization_epilogue import MATMUL_QUANTIZED

#: Type -> the largest error of an element by its scale, relative and absolute.
ROUNDING = {
    "float8_e4m3fn": (2.0**-4, 2.0**-9),
    "float8_e5m2": (2.0**-3, 2.0**-16),
    "int8": (0, 0.5),
}


@tw.jit
def hat(x):
    """A function whose maximum is at 0, the accumulator of columns that are not there."""
    return 4.0 - tl.minimum(tl.abs(x), 4.0)


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def check(found, expected, dtype):
    (q, scales), (exact, exact_scales) = found, expected
    np.testing.assert_allclose(scales, exact_scales, rtol=1e-4)
    relative, absolute = ROUNDING[dtype]
    np.testing.assert_allclose(q.astype(np.float64), exact, rtol=relative, atol=absolute + 1e-3)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("m, n, block", [(33, 200, 64), (1, 128, 128), (5, 40, 256)])
def test_scales_of_blocks(dtype, m, n, block):
    a, b, bias = drawn(m, 70), drawn(70, n), drawn(n)
    a[0] = 0
    for options in ({}, {"activation": hat}, {"invariant": True}):
        bias = None if options else bias
        found = tk.matmul_quantized(a, b, bias, block=block, dtype=dtype, **options)
        assert found[1].shape == (m, -(-n // block))
        options.pop("invariant", None)
        exact = (None if each is None else each.astype(np.float64) for each in (a, b, bias))
        expected = tk.matmul_quantized_reference(*exact, block=block, dtype=dtype, **options)
        check(found, expected, dtype)


def test_results_are_stored_to_given_arrays():
    a, b = drawn(2, 9, 30), drawn(30, 100)
    expected = tk.matmul_quantized_reference(a, b, block=32, dtype="int8")
    out = np.full((2, 9, 100), 77, np.int8), np.full((2, 9, 4), np.nan, np.float32)
    found = tk.matmul_quantized(a, b, block=32, dtype="int8", out=out)
    assert found[0] is out[0] and found[1] is out[1]
    check(out, expected, "int8")


@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_given_scale(dtype):
    a, b, scale = drawn(20, 30), drawn(30, 40), np.float32([0.25])
    q, same = tk.matmul_quantized(a, b, scale=scale, dtype=dtype)
    assert same is scale
    check((q, scale), (a.astype(np.float64) @ b / 0.25, scale), dtype)
    with tk.use_references():
        twin, same = tk.matmul_quantized(a, b, scale=scale, dtype=dtype)
        assert same is scale and twin.dtype == q.dtype
        close = np.abs(twin.astype(np.float32) - q.astype(np.float32)) <= np.abs(q) * 0.26
        assert close.all() and (twin == q).mean() > 0.98
        twin, scales = tk.matmul_quantized(a, b, dtype=dtype, activation=hat)
        assert twin.dtype == q.dtype and scales.shape == (20, 1)


def test_elements_beyond_the_range_become_its_ends():
    a, scale = np.float32([[1.0], [-1.0]]), np.float32([1e-3])
    for dtype, end in (("int8", 127), ("float8_e4m3fn", 448)):
        q, _ = tk.matmul_quantized(a, np.ones((1, 3), np.float32), scale=scale, dtype=dtype)
        np.testing.assert_array_equal(q.astype(np.float32), [[end] * 3, [-end] * 3])


def test_a_chain_of_quantized_matmuls():
    x, w1, w2 = drawn(16, 128), drawn(128, 256), drawn(256, 128)
    hidden, scales = tk.matmul_quantized(x, w1, activation=hat)
    weight, weight_scale = tk.quantize(w2, (128, 128))
    found = tk.scaled_matmul(hidden, weight, scales, weight_scale, out_dtype="float32")
    expected = (4 - np.minimum(np.abs(x @ w1), 4)) @ w2
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


def test_wrong_arguments_are_refused():
    a, b = drawn(3, 4), drawn(4, 5)
    with pytest.raises(ValueError, match="power of two"):
        tk.matmul_quantized(a, b, block=100)
    with pytest.raises(ValueError, match="dtype must be one of"):
        tk.matmul_quantized(a, b, dtype="float16")
    with pytest.raises(ValueError, match="must be a matrix"):
        tk.matmul_quantized(a[None], b[None])


@pytest.mark.slow
def test_operator():
    pytest.importorskip("torch")
    a, b = drawn(3, 32), drawn(32, 40)
    checks.check_operator(MATMUL_QUANTIZED, a, b, None, None, hat, 32, "int8")


@pytest.mark.slow
def test_architectures():
    a, b = drawn(256, 512).astype(np.float16), drawn(256, 512).astype(np.float16).T
    checks.check_architectures(MATMUL_QUANTIZED, a, b, activation=hat)
