"""The vector instructions of a division, alone and in the sequences of LLVM, against quotients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from wave_kernels import WAVE32, WAVE64, execute, lanes

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("target", [*WAVE64, *WAVE32])
def test_division_of_f32_and_f64_by_its_steps(target: str) -> None:
    """The instructions that LLVM divides with give the rounded quotient; the sequence is that of
    its documentation."""
    mask = "vcc" if lanes(target) == 64 else "vcc_lo"
    other = "s[8:9]" if lanes(target) == 64 else "s8"
    lines = f"""v_div_scale_f32 v3, {other}, v2, v2, v1
v_rcp_f32_e32 v4, v3
v_fma_f32 v5, -v3, v4, 1.0
v_fma_f32 v4, v5, v4, v4
v_div_scale_f32 v6, {mask}, v1, v2, v1
v_mul_f32_e32 v7, v6, v4
v_fma_f32 v8, -v3, v7, v6
v_fma_f32 v7, v8, v4, v7
v_fma_f32 v8, -v3, v7, v6
v_div_fmas_f32 v8, v8, v4, v7
v_div_fixup_f32 v8, v8, v2, v1"""
    width = lanes(target)
    rng = np.random.default_rng(11)
    x, y = (
        (rng.standard_normal(width) * np.exp2(rng.integers(-120, 120, width))).astype(np.float32)
        for _ in range(2)
    )
    x[:6], y[:6] = [0, 1, np.inf, 1e-42, 3e38, -5], [0, 0, np.inf, 3e-40, 1e-30, 1e-41]
    (out,) = execute(target, lines, {1: x, 2: y}, [8])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out.view(np.float32), x / y)


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_a_quotient_below_the_normal_numbers_is_rounded_once(target: str) -> None:
    """The last step of a division scales: what it gives is the exact sum, scaled, and rounded to
    what the subnormal numbers hold."""
    mask = "s_mov_b64 vcc, -1" if lanes(target) == 64 else "s_mov_b32 vcc_lo, -1"
    count = np.arange(lanes(target))
    # halfway between two subnormal numbers, but for a product that is too small to show in the sum
    z = ((2**18 + count + 0.5) * 2.0**-85).astype(np.float32)
    x, y = (
        np.where(count & 2, 2.0**-60, -(2.0**-60)).astype(np.float32),
        np.full(lanes(target), 2.0**-50, np.float32),
    )
    (out,) = execute(target, f"{mask}\nv_div_fmas_f32 v4, v1, v2, v3", {1: x, 2: y, 3: z}, [4])
    expected = (2**18 + count + np.where(count & 2, 1, 0)) * 2.0**-149
    np.testing.assert_array_equal(out.view(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_division_of_f64_where_quotients_stop_being_normal(target: str) -> None:
    mask, other = ("vcc", "s[8:9]") if lanes(target) == 64 else ("vcc_lo", "s8")
    lines = f"""v_div_scale_f64 v[4:5], {other}, v[2:3], v[2:3], v[0:1]
v_rcp_f64_e32 v[6:7], v[4:5]
v_fma_f64 v[8:9], -v[4:5], v[6:7], 1.0
v_fma_f64 v[6:7], v[6:7], v[8:9], v[6:7]
v_fma_f64 v[8:9], -v[4:5], v[6:7], 1.0
v_fma_f64 v[6:7], v[6:7], v[8:9], v[6:7]
v_div_scale_f64 v[8:9], {mask}, v[0:1], v[2:3], v[0:1]
v_mul_f64_e32 v[10:11], v[8:9], v[6:7]
v_fma_f64 v[4:5], -v[4:5], v[10:11], v[8:9]
v_div_fmas_f64 v[4:5], v[4:5], v[6:7], v[10:11]
v_div_fixup_f64 v[0:1], v[4:5], v[2:3], v[0:1]"""
    rng = np.random.default_rng(5)
    for exponent in (-1024, -1023, -1022, -1021):
        for _ in range(8):
            y = np.ldexp(1 + rng.random(lanes(target)), rng.integers(-300, 300, lanes(target)))
            x = y * np.ldexp(1 + rng.random(lanes(target)), exponent)
            words = {
                2 * i + half: value.view(np.uint32)[half::2]
                for i, value in enumerate((x, y))
                for half in (0, 1)
            }
            low, high = execute(target, lines, words, [0, 1])
            np.testing.assert_array_equal(
                (high.astype(np.uint64) << np.uint64(32) | low).view(np.float64), x / y
            )


@pytest.mark.parametrize(
    ("top", "bottom", "scaled"), [(1.25, 1.5, True), (1.5, 1.25, False), (1.5, 1.5, False)]
)
def test_a_numerator_is_scaled_where_the_exact_quotient_is_subnormal(
    top: float, bottom: float, scaled: bool
) -> None:
    x, y = np.full(32, np.ldexp(top, -900)), np.full(32, np.ldexp(bottom, 122))
    words = {
        2 * i + half: value.view(np.uint32)[half::2]
        for i, value in enumerate((x, y))
        for half in (0, 1)
    }
    low, high, flags = execute(
        "gfx1201",
        "v_div_scale_f64 v[4:5], vcc_lo, v[0:1], v[2:3], v[0:1]\nv_mov_b32 v6, vcc_lo",
        words,
        [4, 5, 6],
    )
    found = (high.astype(np.uint64) << np.uint64(32) | low).view(np.float64)
    np.testing.assert_array_equal(found, x * 2.0**128 if scaled else x)
    assert (flags == (0xFFFFFFFF if scaled else 0)).all()


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("bits", [47, 51])
def test_a_quotient_of_f64_below_the_normal_numbers_is_rounded_once(target: str, bits: int) -> None:
    mask = "s_mov_b64 vcc, -1" if lanes(target) == 64 else "s_mov_b32 vcc_lo, -1"
    count = np.arange(lanes(target))
    z = (2.0**bits + count + 0.5) * 2.0 ** (128 - 1074)
    x, y = np.where(count & 2, 2.0**-900, -(2.0**-900)), np.full(lanes(target), 2.0**-120)
    words = {
        1 + 2 * i + half: value.view(np.uint32)[half::2]
        for i, value in enumerate((x, y, z))
        for half in (0, 1)
    }
    low, high = execute(
        target, f"{mask}\nv_div_fmas_f64 v[8:9], v[1:2], v[3:4], v[5:6]", words, [8, 9]
    )
    found = (high.astype(np.uint64) << np.uint64(32) | low).view(np.float64)
    np.testing.assert_array_equal(
        found, np.ldexp((2**bits + count + np.where(count & 2, 1, 0)).astype(np.float64), -1074)
    )
