"""Conversions to narrow floats: to fp8 by the machine's instruction, saturating to the maximum, and
to bf16; the nearest number, ties to even."""

from __future__ import annotations

from collections import Counter

import amd_kernels as kernels
import ml_dtypes
import numpy as np
import pytest
from amd_emulated import launched
from amd_support import ARCHS, listed

from tilewright.ir.types import F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, FloatType
from tilewright.llvm.emission.registers import encode_float
from tilewright.passes.math.float_formats import max_finite
from tilewright_conformance.oracles.formats import saturated

FNUZ, OCP = (
    (("fp8e4b8", F8E4M3FNUZ), ("fp8e5b16", F8E5M2FNUZ)),
    (("fp8e4nv", F8E4M3FN), ("fp8e5", F8E5M2)),
)
FORMATS = [
    (arch, *kind)
    for arch, kinds in (("gfx942", FNUZ), ("gfx950", OCP), ("gfx1201", OCP))
    for kind in kinds
]
SOURCES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}


@pytest.mark.each_value
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("arch", "name", "format_"), FORMATS)
def test_conversions(arch: str, name: str, format_: FloatType, source: str) -> None:
    rng = np.random.default_rng(0)
    of_all_sizes = rng.standard_normal(300) * np.exp2(rng.integers(-20, 20, 300))
    # all numbers of 11 bits near the minimum and the maximum, which include all midpoints between
    # neighbours
    dense = np.concatenate([np.arange(0, 512) * 2.0**scale for scale in (-22, -18, -13, 0, 8)])
    edges = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    with np.errstate(over="ignore"):
        values = np.resize(np.concatenate([edges, of_all_sizes, dense, -dense]), 8192).astype(
            SOURCES[source]
        )
    code = listed(kernels.converted, f"x=*{source}:16, out=*{name}:16", arch, {"N": 8192})
    text = str(code.stages["amdgcn"])
    threads = 4 * (32 if arch == "gfx1201" else 64)
    assert (
        text.count(f"v_cvt_pk_{'fp8' if format_.mantissa == 3 else 'bf8'}_f32")
        == 8192 // threads // 2
    )  # two at a time, and joined by it
    assert ("v_med3_f32" in text) == ("v_cmp_u_f" in text) == (arch == "gfx942")
    found = np.zeros(8192, np.uint8)
    launched(code, [values.view(np.uint16) if source == "bf16" else values, found])
    expected = [encode_float(saturated(float(value), format_), format_) for value in values]
    np.testing.assert_array_equal(found, np.array(expected, np.uint8))


@pytest.mark.each_value
@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize(("arch", "name", "format_"), FORMATS)
def test_what_a_kernel_clamps_is_not_clamped_again(
    arch: str, name: str, format_: FloatType, propagate: bool
) -> None:
    """As long as its bounds are numbers of the format."""
    size = 1024
    edges = np.array(
        [np.nan, np.inf, -np.inf, 0.0, -0.0, 240.0, 448.0, 464.0, 480.0, 57344.0, 1e9, -1e9],
        np.float32,
    )
    values = np.resize(
        np.concatenate(
            [edges, np.random.default_rng(0).standard_normal(500).astype(np.float32) * 300]
        ),
        size,
    )
    maximum = max_finite(format_)
    counts = []
    for bound in (maximum, 2 * maximum):
        code = listed(
            kernels.clamped,
            f"x=*fp32:16, out=*{name}:16",
            arch,
            {"N": size, "BOUND": bound, "PROPAGATE": propagate},
        )
        lines = str(code.stages["amdgcn"]).splitlines()
        counts.append(
            sum(
                line.startswith(("\tv_max", "\tv_min", "\tv_med3", "\tv_dual_max", "\tv_dual_min"))
                for line in lines
            )
        )
        found = np.zeros(size, np.uint8)
        launched(code, [values, found])
        limited = (
            np.clip(values, -bound, bound) if propagate else np.fmin(np.fmax(values, -bound), bound)
        )
        expected = [encode_float(saturated(float(value), format_), format_) for value in limited]
        np.testing.assert_array_equal(found, np.array(expected, np.uint8))
    assert counts[0] < counts[1]


@pytest.mark.parametrize(
    ("arch", "each"), [("gfx942", 4), ("gfx950", 0), ("gfx1100", 4), ("gfx1201", 4)]
)
def test_f32_becomes_bf16_in_four_instructions(arch: str, each: int) -> None:
    """And half of the one that packs two; or in half of one, where the machine has it."""
    size, elements = 2048, 2048 // (4 * (32 if arch.startswith("gfx1") else 64))
    code = listed(kernels.converted, "x=*fp32:16, out=*bf16:16", arch, {"N": size})
    counts = Counter(
        line.split()[0].removesuffix("_e32").removesuffix("_e64")
        for line in str(code.stages["amdgcn"]).splitlines()
        if line.startswith("\tv_")
    )
    steps = (
        "v_bfe_u32",
        "v_add3_u32",
        "v_cmp_u_f32",
        "v_cndmask_b32",
        "v_lshrrev_b32",
        "v_or_b32",
        "v_cmp_o_f32",
        "v_cndmask_b32_sdwa",
        "v_or_b32_sdwa",
    )
    addresses = 2  # may have a shift and an or of the lane's number
    assert sum(counts[step] for step in steps) <= each * elements + addresses
    assert counts["v_perm_b32" if each else "v_cvt_pk_bf16_f32"] == elements // 2
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, size, np.uint32)
    bits[:10] = (
        0xFFFFFFFF,
        0x7FFFFFFF,
        0x7F800001,
        0xFF800001,
        0x7FFF8000,
        0x7F7FFFFF,
        0xFF800000,
        0x00000001,
        0x80008000,
        0x3F818000,
    )
    bits[10 : size // 2] = bits[10 : size // 2] & 0xFFFF0000 | rng.choice(
        np.array([0x7FFF, 0x8000, 0x8001], np.uint32), size // 2 - 10
    )
    found = np.zeros(size, np.uint16)
    launched(code, [bits.view(np.float32), found])
    with np.errstate(invalid="ignore", over="ignore"):
        expected = bits.view(np.float32).astype(ml_dtypes.bfloat16)
    nan = np.isnan(expected)
    assert np.isnan(found[nan].view(ml_dtypes.bfloat16)).all()
    np.testing.assert_array_equal(found[~nan], expected[~nan].view(np.uint16))


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_arithmetic_of_bf16_asks_for_no_nan(arch: str, name: str) -> None:
    """A NaN that comes of bf16 numbers has nothing in its lower half that rounding could carry out
    of it: neither an operand's nor the machine's own."""
    size = 4096
    code = listed(
        kernels.computed, "x=*bf16:16, y=*bf16:16, out=*bf16:16", arch, {"N": size, "NAME": name}
    )
    text = str(code.stages["amdgcn"])
    assert "v_cmp_u_f" not in text and "v_cmp_o_f" not in text and "v_cndmask" not in text
    assert ("v_cvt_pk_bf16_f32" in text) == (arch == "gfx950")
    rng = np.random.default_rng(1)
    special = np.array(
        [
            0,
            0x8000,
            1,
            0x8001,
            0x7F,
            0x7F7F,
            0xFF7F,
            0x7F80,
            0xFF80,
            0x7FC0,
            0x7F81,
            0xFFFF,
            0x7FFF,
            0x3F80,
            0x3F81,
        ],
        np.uint16,
    )
    x, y = (rng.integers(0, 1 << 16, size, np.uint16) for _ in range(2))
    pairs = np.array(np.meshgrid(special, special)).reshape(2, -1)
    x[: pairs.shape[1]], y[: pairs.shape[1]] = pairs
    # close exponents, so that sums are rounded, ties among them
    y[size // 2 :] = (x[size // 2 :] & 0x7F00) + rng.integers(0, 0x400, size // 2).astype(
        np.uint16
    ) & 0xFFFF
    found = np.zeros(size, np.uint16)
    launched(code, [x, y, found])
    with np.errstate(all="ignore"):
        a, b = (bits.view(ml_dtypes.bfloat16).astype(np.float64) for bits in (x, y))
        exact = {"add": a + b, "sub": a - b, "mul": a * b}[name]
        expected = exact.astype(np.float32).astype(ml_dtypes.bfloat16)
    nan = np.isnan(exact)
    assert np.isnan(found[nan].view(ml_dtypes.bfloat16)).all()
    np.testing.assert_array_equal(found[~nan], expected[~nan].view(np.uint16))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ARCHS)
def test_no_conversion_needs_an_assembler(arch: str) -> None:
    names = ("fp64", "fp32", "fp16", "bf16", "fp8e4nv", "fp8e5")
    for source in names:
        for result in names:
            listed(
                kernels.converted, f"x=*{source}:16, out=*{result}:16", arch, {"N": 512}
            )  # which asserts it
