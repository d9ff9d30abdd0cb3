"""Block-scaled matmuls whose scales, but not their results, exceed the range of f32."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

import tilewright as tw
import tilewright.language as tl

M, N, K, GROUP = 16, 8, 64, 32
#: Bits of elements that are 0, small, large and negative, of a type that holds them.
ELEMENTS = {
    "e4m3": np.array([0x00, 0x01, 0x38, 0x7E, 0xB8, 0xFE], np.uint8),
    "e5m2": np.array([0x00, 0x01, 0x3C, 0x7B, 0xBC, 0xFB], np.uint8),
    "e2m1": np.array([0x10, 0x75, 0xF2, 0x00, 0x9C, 0x77], np.uint8),
    "bf16": np.array([0, 2.0**-133, 1, -3, 2.0**100, -(2.0**-100)], bfloat16),
    "fp16": np.array([0, 2.0**-24, 1, -3, 65504, -0.125], np.float16),
}


@tw.jit
def product(
    a,
    sa,
    b,
    sb,
    c,
    FA: tl.constexpr,
    FB: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    BOTH: tl.constexpr,
):
    i, j, g = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 32)
    ka: tl.constexpr = K // 2 if FA == "e2m1" else K
    kb: tl.constexpr = K // 2 if FB == "e2m1" else K
    x = tl.load(a + i[:, None] * ka + tl.arange(0, ka)[None, :])
    y = tl.load(b + j[None, :] * kb + tl.arange(0, kb)[:, None])
    s = tl.load(sa + i[:, None] * (K // 32) + g[None, :])
    t = tl.load(sb + j[:, None] * (K // 32) + g[None, :]) if BOTH else None
    out = c + i[:, None] * N + j[None, :]
    tl.store(out, tl.dot_scaled(x, s, FA, y, t, FB, acc=tl.load(out)))


def elements(format_, rows, seed):
    columns = K // 2 if format_ == "e2m1" else K
    return np.random.default_rng(seed).choice(ELEMENTS[format_], (rows, columns))


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("e4m3", "e4m3"),
        ("e5m2", "e2m1"),
        ("e2m1", "e4m3"),
        ("bf16", "e4m3"),
        ("e5m2", "bf16"),
        ("fp16", "e2m1"),
    ],
)
@pytest.mark.parametrize(
    "exponents", [(127, 127), (254, 1), (1, 254), (0, 254), (240, 20), (0, 0), (255, 127)]
)
def test_scales_of_any_size_give_the_products_of_the_reference(left, right, exponents):
    a, b = elements(left, M, 0), elements(right, N, 1)
    rng = np.random.default_rng(2)
    both = right not in ("bf16", "fp16")
    sa, sb = (
        np.clip(e + rng.integers(-1, 2, (rows, K // GROUP)), 0, 255).astype(np.uint8)
        for e, rows in zip(exponents, (M, N), strict=True)
    )
    found, wanted = np.ones((M, N), np.float32), np.ones((M, N), np.float32)
    for backend, c in (("cpu", found), ("reference", wanted)):
        product[(1,)](a, sa, b, sb, c, left, right, M, N, K, both, backend=backend)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=float(scale) * 1e-6)


def test_one_scale_that_is_not_a_number_spoils_its_row_alone():
    a, b = elements("e4m3", M, 0), elements("e4m3", N, 1)
    sa, sb = np.full((M, 2), 127, np.uint8), np.full((N, 2), 127, np.uint8)
    sa[3, 1] = 255
    c = np.zeros((M, N), np.float32)
    product[(1,)](a, sa, b, sb, c, "e4m3", "e4m3", M, N, K, True, backend="cpu")
    assert np.isnan(c).all(axis=1).tolist() == [row == 3 for row in range(M)]
    assert np.isnan(c).sum() == N
