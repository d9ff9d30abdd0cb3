"""Exponentials of what masks make."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl


@tw.jit
def exponentials(x_ptr, y_ptr, BASE_2: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, tl.exp2(x) if BASE_2 else tl.exp(x))


def exponentials_of(x, base_2=False):
    y = np.full_like(x, np.nan)
    exponentials[(x.size // 256,)](x, y, BASE_2=base_2, BLOCK=256, backend="cpu")
    return y


@pytest.mark.parametrize("base_2", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_below_the_smallest_number_they_are_zero(dtype, base_2):
    x = -np.geomspace(50, 1e30, 256 * 16).astype(dtype)
    x[:3] = -np.inf, -10000, -10001
    expected = (np.exp2 if base_2 else np.exp)(x)
    np.testing.assert_allclose(
        exponentials_of(x, base_2), expected, rtol=1e-6, atol=2 * np.finfo(dtype).smallest_subnormal
    )
