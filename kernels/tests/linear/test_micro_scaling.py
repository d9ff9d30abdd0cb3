"""Micro-scaling formats: quantization by the OCP's rules, and matmuls against exact products."""

import ml_dtypes
import numpy as np
import pytest
from checks import (
    FRAMEWORKS,
    check_architectures,
    check_compiled,
    check_operator,
    to_framework,
    to_numpy,
)

import tilewright_kernels as tk
from tilewright_kernels.linear.micro_scaled_matmul import MICRO_SCALED_MATMUL
from tilewright_kernels.linear.micro_scaling import FORMATS, QUANTIZE_MX

MX = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1")


def codes_of(q):
    """Return the 4-bit elements of bytes, the low half first."""
    return np.stack([q & 15, q >> 4], 2).reshape(q.shape[0], 2 * q.shape[1])


def values_of(q, dtype):
    """Return elements in float64, by ml_dtypes."""
    if dtype != "float4_e2m1":
        return q.astype(np.float64)
    return codes_of(q).astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def scales_of(scale):
    return np.asarray(scale).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)


def dequantized(q, scale, dtype):
    return values_of(q, dtype) * np.repeat(scales_of(scale), 32, 1)


def drawn(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 30, (shape[0], 1))).astype(
        np.float32
    )


def quantized_by_rules(x, dtype):
    """Return elements and scales by the specification, with ml_dtypes' rounding."""
    _, emax, maximum = FORMATS[dtype]
    x = x.astype(np.float64)
    blocks = x.reshape(x.shape[0], x.shape[1] // 32, 32)
    largest = np.abs(blocks).max(2)
    exponents = np.where(largest > 0, np.frexp(largest)[1] - 1 - emax, -127).clip(-127, 127)
    quotients = (blocks / np.exp2(exponents)[:, :, None]).reshape(x.shape).clip(-maximum, maximum)
    type_ = getattr(ml_dtypes, dtype.replace("e2m1", "e2m1fn"))
    return quotients.astype(type_).astype(np.float64), (exponents + 127).astype(np.uint8)


@pytest.mark.parametrize("dtype", MX)
@pytest.mark.parametrize("shape", [(5, 64), (19, 352), (1, 32), (0, 64)])
def test_quantization_follows_the_specification(shape, dtype):
    x = drawn(*shape)
    if shape[0] > 3:
        x[1, :32], x[2, 40], x[3, 32:64] = 0, 2.0**-140, np.exp2(np.arange(32) - 31)
    q, scale = tk.quantize_mx(x, dtype)
    expected, scales = quantized_by_rules(x, dtype)
    np.testing.assert_array_equal(scale, scales)
    np.testing.assert_array_equal(values_of(q, dtype), expected)


@pytest.mark.parametrize("dtype", MX)
def test_ties_round_to_even_and_large_ones_saturate(dtype):
    """Blocks of all halves between two numbers of the type, below the largest number and above."""
    type_ = getattr(ml_dtypes, dtype.replace("e2m1", "e2m1fn"))
    bits = np.arange(2 ** (4 if dtype == "float4_e2m1" else 8)).astype(np.uint8)
    numbers = bits.view(type_).astype(np.float64)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    halves = np.concatenate([(numbers[1:] + numbers[:-1]) / 2, numbers])
    _, emax, _ = FORMATS[dtype]
    x = np.full((-(-halves.size // 31), 32), 1.999 * 2.0**emax, np.float32)
    x[:, 1:].flat[: halves.size] = halves
    q, scale = tk.quantize_mx(x, dtype)
    assert (scale == 127).all()
    np.testing.assert_array_equal(values_of(q, dtype), quantized_by_rules(x, dtype)[0])


def test_blocks_of_what_is_no_number_have_such_a_scale():
    x = np.ones((2, 64), np.float32)
    x[0, 3], x[1, 40] = np.inf, np.nan
    _, scale = tk.quantize_mx(x, "float4_e2m1")
    np.testing.assert_array_equal(scale, [[255, 125], [125, 255]])


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_quantization_takes_all_types_and_strides(framework, dtype):
    x = (
        np.random.default_rng(1)
        .standard_normal((6, 64))
        .astype(getattr(ml_dtypes, dtype, None) or dtype)
    )
    expected = quantized_by_rules(x, "float8_e4m3fn")
    for layout in ("contiguous", "rows", "columns", "transposed"):
        if framework == "jax" and layout != "contiguous":
            continue
        q, scale = tk.quantize_mx(to_framework(x, framework, layout))
        q = q.float() if framework == "torch" else np.asarray(q).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(q), expected[0])
        np.testing.assert_array_equal(np.asarray(scale), expected[1])


@pytest.mark.parametrize("b_dtype", MX)
@pytest.mark.parametrize("a_dtype", MX)
def test_matmul_of_each_pair_of_formats(a_dtype, b_dtype):
    m, n, k = 21, 37, 160
    a, a_scale = tk.quantize_mx(drawn(m, k, seed=2), a_dtype)
    b, b_scale = tk.quantize_mx(drawn(n, k, seed=3), b_dtype)
    bias = np.random.default_rng(4).standard_normal(n).astype(np.float32)
    out = np.full((m, n), np.nan, np.float32)
    tk.scaled_matmul(a, b.T, a_scale, b_scale.T, bias, out_dtype="float32", out=out)
    left, right = dequantized(a, a_scale, a_dtype), dequantized(b, b_scale, b_dtype)
    expected = left @ right.T + bias
    bound = np.abs(left) @ np.abs(right).T + np.abs(bias)
    assert (np.abs(out - expected) <= 1e-5 * bound).all()
    found = tk.scaled_matmul_reference(a, b.T, a_scale, b_scale.T, bias)
    assert (np.abs(found - expected) <= 1e-5 * bound).all()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_scales_may_have_their_type(framework):
    a, a_scale = tk.quantize_mx(drawn(4, 64, seed=5), "float4_e2m1")
    b, b_scale = tk.quantize_mx(drawn(8, 64, seed=6))
    expected = tk.scaled_matmul(a, b.T, a_scale, b_scale.T, out_dtype="float32")
    scales = [each.view(ml_dtypes.float8_e8m0fnu) for each in (a_scale, b_scale)]
    given = [to_framework(each, framework) for each in (a, b, *scales)]
    found = tk.scaled_matmul(given[0], given[1].T, given[2], given[3].T, out_dtype="float32")
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("dtype", MX)
def test_references_take_the_place_of_kernels(framework, dtype):
    x = np.random.default_rng(7).standard_normal((6, 96)).astype(np.float32)
    q, scale = tk.quantize_mx(x, dtype)
    expected = tk.scaled_matmul(q, q.T, scale, scale.T)
    with tk.use_references():
        found = tk.quantize_mx(to_framework(x, framework), dtype)
        c = tk.scaled_matmul(found[0], found[0].T, found[1], found[1].T)
    np.testing.assert_array_equal(to_numpy(found[0]), to_numpy(q))
    np.testing.assert_array_equal(to_numpy(found[1]), scale)
    assert str(c.dtype).endswith("bfloat16")
    np.testing.assert_allclose(to_numpy(c), to_numpy(expected), rtol=1e-2, atol=1e-2)


def test_empty_matrices_and_wrong_arguments():
    a, a_scale = tk.quantize_mx(np.ones((0, 32), np.float32))
    b, b_scale = tk.quantize_mx(np.ones((4, 32), np.float32))
    assert tk.scaled_matmul(a, b.T, a_scale, b_scale.T).shape == (0, 4)
    with pytest.raises(ValueError, match="a multiple of 32 columns"):
        tk.quantize_mx(np.ones((4, 33), np.float32))
    with pytest.raises(ValueError, match="dtype must be one of"):
        tk.quantize_mx(np.ones((4, 32), np.float32), "int8")
    with pytest.raises(ValueError, match="b_scale has the shape"):
        tk.scaled_matmul(b, b.T, b_scale, b_scale)
    with pytest.raises(TypeError, match="operands with scales of bytes"):
        tk.scaled_matmul(np.ones((4, 32), np.int8), b.T, b_scale, b_scale.T)
    with pytest.raises(TypeError, match="must be as the other scale"):
        tk.scaled_matmul(b, b.T, b_scale, b_scale.T.astype(np.float32))


def test_operators_of_torch():
    pytest.importorskip("torch")
    check_operator(QUANTIZE_MX, np.ones((3, 64), np.float32), "float4_e2m1")
    q, scale = np.ones((4, 32), np.uint8), np.full((4, 2), 127, np.uint8)
    check_operator(MICRO_SCALED_MATMUL, q, q.T, scale, scale.T, None, "float32")
    check_compiled(
        lambda x: tk.scaled_matmul(*(both := tk.quantize_mx(x))[:1], both[0].T, both[1], both[1].T),
        {"x": np.ones((4, 64))},
    )


@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a", "gfx942", "gfx950", "gfx1100"])
def test_kernels_compile_for_gpus(architecture):
    x = np.ones((128, 256), np.float16)
    check_architectures(QUANTIZE_MX, x, "float4_e2m1", architectures=[architecture])
    a, scale = np.ones((128, 256), ml_dtypes.float8_e4m3fn), np.ones((128, 8), np.uint8)
    packed = np.ones((128, 128), np.uint8)
    for left, right in ((a, a.T), (packed, packed.T)):
        check_architectures(
            MICRO_SCALED_MATMUL, left, right, scale, scale.T, None, "bfloat16",
            architectures=[architecture],
        )  # fmt: skip
