"""Block-scaled matmuls whose scales exceed the range of bf16 and f16, while their results do not.

Results are compared with float64.
"""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright as tw
import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.ir.types import BF16, F16
from tilewright.passes import pipeline
from tilewright.passes.clone import clone_module
from tilewright.reference.interpreter import run as run_reference
from tilewright.simt import emulator
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.passes.inline_and_expand import prepare
from tilewright.simt.passes.scaled.scaled_operands import safe_codes

Array = NDArray[Any]

M, N, K, TRIPS = 16, 16, 64, 2
POINTERS = {"e2m1": "*u8", "e4m3": "*fp8e4nv", "e5m2": "*fp8e5", "bf16": "*bf16", "fp16": "*fp16"}
NUMBERS = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@tw.jit
def product(
    a,
    sa,
    b,
    sb,
    out,
    trips,
    A: tl.constexpr,
    B: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    HAS: tl.constexpr,
    FORM: tl.constexpr,
):
    """Combine matmuls of pieces along K.

    FORM 1 takes their maximum with 0, and FORM 2 sums them with stores in between.
    """
    i, j, g = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 32)
    OF_A: tl.constexpr = K // 2 if A == "e2m1" else K
    OF_B: tl.constexpr = K // 2 if B == "e2m1" else K
    at = out + i[:, None] * N + j[None, :]
    total = tl.zeros((M, N), tl.float32)
    for k in range(trips):
        x = tl.load(a + k * M * OF_A + i[:, None] * OF_A + tl.arange(0, OF_A)[None, :])
        y = tl.load(b + k * N * OF_B + j[None, :] * OF_B + tl.arange(0, OF_B)[:, None])
        s, t = None, None
        if HAS[0]:
            s = tl.load(sa + k * M * (K // 32) + i[:, None] * (K // 32) + g[None, :])
        if HAS[1]:
            t = tl.load(sb + k * N * (K // 32) + j[:, None] * (K // 32) + g[None, :])
        if FORM == 1:
            total = tl.maximum(total, tl.dot_scaled(x, s, A, y, t, B))
        else:
            total = tl.dot_scaled(x, s, A, y, t, B, total)
        if FORM == 2:
            tl.store(at, total)
    tl.store(at, total)


@functools.cache
def module(formats: tuple[str, str], has: tuple[bool, bool], form: int) -> Module:
    constants = {"A": formats[0], "B": formats[1], "M": M, "N": N, "K": K, "HAS": has, "FORM": form}
    types = {
        "a": POINTERS[formats[0]],
        "sa": "*u8",
        "b": POINTERS[formats[1]],
        "sb": "*u8",
        "out": "*fp32",
        "trips": "i32",
    }
    made = compile_function(product, {**types, **dict.fromkeys(constants, "constexpr")}, constants)
    pipeline.run(made)
    return made


@functools.cache
def expanded(formats: tuple[str, str], has: tuple[bool, bool], form: int) -> Module:
    made = clone_module(module(formats, has, form))
    prepare(made, EmulatedTarget())
    return made


def drawn(rng: np.random.Generator, format_: str, rows: int, power: int = 0) -> tuple[Array, Array]:
    """Finite elements of every size [TRIPS, rows, K], subnormal ones too, and what they stand
    for."""
    if format_ == "e2m1":
        given = rng.integers(0, 256, (TRIPS, rows, K // 2)).astype(np.uint8)
        return given, np.stack([E2M1[given & 15], E2M1[given >> 4]], -1).reshape(TRIPS, rows, K)
    if format_ in ("e4m3", "e5m2"):
        codes = np.arange(256, dtype=np.uint8)
        finite = codes[np.isfinite(codes.view(NUMBERS[format_]).astype(np.float32))]
        given = rng.choice(finite, (TRIPS, rows, K))
        return given, given.view(NUMBERS[format_]).astype(np.float64)
    sizes = rng.integers(-24, 10, (TRIPS, rows, K)).astype(np.float64)
    numbers = (rng.standard_normal(sizes.shape) * np.exp2(sizes + power)).astype(NUMBERS[format_])
    return numbers, numbers.astype(np.float64)


def check(
    formats: tuple[str, str],
    codes: tuple[int | None, int | None],
    form: int = 0,
    power: int = 0,
    *,
    threads: bool = False,
    seed: int = 0,
) -> None:
    rng = np.random.default_rng(seed)
    given, scaled = [], []
    for format_, code, rows in zip(formats, codes, (M, N), strict=True):
        elements, values = drawn(rng, format_, rows, power)
        scale = np.clip((code or 0) + rng.integers(-1, 2, (TRIPS, rows, K // 32)), 0, 254).astype(
            np.uint8
        )
        given += [elements, scale]
        scaled.append(
            values if code is None else values * np.repeat(np.exp2(scale - 127.0), 32, -1)
        )
    pieces = scaled[0] @ scaled[1].swapaxes(1, 2)
    exact = np.maximum(pieces.max(0), 0) if form == 1 else pieces.sum(0)
    magnitude = (np.abs(scaled[0]) @ np.abs(scaled[1]).swapaxes(1, 2)).sum(0)
    out, has = np.full((M, N), np.nan, np.float32), (codes[0] is not None, codes[1] is not None)
    if threads:
        emulator.run(clone_module(module(formats, has, form)), [*given, out, TRIPS], num_warps=2)
    else:
        run_reference(expanded(formats, has, form), [*given, out, TRIPS], (1, 1, 1))
    assert np.all((np.abs(out - exact) <= magnitude * 2e-6 + 1e-43) | (magnitude > 3e38))
    assert np.any(magnitude < 3e38)


PAIRS = [(254, 1), (0, 254), (253, 30), (20, 235), (0, 127), (0, 0), (110, 140)]


@pytest.mark.each_value
@pytest.mark.parametrize("form", [0, 1, 2])
@pytest.mark.parametrize(
    "formats",
    [
        ("e4m3", "e4m3"),
        ("e2m1", "e5m2"),
        ("bf16", "e4m3"),
        ("e5m2", "bf16"),
        ("fp16", "e2m1"),
        ("bf16", "fp16"),
    ],
    ids="-".join,
)
def test_scales_of_any_size_give_what_they_stand_for(formats: tuple[str, str], form: int) -> None:
    for seed, codes in enumerate(PAIRS):
        check(formats, codes, form, seed=seed)


@pytest.mark.parametrize(
    ("formats", "codes", "power"),
    [
        (("bf16", "e4m3"), (None, 253), -110),
        (("bf16", "e5m2"), (None, 0), 110),
        (("fp16", "e4m3"), (None, 160), 0),
        (("fp16", "e5m2"), (None, 90), 0),
        (("e2m1", "fp16"), (240, None), 0),
        (("e4m3", "e5m2"), (0, None), 0),
        (("e2m1", "e4m3"), (None, 0), 0),
    ],
)
def test_scales_of_one_side(
    formats: tuple[str, str], codes: tuple[int | None, int | None], power: int
) -> None:
    for form in (0, 2):
        check(formats, codes, form, power)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("formats", "codes"),
    [(("e4m3", "e4m3"), (254, 1)), (("fp16", "e4m3"), (None, 160)), (("bf16", "e2m1"), (1, 250))],
)
@pytest.mark.parametrize("form", [0, 1])
def test_threads_compute_them(
    formats: tuple[str, str], codes: tuple[int | None, int | None], form: int
) -> None:
    check(formats, codes, form, threads=True)


@pytest.mark.parametrize("format_", ["e2m1", "e4m3", "e5m2"])
@pytest.mark.parametrize("end", [0, 1])
def test_the_ends_of_safe_codes_keep_all_bits(format_: str, end: int) -> None:
    """Times a scale within, every element is itself in bf16, and normal, and in f16; one step
    further one is not."""
    values = (
        E2M1
        if format_ == "e2m1"
        else np.arange(256, dtype=np.uint8).view(NUMBERS[format_]).astype(np.float64)
    )
    values = values[np.isfinite(values)]
    for type_, dtype, least in ((BF16, ml_dtypes.bfloat16, 2.0**-126), (F16, np.float16, 0.0)):
        code, outwards = safe_codes(format_, type_)[end], (-1, 1)[end]
        inside, outside = (values * 2.0 ** (one - 127) for one in (code, code + outwards))

        def kept(scaled: Array, dtype: Any = dtype, least: float = least) -> bool:
            with np.errstate(over="ignore"):
                same = scaled.astype(dtype).astype(np.float64) == scaled
            return bool(np.all(same & ((scaled == 0) | (np.abs(scaled) >= least))))

        assert kept(inside) and not kept(outside)


def test_without_scales_nothing_is_tested() -> None:
    names = {
        operation.name for operation in expanded(("e4m3", "bf16"), (False, False), 0).kernel.walk()
    }
    assert "dot" in names and "if" not in names and "reduce" not in names


@pytest.mark.parametrize(("special", "where"), [(np.inf, 0), (np.nan, 0), (-np.inf, 1)])
def test_what_is_not_finite_beside_such_scales(special: float, where: int) -> None:
    """An infinite element, or one that is NaN, spoils its row or column alone, beside elements of
    other windows of exponents; so does a scale."""
    a, b = (
        np.full((TRIPS, M, K), 1024, ml_dtypes.float8_e5m2),
        np.full((TRIPS, N, K), 1, ml_dtypes.float8_e5m2),
    )
    sa, sb = np.full((TRIPS, M, K // 32), 250, np.uint8), np.full((TRIPS, N, K // 32), 1, np.uint8)
    sa[:, ::2], sb[0, ::3] = 10, 100
    (a, b)[where][0, 5, 3] = special
    sa[1, 7, 1] = 255
    out = np.zeros((M, N), np.float32)
    given = [
        array.view(np.uint8) if array.dtype == ml_dtypes.float8_e5m2 else array
        for array in (a, sa, b, sb)
    ]
    run_reference(expanded(("e5m2", "e5m2"), (True, True), 0), [*given, out, TRIPS], (1, 1, 1))
    factors = [np.where(scale == 255, np.nan, np.exp2(scale - 127.0)) for scale in (sa, sb)]
    left, right = (
        array.astype(np.float64) * np.repeat(factor, 32, -1)
        for array, factor in zip((a, b), factors, strict=True)
    )
    exact = (left @ right.swapaxes(1, 2)).sum(0).astype(np.float32)
    np.testing.assert_allclose(out, exact, rtol=1e-6)
    assert np.isfinite(exact).any()
