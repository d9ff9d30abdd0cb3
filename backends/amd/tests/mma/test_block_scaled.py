"""Block-scaled matmuls by scaling MFMA instructions: results and machine code."""

from __future__ import annotations

from typing import Any

import amd_kernels as kernels
import ml_dtypes
import numpy as np
import pytest
from amd_emulated import launched
from amd_support import compiled, sections

from tilewright.plugins.manifest import CodeObject

Array = np.ndarray[Any, Any]
_TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def operand(rng: np.random.Generator, format_: str, rows: int, k: int) -> tuple[Array, Array]:
    """Bytes, pairs of e2m1 along k, and the numbers that they stand for."""
    if format_ == "e2m1":
        codes = rng.integers(0, 16, (rows, k)).astype(np.uint8)
        return codes[:, 0::2] | codes[:, 1::2] << 4, codes.view(ml_dtypes.float4_e2m1fn).astype(
            np.float64
        )
    values = rng.standard_normal((rows, k)).astype(_TYPES[format_])
    return values.view(np.uint8), values.astype(np.float64)


def close(found: Array, left: Array, right: Array, c: Any = 0) -> None:
    """Compare each element with left @ right.T + c, up to the rounding of the sum."""
    wrong = ~(
        np.abs(found - (left @ right.T + c)) <= 1e-6 * (np.abs(left) @ np.abs(right).T + np.abs(c))
    )
    assert not wrong.any(), (np.argwhere(wrong)[:4], found[wrong][:4])


def code_for(
    formats: tuple[str, str],
    shape: tuple[int, int, int],
    *,
    arch: str = "gfx950",
    trips: int = 1,
    scales: tuple[bool, bool] = (True, True),
    **own: Any,
) -> CodeObject:
    m, n, k = shape
    signature = (
        "a=*u8:16, a_scale=*u8:16, b=*u8:16, b_scale=*u8:16, c=*fp32:16, out=*fp32:16, trips=i32"
    )
    constants = {
        "A": formats[0],
        "B": formats[1],
        "M": m,
        "N": n,
        "K": k,
        "SCALES": scales,
        "TRIPS": trips,
    }
    return compiled(kernels.scaled, signature, arch, constants, **own)


def issued(code: CodeObject) -> list[str]:
    """The instructions that scale, of the assembly."""
    listing = code.stages["amdgcn"]
    assert isinstance(listing, str)
    return [line.split()[0] for line in listing.splitlines() if line.startswith("\tv_mfma_scale")]


CASES = [
    (("e4m3", "e4m3"), (32, 32, 128), 1, "32x32x64", 2),
    (("e4m3", "e5m2"), (16, 32, 256), 1, "16x16x128", 4),
    (("e2m1", "e5m2"), (64, 32, 128), 4, "16x16x128", 2),
    (("e5m2", "e2m1"), (128, 64, 64), 4, "32x32x64", 2),
    (("e2m1", "e2m1"), (32, 64, 256), 2, "32x32x64", 4),
    (("e2m1", "e4m3"), (16, 16, 128), 4, "16x16x128", 1),
    (("e5m2", "e4m3"), (64, 64, 256), 1, "32x32x64", 16),
]


@pytest.mark.each_value
@pytest.mark.parametrize("schedule", ["lockstep", "random"])
@pytest.mark.parametrize(("formats", "shape", "warps", "name", "count"), CASES)
def test_products_are_scaled_by_the_instructions(
    formats: tuple[str, str],
    shape: tuple[int, int, int],
    warps: int,
    name: str,
    count: int,
    schedule: str,
) -> None:
    """Three times over, in a loop, each with other operands; accumulator go on from c. A warp has
    so many instructions in an iteration."""
    (m, n, k), trips = shape, 3
    rng = np.random.default_rng(m + n + k)
    code = code_for(formats, shape, trips=trips, num_warps=warps)
    assert issued(code) == [f"v_mfma_scale_f32_{name}_f8f6f4"] * count
    (a, a_values), (b, b_values) = (
        operand(rng, formats[0], m, trips * k),
        operand(rng, formats[1], n, trips * k),
    )
    scales = [rng.integers(118, 136, (rows, trips * k // 32)).astype(np.uint8) for rows in (m, n)]
    c, out = rng.standard_normal((m, n)).astype(np.float32), np.full((m, n), np.nan, np.float32)
    covered = launched(
        code,
        [a, scales[0], np.ascontiguousarray(b.T), scales[1], c, out, trips],
        schedule=schedule,
        seed=m,
    )
    assert f"v_mfma_scale_f32_{name}_f8f6f4" in covered
    left, right = (
        values * np.repeat(2.0 ** (scale - 127.0), 32, 1)
        for values, scale in zip((a_values, b_values), scales, strict=True)
    )
    close(out, left, right, c)


def test_operands_and_scales_are_loaded_ahead() -> None:
    """One barrier an iteration, and reads in the instructions' layouts: what is loaded goes through
    LDS once."""
    for stages, ahead in ((2, 4), (1, 0)):
        code = code_for(("e4m3", "e2m1"), (64, 64, 128), trips=4, num_stages=stages)
        simt, listing = code.stages["simt"], code.stages["amdgcn"]
        assert isinstance(simt, str) and isinstance(listing, str)
        _, body = simt.split(" for ", 1)
        assert body.count("simt.load_start") == ahead, body
        assert "= shared<64x128>" not in simt, (
            "rows of 128 bytes below each other are read from the same banks"
        )
        hot = max(listing.split("\n.LBB"), key=lambda block: block.count("v_mfma_scale"))
        assert (hot.count("s_barrier") == 1) is (ahead > 0), hot


@pytest.mark.parametrize("given", [(True, False), (False, True), (False, False)])
def test_operands_without_scales_are_taken_as_they_are(given: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(7)
    code = code_for(("e4m3", "e2m1"), (32, 16, 128), scales=given, num_warps=2)
    assert len(issued(code)) == 1
    (a, left), (b, right) = operand(rng, "e4m3", 32, 128), operand(rng, "e2m1", 16, 128)
    scales = [rng.integers(120, 132, (rows, 4)).astype(np.uint8) for rows in (32, 16)]
    left, right = (
        values * (np.repeat(2.0 ** (scale - 127.0), 32, 1) if own else 1)
        for values, scale, own in zip((left, right), scales, given, strict=True)
    )
    out = np.full((32, 16), np.nan, np.float32)
    launched(code, [a, scales[0], np.ascontiguousarray(b.T), scales[1], np.zeros_like(out), out, 1])
    close(out, left, right)


def test_a_scale_that_is_no_number_spoils_its_row_alone() -> None:
    rng = np.random.default_rng(8)
    (a, left), (b, right) = operand(rng, "e4m3", 32, 128), operand(rng, "e4m3", 32, 128)
    scales = [np.full((32, 4), 127, np.uint8) for _ in range(2)]
    scales[0][5, 2], scales[1][9, 0] = 255, 0
    right[9, :32] *= 2.0**-127
    out = np.full((32, 32), 7, np.float32)
    launched(
        code_for(("e4m3", "e4m3"), (32, 32, 128)),
        [a, scales[0], np.ascontiguousarray(b.T), scales[1], np.zeros_like(out), out, 1],
    )
    assert np.isnan(out[5]).all()
    left[5], out[5] = 0, 0
    close(out, left, right)


def test_the_option_asks_for_rows_and_columns() -> None:
    for extent, name in ((16, "16x16x128"), (32, "32x32x64"), (0, "32x32x64")):
        assert set(
            issued(code_for(("e4m3", "e4m3"), (64, 64, 128), matrix_instr_nonkdim=extent))
        ) == {f"v_mfma_scale_f32_{name}_f8f6f4"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("formats", "shape", "own"),
    [
        (("e4m3", "e4m3"), (16, 32, 64), {}),  # smaller than the instructions
        (("e4m3", "e4m3"), (32, 32, 128), {"arch": "gfx942"}),
        (("e4m3", "e4m3"), (32, 32, 128), {"arch": "gfx1201"}),
    ],
)
def test_other_products_are_of_operands_that_were_scaled(
    formats: tuple[str, str], shape: tuple[int, int, int], own: dict[str, Any]
) -> None:
    assert not issued(code_for(formats, shape, **own))


def test_formats_that_the_instructions_lack_are_scaled_before() -> None:
    for format_, packed in (("bf16", True), ("e2m1", False)):
        code = compiled(
            kernels.scaled_otherwise,
            "a=*u8:16, a_scale=*u8:16, b=*bf16:16, out=*fp32:16",
            "gfx950",
            {"A": format_, "PACKED": packed},
        )
        assert not issued(code)


@pytest.mark.parametrize(
    ("formats", "codes"), [(("e4m3", "e5m2"), (1, 0)), (("e2m1", "e2m1"), (4, 4))]
)
def test_the_instruction_is_in_the_machine_code(
    formats: tuple[str, str], codes: tuple[int, int]
) -> None:
    """Of 16 bytes: the scales' half, 0xD3AC, before that of the matmul, 0xD3AD, which has the
    formats of both operands."""
    code = code_for(formats, (16, 16, 128), num_warps=1)
    kind, _, offset, size = sections(code.binary)[".text"]
    assert kind == 1
    words = np.frombuffer(code.binary[offset : offset + size], np.uint32)
    (places,) = np.nonzero((words[:-2] >> 16 == 0xD3AC) & (words[2:] >> 16 == 0xD3AD))
    assert len(places) == len(issued(code)) == 1
    low, high = words[places[0] + 2 : places[0] + 4]
    assert (int(low) >> 8 & 7, int(high) >> 29) == codes
