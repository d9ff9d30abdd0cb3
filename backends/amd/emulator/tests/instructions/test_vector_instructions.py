"""Single vector instructions against formulas of their own, written from AMD's instruction set
documents."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from wave_kernels import execute, lanes

from tilewright_amd_emulator import WaveError

Array = np.ndarray[Any, Any]

_RNG = np.random.default_rng(7)
INTEGERS = _RNG.integers(0, 1 << 32, (3, 64), dtype=np.uint32)
INTEGERS[:, :6] = [
    [0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 5],
    [1, 0xFFFFFFFF, 0xFFFFFFFF, 1, 31, 3],
    [0, 2, 32, 0x80000000, 7, 0xFFFF0000],
]
REALS = (_RNG.standard_normal((3, 64)) * np.exp2(_RNG.integers(-12, 12, (3, 64)))).astype(
    np.float32
)
REALS[0, :5], REALS[1, :5] = [0.0, -0.0, 1.0, np.inf, 2.5], [-0.0, 0.0, np.nan, 2.0, -np.inf]
HALVES = (_RNG.standard_normal((3, 128)) * np.exp2(_RNG.integers(-5, 5, (3, 128)))).astype(
    np.float16
)


def signed(x: int, bits: int = 32) -> int:
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def by_lane(function: Callable[..., int], *arrays: Array) -> Array:
    """uint32 of Python integers, lane by lane."""
    return np.array(
        [function(*(int(a[i]) for a in arrays)) & 0xFFFFFFFF for i in range(len(arrays[0]))],
        np.uint32,
    )


#: instruction on v1, v2, v3 -> the lane's result from three unsigned Python integers
INTEGER_ROWS: dict[str, Callable[[int, int, int], int]] = {
    "v_and_b32_e32 v4, v1, v2": lambda x, y, z: x & y,
    "v_or3_b32 v4, v1, v2, v3": lambda x, y, z: x | y | z,
    "v_and_or_b32 v4, v1, v2, v3": lambda x, y, z: x & y | z,
    "v_bfi_b32 v4, v1, v2, v3": lambda x, y, z: (x & y) | (~x & z),
    "v_not_b32_e32 v4, v1": lambda x, y, z: ~x,
    "v_bfrev_b32_e32 v4, v1": lambda x, y, z: int(f"{x:032b}"[::-1], 2),
    "v_bcnt_u32_b32 v4, v1, v2": lambda x, y, z: x.bit_count() + y,
    "v_lshlrev_b32_e32 v4, v1, v2": lambda x, y, z: y << (x & 31),
    "v_lshrrev_b32_e32 v4, v1, v2": lambda x, y, z: y >> (x & 31),
    "v_ashrrev_i32_e32 v4, v1, v2": lambda x, y, z: signed(y) >> (x & 31),
    "v_lshl_or_b32 v4, v1, v2, v3": lambda x, y, z: (x << (y & 31)) | z,
    "v_lshl_add_u32 v4, v1, v2, v3": lambda x, y, z: (x << (y & 31)) + z,
    "v_add_lshl_u32 v4, v1, v2, v3": lambda x, y, z: ((x + y) & 0xFFFFFFFF) << (z & 31),
    "v_add3_u32 v4, v1, v2, v3": lambda x, y, z: x + y + z,
    "v_xad_u32 v4, v1, v2, v3": lambda x, y, z: (x ^ y) + z,
    "v_bfe_u32 v4, v1, v2, v3": lambda x, y, z: (x >> (y & 31)) & ((1 << (z & 31)) - 1),
    "v_bfe_i32 v4, v1, 5, 7": lambda x, y, z: signed((x >> 5) & 127, 7),
    "v_bfe_i32 v4, v1, 28, 9": lambda x, y, z: signed(x) >> 28,
    "v_bfm_b32 v4, v1, v2": lambda x, y, z: ((1 << (x & 31)) - 1) << (y & 31),
    "v_alignbit_b32 v4, v1, v2, v3": lambda x, y, z: (x << 32 | y) >> (z & 31),
    "v_alignbyte_b32 v4, v1, v2, v3": lambda x, y, z: (x << 32 | y) >> 8 * (z & 3),
    "v_mul_lo_u32 v4, v1, v2": lambda x, y, z: x * y,
    "v_mul_hi_u32 v4, v1, v2": lambda x, y, z: x * y >> 32,
    "v_mul_hi_i32 v4, v1, v2": lambda x, y, z: signed(x) * signed(y) >> 32,
    "v_mul_u32_u24_e32 v4, v1, v2": lambda x, y, z: (x & 0xFFFFFF) * (y & 0xFFFFFF),
    "v_mul_i32_i24_e32 v4, v1, v2": lambda x, y, z: (
        signed(x & 0xFFFFFF, 24) * signed(y & 0xFFFFFF, 24)
    ),
    "v_mad_u32_u24 v4, v1, v2, v3": lambda x, y, z: (x & 0xFFFFFF) * (y & 0xFFFFFF) + z,
    "v_mad_i32_i24 v4, v1, v2, v3": lambda x, y, z: (
        signed(x & 0xFFFFFF, 24) * signed(y & 0xFFFFFF, 24) + z
    ),
    "v_sad_u8 v4, v1, v2, v3": lambda x, y, z: (
        z + sum(abs((x >> s & 255) - (y >> s & 255)) for s in (0, 8, 16, 24))
    ),
    "v_min_i32_e32 v4, v1, v2": lambda x, y, z: min(signed(x), signed(y)),
    "v_max_u32_e32 v4, v1, v2": lambda x, y, z: max(x, y),
    "v_med3_i32 v4, v1, v2, v3": lambda x, y, z: sorted((signed(x), signed(y), signed(z)))[1],
    "v_max3_u32 v4, v1, v2, v3": lambda x, y, z: max(x, y, z),
    "v_cndmask_b32_e64 v4, v1, -1, exec": lambda x, y, z: -1,
}
PER_SIZE: dict[int, dict[str, Callable[[int, int, int], int]]] = {
    64: {
        "v_add_u32_e32 v4, v1, v2": lambda x, y, z: x + y,
        "v_sub_u32_e32 v4, v1, v2": lambda x, y, z: x - y,
        "v_subrev_u32_e32 v4, v1, v2": lambda x, y, z: y - x,
        "v_add_u32_e64 v4, v1, v2 clamp": lambda x, y, z: min(x + y, 0xFFFFFFFF),
        "v_sub_u32_e64 v4, v1, v2 clamp": lambda x, y, z: max(x - y, 0),
        "v_add_i32 v4, v1, v2 clamp": lambda x, y, z: max(
            min(signed(x) + signed(y), 0x7FFFFFFF), -0x80000000
        ),
        "v_ffbh_u32_e32 v4, v1": lambda x, y, z: 32 - x.bit_length() if x else -1,
        "v_ffbl_b32_e32 v4, v1": lambda x, y, z: (x & -x).bit_length() - 1,
        "v_ffbh_i32_e32 v4, v1": lambda x, y, z: (
            32 - (x ^ (0xFFFFFFFF if x >> 31 else 0)).bit_length()
            if x not in (0, 0xFFFFFFFF)
            else -1
        ),
        (
            "v_add_u32_sdwa v4, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 "
            "src1_sel:WORD_1"
        ): lambda x, y, z: (x >> 8 & 255) + (y >> 16),
        (
            "v_and_b32_sdwa v4, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0 "
            "src1_sel:DWORD"
        ): lambda x, y, z: (x & y & 0xFFFF) << 16,
    },
    32: {
        "v_add_nc_u32_e32 v4, v1, v2": lambda x, y, z: x + y,
        "v_sub_nc_u32_e32 v4, v1, v2": lambda x, y, z: x - y,
        "v_subrev_nc_u32_e32 v4, v1, v2": lambda x, y, z: y - x,
        "v_add_nc_u32_e64 v4, v1, v2 clamp": lambda x, y, z: min(x + y, 0xFFFFFFFF),
        "v_xor3_b32 v4, v1, v2, v3": lambda x, y, z: x ^ y ^ z,
        "v_clz_i32_u32_e32 v4, v1": lambda x, y, z: 32 - x.bit_length() if x else -1,
        "v_ctz_i32_b32_e32 v4, v1": lambda x, y, z: (x & -x).bit_length() - 1,
        "v_maxmin_u32 v4, v1, v2, v3": lambda x, y, z: min(max(x, y), z),
        "v_dual_mov_b32 v4, v1 :: v_dual_mov_b32 v1, v4": lambda x, y, z: x,
    },
}


def _integer_cases() -> list[tuple[str, str]]:
    both = [(target, row) for target in ("gfx942", "gfx1100") for row in INTEGER_ROWS]
    return both + [
        (target, row) for target in ("gfx942", "gfx1100") for row in PER_SIZE[lanes(target)]
    ]


@pytest.mark.sampled(44)
@pytest.mark.parametrize(("target", "row"), _integer_cases())
def test_integers(target: str, row: str) -> None:
    formula = INTEGER_ROWS.get(row) or PER_SIZE[lanes(target)][row]
    given = INTEGERS[:, : lanes(target)]
    (out,) = execute(target, row, dict(zip((1, 2, 3), given, strict=True)), [4])
    np.testing.assert_array_equal(out, by_lane(formula, *given))


def test_two_instructions_at_once_read_before_they_write() -> None:
    x, y = INTEGERS[0, :32], INTEGERS[1, :32]
    out = execute(
        "gfx1100", "v_dual_mov_b32 v1, v2 :: v_dual_add_nc_u32 v2, v1, v2", {1: x, 2: y}, [1, 2]
    )
    np.testing.assert_array_equal(out[0], y)
    np.testing.assert_array_equal(out[1], x + y)


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_sums_of_64_bits_by_carries(target: str) -> None:
    wide = lanes(target) == 64
    low, high = (
        ("v_add_co_u32_e32 v5, vcc, v1, v3", "v_addc_co_u32_e32 v6, vcc, v2, v4, vcc")
        if wide
        else ("v_add_co_u32 v5, vcc_lo, v1, v3", "v_add_co_ci_u32_e64 v6, null, v2, v4, vcc_lo")
    )
    x, y, z = INTEGERS[:, : lanes(target)]
    out = execute(target, f"{low}\n{high}", {1: x, 2: y, 3: z, 4: x}, [5, 6])
    total = [
        ((int(b) << 32 | int(a)) + (int(d) << 32 | int(c))) & (1 << 64) - 1
        for a, b, c, d in zip(x, y, z, x, strict=True)
    ]
    np.testing.assert_array_equal(out[0], np.array([t & 0xFFFFFFFF for t in total], np.uint32))
    np.testing.assert_array_equal(out[1], np.array([t >> 32 for t in total], np.uint32))


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_a_product_of_64_bits(target: str) -> None:
    name = (
        "v_mad_co_u64_u32 v[5:6], null, v1, v2, v[3:4]"
        if target == "gfx1201"
        else "v_mad_u64_u32 v[5:6], s[8:9], v1, v2, v[3:4]"
    )
    x, y, z = INTEGERS[:, : lanes(target)]
    out = execute(target, name, {1: x, 2: y, 3: z, 4: x}, [5, 6])
    total = [
        int(a) * int(b) + (int(d) << 32 | int(c)) for a, b, c, d in zip(x, y, z, x, strict=True)
    ]
    np.testing.assert_array_equal(
        out[0] | out[1].astype(np.uint64) << np.uint64(32),
        np.array([t & (1 << 64) - 1 for t in total], np.uint64),
    )


def _nearest32(value: Fraction) -> np.float32:
    """The f32 nearest to an exact number, ties to even."""
    guess = np.float32(float(value))
    near = [
        guess,
        np.nextafter(guess, np.float32(np.inf)),
        np.nextafter(guess, np.float32(-np.inf)),
    ]
    return min(near, key=lambda f: (abs(Fraction(float(f)) - value), int(f.view(np.uint32)) & 1))


def test_a_fused_product_is_rounded_once() -> None:
    rng = np.random.default_rng(8)
    x, y = ((1 + rng.integers(0, 1 << 23, 64) * 2.0**-23).astype(np.float32) for _ in range(2))
    exact = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, y, strict=True)]
    # addends that bring the sum to just beside a midpoint of two f32
    z = np.array([float(np.float32(2.0 ** (e % 30))) for e in range(64)], np.float32)
    z[:8] = np.float32(2.0**24) * np.array([1, -1, 3, -3, 1, -1, 3, -3], np.float32)
    (out,) = execute("gfx942", "v_fma_f32 v4, v1, v2, v3", {1: x, 2: y, 3: z}, [4])
    want = np.array(
        [_nearest32(p + Fraction(float(c))) for p, c in zip(exact, z, strict=True)], np.float32
    )
    np.testing.assert_array_equal(out.view(np.float32), want)


def test_rounding_twice_would_differ() -> None:
    """The sum is 2**-70 below a midpoint of f32: f64 rounds it to the midpoint, whose even
    neighbour is the wrong one."""
    x, y, z = (
        np.float32(1 + 2.0**-23),
        np.float32((1 - 2.0**-23) * 2.0**-24),
        np.float32(1 + 2.0**-23),
    )
    given = {1: np.full(64, x), 2: np.full(64, y), 3: np.full(64, z)}
    (out,) = execute("gfx942", "v_fma_f32 v4, v1, v2, v3", given, [4])
    assert np.float32(float(x) * float(y) + float(z)) != z
    np.testing.assert_array_equal(out.view(np.float32), np.full(64, z))


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_results_of_16_bits_clear_the_other_half_on_gfx9_and_keep_it_later(target: str) -> None:
    width = lanes(target)
    x, old = HALVES[0, : 2 * width], INTEGERS[0, :width]
    name = (
        "v_add_f16_e32 v4, v1, v1"
        if width == 64
        else "v_add_f16_e32 v4.l, v1.l, v1.l\nv_add_f16_e32 v5.h, v1.l, v1.h"
    )
    out = execute(target, name, {1: x.view(np.uint32), 4: old, 5: old}, [4, 5])
    low = (x[::2] + x[::2]).view(np.uint16).astype(np.uint32)
    np.testing.assert_array_equal(out[0], low if width == 64 else low | old & 0xFFFF0000)
    high = (x[::2] + x[1::2]).view(np.uint16).astype(np.uint32)
    np.testing.assert_array_equal(out[1], old if width == 64 else high << 16 | old & 0xFFFF)


def test_a_fused_product_of_f64_is_rounded_once() -> None:
    rng = np.random.default_rng(9)
    x, y, z = (
        rng.standard_normal(64) * np.exp2(rng.integers(-60, 60, 64).astype(float)) for _ in range(3)
    )
    x[:4], y[:4], z[:4] = (
        [2.0**1000, 1e-160, 3e-200, 1.5],
        [2.0**23.5, 1e-160, -7e-120, 1 + 2.0**-52],
        [-(2.0**1023), 1e-320, 4e-319, 2.0**60],
    )
    z[8:40] = -(x * y)[8:40] * (1 + rng.integers(-3, 4, 32) * 2.0**-52)
    words = [v.view(np.uint32).reshape(64, 2).T for v in (x, y, z)]
    given = {2 * i + j + 2: words[i][j] for i in range(3) for j in range(2)}
    low, high = execute("gfx942", "v_fma_f64 v[10:11], v[2:3], v[4:5], v[6:7]", given, [10, 11])
    got = (low | high.astype(np.uint64) << np.uint64(32)).view(np.float64)
    exact = [
        Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        for a, b, c in zip(x, y, z, strict=True)
    ]
    for value, want in zip(got, exact, strict=True):
        assert value == want.numerator / want.denominator  # Python rounds this quotient once


REAL_ROWS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "v_add_f32_e32 v4, v1, v2": lambda x, y, z: x + y,
    "v_sub_f32_e64 v4, v1, |v2|": lambda x, y, z: x - np.abs(y),
    "v_mul_f32_e64 v4, -v1, v2": lambda x, y, z: -x * y,
    "v_mul_f32_e64 v4, v1, v2 mul:2": lambda x, y, z: (x * y) * np.float32(2),
    "v_add_f32_e64 v4, v1, v2 div:2": lambda x, y, z: (x + y) / np.float32(2),
    "v_add_f32_e64 v4, v1, v2 clamp": lambda x, y, z: np.where(
        np.isnan(x + y), 0, np.clip(x + y, 0, 1)
    ).astype(np.float32),
    "v_floor_f32_e32 v4, v1": lambda x, y, z: np.floor(x),
    "v_rndne_f32_e32 v4, v1": lambda x, y, z: np.rint(x),
    "v_fract_f32_e32 v4, v2": lambda x, y, z: np.where(
        np.isfinite(y), y - np.floor(y), np.nan
    ).astype(np.float32),
    "v_cvt_f32_i32_e32 v4, v1": lambda x, y, z: x.view(np.int32).astype(np.float32),
    "v_cvt_f32_ubyte2_e32 v4, v1": lambda x, y, z: (x.view(np.uint32) >> 16 & 255).astype(
        np.float32
    ),
    "v_cvt_f16_f32_e32 v4, v3\nv_cvt_f32_f16_e32 v4, v4": lambda x, y, z: z.astype(
        np.float16
    ).astype(np.float32),
    "v_exp_f32_e32 v4, v3": lambda x, y, z: np.exp2(z.astype(np.float64)).astype(np.float32),
    "v_add_f32_e32 v4, 0.15915494, v3": lambda x, y, z: np.float32(1 / (2 * np.pi)) + z,
    "v_mul_f32_e32 v4, 0x40490fdb, v3": lambda x, y, z: np.float32(np.pi) * z,
    "v_add_f32_e32 v4, 4.0, v3": lambda x, y, z: np.float32(4) + z,
    "v_fmaak_f32 v4, v3, v3, 0x3f000000": lambda x, y, z: (z.astype(np.float64) ** 2 + 0.5).astype(
        np.float32
    ),
    "v_fmamk_f32 v4, v3, 0x3f000000, v3": lambda x, y, z: (z.astype(np.float64) * 1.5).astype(
        np.float32
    ),
}


@pytest.mark.each_value
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("row", REAL_ROWS)
def test_reals(target: str, row: str) -> None:
    given = REALS[:, : lanes(target)].copy()
    given[2] = np.clip(given[2], -100, 100)
    with np.errstate(all="ignore"):
        want = REAL_ROWS[row](*given)
    (out,) = execute(target, row, dict(zip((1, 2, 3), given, strict=True)), [4])
    np.testing.assert_array_equal(out.view(np.float32), want)


@pytest.mark.parametrize(("name", "least"), [("v_min_f32_e32", True), ("v_max_f32_e32", False)])
def test_the_smaller_and_the_larger(name: str, least: bool) -> None:
    x, y = REALS[0], REALS[1]
    (out,) = execute("gfx942", f"{name} v4, v1, v2", {1: x, 2: y}, [4])
    for a, b, got in zip(x, y, out.view(np.float32), strict=True):
        if math.isnan(a) or math.isnan(b):
            assert got == (b if math.isnan(a) else a)
        elif a == b == 0:
            assert math.copysign(1, got) == (min if least else max)(
                math.copysign(1, a), math.copysign(1, b)
            )
        else:
            assert got == (min if least else max)(a, b)


def test_turns_and_denormals() -> None:
    turns = np.linspace(-3, 3, 64, dtype=np.float32)
    sine, cosine = execute(
        "gfx942", "v_sin_f32_e32 v4, v1\nv_cos_f32_e32 v5, v1", {1: turns}, [4, 5]
    )
    np.testing.assert_allclose(
        sine.view(np.float32), np.sin(2 * np.pi * turns.astype(np.float64)), atol=1e-6
    )
    np.testing.assert_allclose(
        cosine.view(np.float32), np.cos(2 * np.pi * turns.astype(np.float64)), atol=1e-6
    )
    tiny = np.full(64, 1e-40, np.float32)
    for mode, expected in ((3, np.float32(1e-40) + np.float32(1e-40)), (0, np.float32(0))):
        (out,) = execute(
            "gfx942", "v_add_f32_e32 v4, v1, v1", {1: tiny}, [4], float_denorm_mode_32=mode
        )
        np.testing.assert_array_equal(out.view(np.float32), np.full(64, expected))
    small = np.full(128, 3e-7, np.float16)
    for mode, half in ((3, small[0] + small[0]), (0, np.float16(0))):
        (out,) = execute(
            "gfx942",
            "v_pk_add_f16 v4, v1, v1",
            {1: small.view(np.uint32)},
            [4],
            float_denorm_mode_16_64=mode,
        )
        np.testing.assert_array_equal(out.view(np.float16), np.full(128, half))
        (out,) = execute(
            "gfx942",
            "v_add_f16_e32 v4, v1, v1",
            {1: small.view(np.uint32)},
            [4],
            float_denorm_mode_16_64=mode,
        )
        np.testing.assert_array_equal(out.view(np.float16)[::2], np.full(64, half))
    lines = "s_denorm_mode 0\nv_add_f32_e32 v4, v1, v1\ns_denorm_mode 15\nv_add_f32_e32 v5, v1, v1"
    without, with_denormals = execute("gfx1100", lines, {1: tiny[:32]}, [4, 5])
    assert not without.any()
    np.testing.assert_array_equal(with_denormals.view(np.float32), tiny[:32] + tiny[:32])


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_halves_of_registers(target: str) -> None:
    width = lanes(target)
    x, y = (HALVES[i, : 2 * width] for i in range(2))
    words = {1: np.ascontiguousarray(x).view(np.uint32), 2: np.ascontiguousarray(y).view(np.uint32)}
    out = execute(
        target,
        (
            "v_pk_add_f16 v4, v1, v2\nv_pk_mul_f16 v5, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]\n"
            "v_pk_fma_f16 v6, v1, v2, 1.0 op_sel_hi:[1,1,0] neg_lo:[1,0,0]"
        ),
        words,
        [4, 5, 6],
    )
    np.testing.assert_array_equal(out[0].view(np.float16), x + y)
    swapped = x.reshape(-1, 2)[:, ::-1].reshape(-1)
    np.testing.assert_array_equal(out[1].view(np.float16), swapped * y)
    signs = np.tile([-1.0, 1.0], width)
    np.testing.assert_array_equal(
        out[2].view(np.float16),
        (signs * x.astype(np.float64) * y.astype(np.float64) + 1).astype(np.float16),
    )


def test_packed_f32_and_mixed_precision() -> None:
    a, b, c = (np.nan_to_num(v, nan=1, posinf=2, neginf=-2) for v in REALS)
    out = execute(
        "gfx942",
        "v_pk_mul_f32 v[6:7], v[2:3], v[4:5]\n"
        "v_pk_add_f32 v[8:9], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,0] neg_hi:[0,1]\n"
        "v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[1,0]",
        {2: a, 3: b, 4: c, 5: a},
        [6, 7, 8, 9, 10, 11],
    )
    for got, want in zip(out, (a * c, b * a, b + c, a - c, b, c), strict=True):
        np.testing.assert_array_equal(got.view(np.float32), want)
    half = HALVES[0]
    (mixed,) = execute(
        "gfx942",
        "v_fma_mix_f32 v4, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[1,0,0]",
        {1: half.view(np.uint32), 2: b, 3: c},
        [4],
    )
    want = (half[1::2].astype(np.float64) * b + c.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(mixed.view(np.float32), want)


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_products_of_bf16_pairs_are_added_and_rounded_to_a_half(target: str) -> None:
    x, y = (
        np.random.default_rng(seed).integers(-64, 64, (lanes(target), 2)).astype(np.float32)
        for seed in range(2)
    )
    words = [
        np.ascontiguousarray(each.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)[:, 0]
        for each in (x, y)
    ]
    kept = np.full(lanes(target), 0x1234_4080, np.uint32)  # 4 in the lower half
    lines = "v_dot2_bf16_bf16 v4.l, v1, v2, 0\nv_dot2_bf16_bf16 v5.h, v1, v2, v3.l neg_lo:[1,0,0]"
    low, high = execute(
        target, lines, {1: words[0], 2: words[1], 3: kept, 4: kept, 5: kept}, [4, 5]
    )
    for bits, exact in (
        (low & 0xFFFF, (x * y).sum(1)),
        (high >> 16, x[:, 1] * y[:, 1] - x[:, 0] * y[:, 0] + 4),
    ):
        found = (bits << 16).astype(np.uint32).view(np.float32)
        assert (np.abs(found - exact) <= np.abs(exact) * 2**-8).all()
    np.testing.assert_array_equal(low >> 16, kept >> 16)
    np.testing.assert_array_equal(high & 0xFFFF, kept & 0xFFFF)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_comparisons_write_masks(target: str) -> None:
    width = lanes(target)
    x, y = REALS[0, :width], REALS[1, :width]
    register = "s[8:9]" if width == 64 else "s8"
    lines = f"v_cmp_nlt_f32_e64 {register}, v1, v2\nv_cndmask_b32_e64 v4, 0, 1, {register}\n"
    lines += f"v_cmp_class_f32_e64 {register}, v1, 0x264\nv_cndmask_b32_e64 v5, 0, 1, {register}"
    out = execute(target, lines, {1: x, 2: y}, [4, 5, *(("s8", "s9") if width == 64 else ("s8",))])
    np.testing.assert_array_equal(out[0], (~(x < y)).astype(np.uint32))
    infinite_or_zero = np.isinf(x) | (x == 0)  # bits 2, 5, 6 and 9
    np.testing.assert_array_equal(out[1], infinite_or_zero.astype(np.uint32))
    mask = sum(int(bit) << lane for lane, bit in enumerate(out[1]))
    assert [int(o[0]) for o in out[2:]] == [mask >> 32 * i & 0xFFFFFFFF for i in range(width // 32)]


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1201"])
def test_eight_bit_floats(target: str) -> None:
    fnuz = target == "gfx942"
    width = lanes(target)
    types = {
        "fp8": ml_dtypes.float8_e4m3fnuz if fnuz else ml_dtypes.float8_e4m3fn,
        "bf8": ml_dtypes.float8_e5m2fnuz if fnuz else ml_dtypes.float8_e5m2,
    }
    x, y = (np.nan_to_num(REALS[i, :width]) * np.float32(0.1) for i in (1, 2))
    for name, kind in types.items():
        (out,) = execute(
            target,
            (
                f"v_mov_b32_e32 v4, 0\nv_cvt_pk_{name}_f32 v4, v1, v2\n"
                f"v_cvt_pk_{name}_f32 v4, v2, v1 op_sel:[0,0,1]"
            ),
            {1: x, 2: y},
            [4],
        )
        with np.errstate(all="ignore"):
            codes = [v.astype(kind).view(np.uint8).astype(np.uint32) for v in (x, y)]
        np.testing.assert_array_equal(
            out, codes[0] | codes[1] << 8 | codes[1] << 16 | codes[0] << 24
        )
        every = np.arange(256, dtype=np.uint8)
        for start in range(0, 256, 4 * width):
            words = every[start : start + 4 * width].view(np.uint32)
            one = (
                f"v_cvt_f32_{name}_sdwa v5, v1 src0_sel:BYTE_2"
                if width == 64
                else f"v_cvt_f32_{name}_e64 v5, v1 byte_sel:2"
            )
            two = (
                f"v_cvt_pk_f32_{name}_sdwa v[6:7], v1 src0_sel:WORD_1"
                if width == 64
                else f"v_cvt_pk_f32_{name}_e64 v[6:7], v1 op_sel:[1,0]"
            )
            got = execute(target, f"{one}\n{two}", {1: words}, [5, 6, 7])
            values = words.view(kind).astype(np.float32).reshape(-1, 4)
            for result, want in zip(got, (values[:, 2], values[:, 2], values[:, 3]), strict=True):
                np.testing.assert_array_equal(result.view(np.float32), want)


def test_brain_floats_and_bytes() -> None:
    x, y = REALS[0], REALS[2]
    (out,) = execute("gfx950", "v_cvt_pk_bf16_f32 v4, v1, v2", {1: x, 2: y}, [4])
    np.testing.assert_array_equal(
        out.view(ml_dtypes.bfloat16).astype(np.float32).reshape(-1, 2),
        np.stack([x, y], 1).astype(ml_dtypes.bfloat16).astype(np.float32),
    )
    a, b = INTEGERS[0], INTEGERS[1]
    (dot,) = execute("gfx942", "v_dot4_i32_i8 v4, v1, v2, v3", {1: a, 2: b, 3: INTEGERS[2]}, [4])
    parts = a.view(np.int8).reshape(-1, 4).astype(np.int64) * b.view(np.int8).reshape(-1, 4)
    np.testing.assert_array_equal(dot, (parts.sum(axis=1) + INTEGERS[2]).astype(np.uint32))
    (chosen,) = execute(
        "gfx942",
        "v_perm_b32 v4, v1, v2, v3",
        {1: a, 2: b, 3: np.full(64, 0x0C0D0600, np.uint32)},
        [4],
    )
    np.testing.assert_array_equal(chosen, (a >> 16 & 255) << 8 | b & 255 | np.uint32(0xFF) << 16)


def test_parts_of_words_are_extended_as_the_operand_says() -> None:
    """By zeros, in instructions for signed numbers too, where it does not say sext."""
    x, y = INTEGERS[0], INTEGERS[1]
    line = (
        "v_mul_i32_i24_sdwa v4, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 "
        "src1_sel:BYTE_2"
    )
    (out,) = execute("gfx942", line, {1: x, 2: y}, [4])
    np.testing.assert_array_equal(
        out, by_lane(lambda a, b: signed(a >> 8 & 255, 8) * (b >> 16 & 255), x, y)
    )
    line = (
        "v_add_u32_sdwa v4, v1, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 "
        "src1_sel:WORD_0"
    )
    (out,) = execute("gfx942", line, {1: x, 2: y}, [4])
    np.testing.assert_array_equal(
        out, by_lane(lambda a, b: (a >> 16) + signed(b & 0xFFFF, 16), x, y)
    )


def test_functions_of_scalar_registers() -> None:
    with np.errstate(all="ignore"):
        for name, expected in (
            ("sqrt", 1.5),
            ("rcp", 1 / 2.25),
            ("rsq", 1 / 1.5),
            ("exp", 2.0**-2.25),
            ("log", None),
        ):
            sign = "-" if name == "exp" else ""
            (out,) = execute(
                "gfx1201", f"s_mov_b32 s8, 0x40100000\nv_s_{name}_f32 s9, {sign}s8", {}, ["s9"]
            )
            wanted = np.float32(math.log2(2.25) if expected is None else expected)
            np.testing.assert_allclose(out.view(np.float32), wanted, rtol=1e-7)
    (out,) = execute("gfx1201", "s_mov_b32 s8, 0x4400\nv_s_sqrt_f16 s9, s8", {}, ["s9"])
    assert (out & 0xFFFF == 0x4000).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fmac", 1.5 * -2.5 + 7),
        ("floor", -3),
        ("ceil", -2),
        ("trunc", -2),
        ("rndne", -2),
        ("minimum", -2.5),
        ("maximum", 1.5),
    ],
)
def test_halves_in_scalar_registers(name: str, expected: float) -> None:
    x, y, total = (int(np.float16(value).view(np.uint16)) for value in (1.5, -2.5, 7))
    operands = "s8, s9" if name in ("fmac", "minimum", "maximum") else "s9"
    lines = (
        f"s_mov_b32 s8, {x}\ns_mov_b32 s9, {y}\ns_mov_b32 s10, {total}\n"
        f"s_{name}_f16 s10, {operands}"
    )
    (out,) = execute("gfx1201", lines, {}, ["s10"])
    assert (out.astype(np.uint16).view(np.float16) == np.float16(expected)).all()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("v_frobnicate_b32 v1, v2", "not known"),
        ("v_add_f32_e32 v1, v2, v3 wobble:3", "modifier 'wobble'"),
        ("v_add_f32_e32 v1, v2", "operands"),
        ("s_and_b32 v1, s2, s3", "scalar register"),
        ("v_add_f32_e32 s1, v2, v3", "vector register"),
        ("s_branch .nowhere", "label"),
        ("s_barrier_signal -3", "barrier"),
    ],
)
def test_what_is_not_known_is_an_error_with_its_line(line: str, message: str) -> None:
    with pytest.raises(WaveError, match=message) as error:
        execute("gfx942", line, {1: INTEGERS[0]}, [1])
    assert error.value.line is not None and line in str(error.value)


def test_rounding_may_be_set_to_what_it_is_and_to_nothing_else() -> None:
    lines = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, {}, {}), {}\nv_mov_b32_e32 v2, v0"
    for offset, width in ((0, 2), (2, 2), (0, 4)):
        execute("gfx942", lines.format(offset, width, 0), {}, [2])
    for offset, width, value in ((0, 2, 3), (2, 2, 1), (2, 4, 0)):
        with pytest.raises(WaveError, match="only the modes of denormals"):
            execute("gfx942", lines.format(offset, width, value), {}, [2])
