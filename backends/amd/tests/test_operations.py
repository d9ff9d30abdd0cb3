"""Operations, matmuls and random programs on emulated waves, against the reference."""

from __future__ import annotations

import re
from fractions import Fraction

import amd_kernels as kernels
import ml_dtypes
import numpy as np
import pytest
from amd_emulated import AssertionFailed, launched, run_module
from amd_support import ARCHS, listed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.errors import LoweringError
from tilewright.ir import TABLE
from tilewright.reference.interpreter import run
from tilewright_conformance.op_samples import check_outputs, samples
from tilewright_conformance.random_programs import Program, mismatch, programs

#: Operations with output need a launch; the target's own code has no reference.
_APART = {"inline_asm", "extern", "print"}
NAMES = [spec.name for spec in TABLE if spec.name not in _APART]
#: Samples of an operation that are run, by the number of warps.
_FEW = {1: 1, 4: 1}


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", NAMES)
def test_operations_agree_with_the_reference(name: str, arch: str) -> None:
    runnable = [(number, sample) for number, sample in enumerate(samples(name)) if sample.runnable]
    count = 0
    for warps, few in _FEW.items():
        for number, sample in runnable[warps % 3 :: max(1, len(runnable) // few)][:few]:
            expected, found = (
                sample.make_arguments(np.random.default_rng(number)) for _ in range(2)
            )
            with np.errstate(all="ignore"):
                run(sample.module, expected, sample.grid, printer=lambda *_: None)
            try:
                run_module(
                    sample.module,
                    found,
                    sample.grid,
                    arch,
                    num_warps=warps,
                    schedule="random",
                    seed=number,
                )
            except LoweringError as error:
                assert "powers of two" in str(error)
                continue
            check_outputs(sample, expected, found)
            count += 1
    assert count or len(runnable) < 3


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(programs(), st.sampled_from((1, 2, 4)), st.sampled_from(ARCHS))
def test_random_programs_agree_with_the_reference(
    program: Program, num_warps: int, arch: str
) -> None:
    expected, found = program.arguments(), program.arguments()
    with np.errstate(all="ignore"):
        run(program.module, expected, program.grid)
    try:
        run_module(program.module, found, program.grid, arch, num_warps=num_warps)
    except LoweringError as error:
        assert "powers of two" in str(error)
        return
    for output in program.outputs:
        wrong = mismatch(output, expected[output.index], found[output.index])
        assert not wrong, (
            f"{arch}, num_warps={num_warps}, output {output.index} of {output.element}: "
            f"{wrong}\n{program.module}"
        )


#: (type of a and b, of the sums, precision): whole numbers, so that every way to multiply gives the
#: same.
_KINDS = (
    ("fp16", "fp32", "ieee"),
    ("bf16", "fp32", "ieee"),
    ("fp32", "fp32", "ieee"),
    ("fp32", "fp32", "tf32"),
    ("fp32", "fp32", "bf16x3"),
    ("fp64", "fp64", "ieee"),
    ("i8", "i32", "ieee"),
    ("u8", "i32", "ieee"),
)


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("arch", "operand", "total", "precision"),
    [
        (arch, *kind)
        for arch in ARCHS
        for number, kind in enumerate(_KINDS)
        if arch in ("gfx942", "gfx1100") or number in (0, 1, 6)
    ],
)
def test_products_of_each_kind(arch: str, operand: str, total: str, precision: str) -> None:
    types = {
        "fp16": np.float16,
        "fp32": np.float32,
        "fp64": np.float64,
        "i8": np.int8,
        "u8": np.uint8,
        "i32": np.int32,
        "bf16": np.uint16,
    }
    rng = np.random.default_rng(5)
    m, n, k = 32, 64, 32
    numbers = {"i8": (-128, 128), "u8": (0, 256)}.get(
        operand, (-9, 10)
    )  # of bytes all: those with their highest bit count by their sign
    a, b = rng.integers(*numbers, (m, k)), rng.integers(*numbers, (k, n))
    given = [
        bits_of(array.astype(np.float32)) if operand == "bf16" else array.astype(types[operand])
        for array in (a, b)
    ]
    c = np.zeros((m, n), types[total])
    constants = {"M": m, "N": n, "K": k, "PRECISION": precision}
    code = listed(
        kernels.product,
        f"a=*{operand}:16, b=*{operand}:16, c=*{total}:16",
        arch,
        constants,
        num_warps=2,
    )
    launched(code, [*given, c], schedule="random")
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize(
    ("arch", "kind"), [("gfx942", "fnuz"), ("gfx950", ""), ("gfx1201", ""), ("gfx1100", "")]
)
@pytest.mark.parametrize(("left", "right"), [("e4", "e5"), ("e5", "e4")])
def test_products_of_fp8(arch: str, kind: str, left: str, right: str) -> None:
    names = {
        "e4": ("fp8e4b8", ml_dtypes.float8_e4m3fnuz),
        "e5": ("fp8e5b16", ml_dtypes.float8_e5m2fnuz),
    }
    if not kind:
        names = {"e4": ("fp8e4nv", ml_dtypes.float8_e4m3fn), "e5": ("fp8e5", ml_dtypes.float8_e5m2)}
    m, n, k = 32, 32, 64
    a, b = np.random.default_rng(6).integers(-4, 5, (2, 64, 64)).astype(np.float32)
    a, b = a[:m], b[:, :n]
    c = np.zeros((m, n), np.float32)
    code = listed(
        kernels.product,
        f"a=*{names[left][0]}:16, b=*{names[right][0]}:16, c=*fp32:16",
        arch,
        {"M": m, "N": n, "K": k, "PRECISION": "ieee"},
        num_warps=2,
    )
    launched(
        code, [a.astype(names[left][1]).view(np.uint8), b.astype(names[right][1]).view(np.uint8), c]
    )
    np.testing.assert_array_equal(c, a @ b)
    own = {"gfx942": "mfma", "gfx950": "mfma", "gfx1201": "wmma"}
    listing = code.stages["amdgcn"]
    assert isinstance(listing, str)
    if arch in own:
        assert {"e4e5": "bf8_fp8", "e5e4": "fp8_bf8"}[
            left + right
        ] in listing and f"v_{own[arch]}" in listing


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("shape", "pack", "name"),
    [
        ((64, 64, 128), 1, "32x32x64"),
        ((32, 32, 256), 1, "16x16x128"),
        ((64, 64, 256), 2, "32x32x64"),
    ],
)
@pytest.mark.parametrize(("left", "right"), [("fp8e4nv", "fp8e5"), ("fp8e5", "fp8e4nv")])
def test_deep_products_of_fp8_take_the_deepest_instructions(
    shape: tuple[int, int, int], pack: int, name: str, left: str, right: str
) -> None:
    types = {"fp8e4nv": ml_dtypes.float8_e4m3fn, "fp8e5": ml_dtypes.float8_e5m2}
    (m, n, k), rng = shape, np.random.default_rng(9)
    a, b, c = (
        rng.integers(-4, 5, (m, k)).astype(types[left]),
        rng.integers(-4, 5, (k, n)).astype(types[right]),
        np.full((m, n), np.nan, np.float32),
    )
    constants = {"M": m, "N": n, "K": k, "PRECISION": "ieee"}
    code = listed(
        kernels.product,
        f"a=*{left}:16, b=*{right}:16, c=*fp32:16",
        "gfx950",
        constants,
        num_warps=4,
        kpack=pack,
    )
    covered = launched(code, [a.view(np.uint8), b.view(np.uint8), c], schedule="random")
    assert f"v_mfma_f32_{name}_f8f6f4" in covered
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("schedule", ["lockstep", "random"])
@pytest.mark.parametrize("arch", ARCHS)
def test_a_failed_assertion_tells_which_it_was(arch: str, schedule: str) -> None:
    code = listed(
        kernels.asserted,
        "x=*i32:16, least=i32, greatest=i32, out=*i32:16",
        arch,
        {"N": 256},
        debug=True,
    )
    x, out = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)
    launched(code, [x, 0, 255, out], schedule=schedule)
    np.testing.assert_array_equal(out, x)
    for least, greatest, message in ((1, 255, "too small"), (0, 254, "too great")):
        with pytest.raises(
            AssertionFailed,
            match=rf"an assertion failed: {message} \(.*amd_kernels\.py:\d+, in asserted\)",
        ):
            launched(code, [x, least, greatest, out], schedule=schedule)


def test_extents_of_instructions_are_chosen_and_asked_for() -> None:
    signature, constants = (
        "a=*fp16:16, b=*fp16:16, c=*fp32:16",
        {"M": 64, "N": 64, "K": 64, "PRECISION": "ieee"},
    )
    for options, expected in (({}, "32x32x8"), ({"matrix_instr_nonkdim": 16}, "16x16x16")):
        listing = listed(
            kernels.product, signature, "gfx942", constants, num_warps=4, **options
        ).stages["amdgcn"]
        assert isinstance(listing, str) and f"v_mfma_f32_{expected}_f16" in listing


def bits_of(numbers: np.ndarray) -> np.ndarray:
    """Of numbers that bf16 holds."""
    return (numbers.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_fast_division_is_a_reciprocal_and_a_product(arch: str) -> None:
    signature = "x=*fp32:16, y=*fp32:16, out=*fp32:16"
    fast, strict = (
        str(listed(kernels.fast_quotient, signature, arch, {"N": 128}, math=math).stages["amdgcn"])
        for math in ("relaxed", "strict")
    )
    assert "v_rcp_f32" in fast and "v_frexp_mant" not in fast and "v_div_scale" not in fast
    assert "v_div_scale" in strict
    rng = np.random.default_rng(3)
    x, y = (
        np.ldexp(rng.uniform(-2, 2, 128), rng.integers(-60, 60, 128)).astype(np.float32)
        for _ in range(2)
    )
    found = np.full(128, np.nan, np.float32)
    launched(listed(kernels.fast_quotient, signature, arch, {"N": 128}), [x, y, found])
    wanted = x.astype(np.float64) / y
    assert (np.abs(found - wanted) <= 3 * np.spacing(np.abs(wanted).astype(np.float32))).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_integers_become_f16_through_f32(arch: str) -> None:
    """What f32 rounds is infinite in f16: the one rounding is the second."""
    code = listed(kernels.converted, "x=*i32:16, out=*fp16:16", arch, {"N": 1024})
    assert "_f64" not in str(code.stages["amdgcn"])
    x = np.random.default_rng(1).integers(-70000, 70000, 1024).astype(np.int32)
    x[:8] = 2049, 2051, 65519, 65520, -65521, 2**24 + 1, 2**31 - 1, -(2**31)
    out = np.zeros(1024, np.float16)
    launched(code, [x, out])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, x.astype(np.float64).astype(np.float16))


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100"])
def test_a_relaxed_fma_of_bf16_rounds_to_f32_first(arch: str) -> None:
    rng = np.random.default_rng(2)
    x, y, z = (
        bits_of(np.ldexp(rng.uniform(-2, 2, 1024), rng.integers(-8, 8, 1024)).astype(np.float32))
        for _ in range(3)
    )
    # 1 * (1 + 2**-7) + 2**-8 is a middle, 2**-40 more is not; the product that overflows, and those
    # with and of NaN
    x[:5], y[:5] = (
        bits_of(np.array([1, 1, 2**100, np.inf, np.nan], np.float32)),
        bits_of(np.array([1, 1, 2**100, 0, 1], np.float32)),
    )
    z[:5] = bits_of(np.array([2**-8, 2**-40, -(2**100), 1, 1], np.float32))
    numbers = [
        (each.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for each in (x, y, z)
    ]
    with np.errstate(invalid="ignore"):
        exact = numbers[0] * numbers[1] + numbers[2]
    for math, bound in (("relaxed", 0.5 + 2**-16), ("strict", 0.5)):
        code = listed(
            kernels.fused,
            "x=*bf16:16, y=*bf16:16, z=*bf16:16, out=*bf16:16",
            arch,
            {"N": 1024},
            math=math,
        )
        assert ("_f64" in str(code.stages["amdgcn"])) == (math == "strict")
        out = np.zeros(1024, np.uint16)
        launched(code, [x, y, z, out])
        found = (out.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        assert np.isnan(found[3:5]).all() and found[2] == np.inf
        finite = np.r_[0:2, 5:1024]
        error = (
            np.abs(found - exact)[finite]
            / np.spacing(np.abs(exact[finite]).astype(np.float32))
            / 2**16
        )
        assert error.max() <= bound


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_a_relaxed_logarithm_is_the_machine_s(arch: str) -> None:
    relaxed, strict = (
        listed(kernels.logarithm, "x=*fp32:16, out=*fp32:16", arch, {"N": 1024}, math=math)
        for math in ("relaxed", "strict")
    )
    assert "v_log_f32" in str(relaxed.stages["amdgcn"]) and "v_log_f32" not in str(
        strict.stages["amdgcn"]
    )
    rng = np.random.default_rng(4)
    x = np.ldexp(rng.uniform(1, 2, 1024), rng.integers(-149, 127, 1024)).astype(np.float32)
    x[:128] = 1 + rng.uniform(-1, 1, 128) * 2.0 ** -rng.integers(1, 24, 128)
    x[128:134] = 0, -0.0, -1, np.inf, np.nan, 1
    found = np.zeros(1024, np.float32)
    launched(relaxed, [x, found])
    with np.errstate(all="ignore"):
        wanted = np.log(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_max_ulp(found[np.isfinite(wanted)], wanted[np.isfinite(wanted)], 4)
    np.testing.assert_array_equal(found[~np.isfinite(wanted)], wanted[~np.isfinite(wanted)])


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_what_a_reduction_decides_is_a_branch_of_the_wave(arch: str) -> None:
    code = listed(kernels.until_found, "x=*i32:16, out=*i32:16, n=i32", arch, {"N": 256})
    text = str(code.stages["amdgcn"])
    assert re.search(r"v_readfirstlane_b32 (s\d+), v\d+\n(?:.*\n)*?\ts_cmp_gt_i32 \1, 0\n", text)
    x, out = np.zeros((7, 256), np.int32), np.zeros(1, np.int32)
    x[4, 200] = x[6, 3] = 1
    for rows, expected in ((7, 5), (3, 3)):
        launched(code, [x, out, rows])
        assert out[0] == expected


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_warps_that_store_nothing_skip_short_loops(arch: str) -> None:
    """A tile of as many elements as a wave has lanes: of four waves one loads, and adds the four
    rows without a loop."""
    row = 64 if arch == "gfx942" else 32
    code = listed(
        kernels.few_gathered,
        "x=*fp32:16, rows=*i32:16, out=*fp32:16",
        arch,
        {"N": row},
        num_warps=4,
    )
    assert "s_barrier" not in str(code.stages["amdgcn"])
    x, rows, out = (
        np.random.default_rng(0).integers(0, 9, (8, 3 * row)).astype(np.float32),
        np.array([5, 0, 7, 5], np.int32),
        np.zeros(3 * row, np.float32),
    )
    covered = launched(code, [x, rows, out])
    np.testing.assert_array_equal(out, x[rows].sum(0))
    assert covered["s_endpgm"] == 4 and covered["v_add_f32"] <= 12


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_library_function_takes_a_product_as_it_was_rounded(arch: str) -> None:
    """A product that rounds to a tie, or to a number whose sum with another is exact, is that
    number for the function, and not the exact product."""
    rng = np.random.default_rng(5)
    factor = rng.uniform(0.5, 1.5, 1024).astype(np.float32)
    other = (rng.integers(1, 127, 1024) + 0.5).astype(np.float32) / factor
    product, exact = factor * other, factor.astype(np.float64) * other
    tie = product % 1 == 0.5
    assert (exact < product)[tie].any() and (exact > product)[tie].any()
    found = np.full(1024, np.nan, np.float32)
    launched(
        listed(kernels.rounded_product, "x=*fp32:16, y=*fp32:16, out=*fp32:16", arch, {"N": 1024}),
        [factor, other, found],
    )
    assert np.array_equal(found, np.floor(product.astype(np.float64) + 0.5))

    wide, second = rng.uniform(1, 2, (2, 1024))
    total = np.full(1024, np.nan)
    signature = "x=*fp64:16, y=*fp64:16, z=*fp64:16, out=*fp64:16"
    launched(
        listed(kernels.product_and_sum_rounded_down, signature, arch, {"N": 1024}),
        [wide, second, second, total],
    )
    assert np.array_equal(
        total, [_sum_rounded_down(a, b) for a, b in zip(wide * second, second, strict=True)]
    )


def _sum_rounded_down(a: float, b: float) -> float:
    nearest = a + b
    return (
        float(np.nextafter(nearest, -np.inf))
        if Fraction(nearest) > Fraction(a) + Fraction(b)
        else nearest
    )


@pytest.mark.parametrize(
    ("arch", "pairs"), [("gfx942", False), ("gfx950", True), ("gfx1100", True), ("gfx1201", True)]
)
def test_small_products_of_bf16_add_two_at_once(arch: str, pairs: bool) -> None:
    """Of fewer rows than a matrix instruction has."""
    rows, columns, depth = 4, 64, 16
    code = listed(
        kernels.product,
        "a=*bf16:16, b=*bf16:16, c=*fp32:16",
        arch,
        {"M": rows, "N": columns, "K": depth, "PRECISION": "ieee"},
    )
    text = str(code.stages["amdgcn"])
    assert (
        len(re.findall(r"v_(?:dual_)?dot2c?(?:acc)?_f32_bf16", text))
        == (rows * columns * depth // 2 // (256 if "gfx9" in arch else 128)) * pairs
    )
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        for shape in ((rows, depth), (depth, columns))
    )
    c = np.zeros((rows, columns), np.float32)
    launched(code, [a.view(np.uint16), b.view(np.uint16), c])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-6)
