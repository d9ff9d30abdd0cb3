"""Matrix instructions against NumPy matmuls.

The positions of elements are those of AMD's matrix instruction calculator, written out by hand
here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from wave_kernels import execute

from tilewright_amd_emulator import WaveError

Array = np.ndarray[Any, Any]
Place = Callable[[int, int], tuple[int, int, int]]

_TYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "xf32": np.float32,
    "f64": np.float64, "i8": np.int8,
    "fnuz_fp8": ml_dtypes.float8_e4m3fnuz, "fnuz_bf8": ml_dtypes.float8_e5m2fnuz,
    "fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2,
}  # fmt: skip


def numbers(rng: Any, kind: str, shape: tuple[int, ...]) -> Array:
    """Small numbers that every type has exactly, so that sums are exact in any order."""
    return np.asarray(rng.integers(-3, 4, shape)).astype(_TYPES[kind])


def held(matrix: Array, place: Place, count: int, lanes: int) -> Array:
    """uint32 [registers, lanes]: ``count`` elements of [block, row, column] in each lane."""
    elements = np.array([[matrix[place(lane, e)] for e in range(count)] for lane in range(lanes)])
    return np.ascontiguousarray(elements).view(np.uint8).reshape(lanes, -1).view(np.uint32).T


def unheld(
    words: list[Array], place: Place, dtype: Any, shape: tuple[int, ...], lanes: int
) -> Array:
    values = np.ascontiguousarray(np.stack(words, axis=1)).view(dtype)
    out = np.full(shape, 99, np.float64)
    for lane in range(lanes):
        for element in range(values.shape[1]):
            out[place(lane, element)] = values[lane, element]
    return out


def multiply(
    target: str,
    text: str,
    a: Array,
    b: Array,
    c: Array,
    places: tuple[Place, Place, Place],
    counts: tuple[int, int, int],
    lanes: int,
    kind: Any,
) -> Array:
    """Run ``text`` with A from v8, B from v24 and C (and D) from v40: D as [block, row, column];
    ``places`` are those of A (row, k), B (column, k) and C."""
    inputs = {}
    for first, matrix, place, count in zip(
        (8, 24, 40), (a, b.swapaxes(1, 2), c), places, counts, strict=True
    ):
        for i, words in enumerate(held(matrix, place, count, lanes)):
            inputs[first + i] = words
    registers = counts[2] * np.dtype(kind).itemsize // 4
    out = execute(target, text, inputs, [40 + i for i in range(registers)])
    return unheld(out, places[2], kind, c.shape, lanes)


def _d32(lane: int, e: int) -> tuple[int, int, int]:
    return e // 16, 8 * (e % 16 // 4) + 4 * (lane // 32) + e % 4, lane % 32


def _d16(lane: int, e: int) -> tuple[int, int, int]:
    return e // 4, 4 * (lane // 16) + e % 4, lane % 16


#: target, mnemonic, rows and columns, depth, blocks, elements of A in a lane, kind, result
_MFMA = [
    ("gfx90a", "v_mfma_f32_32x32x8f16", 32, 8, 1, 4, "f16", np.float32),
    ("gfx90a", "v_mfma_f32_16x16x16bf16_1k", 16, 16, 1, 4, "bf16", np.float32),
    ("gfx90a", "v_mfma_f32_32x32x2f32", 32, 2, 1, 1, "f32", np.float32),
    ("gfx90a", "v_mfma_i32_16x16x16i8", 16, 16, 1, 4, "i8", np.int32),
    ("gfx942", "v_mfma_f32_32x32x8_f16", 32, 8, 1, 4, "f16", np.float32),
    ("gfx942", "v_mfma_f32_16x16x16_bf16", 16, 16, 1, 4, "bf16", np.float32),
    ("gfx942", "v_mfma_f32_16x16x8_xf32", 16, 8, 1, 2, "xf32", np.float32),
    ("gfx942", "v_mfma_f32_32x32x4_2b_f16", 32, 4, 2, 4, "f16", np.float32),
    ("gfx942", "v_mfma_f32_16x16x4_4b_f16", 16, 4, 4, 4, "f16", np.float32),
    ("gfx942", "v_mfma_f32_32x32x16_fp8_fp8", 32, 16, 1, 8, "fnuz_fp8", np.float32),
    ("gfx942", "v_mfma_f32_16x16x32_bf8_bf8", 16, 32, 1, 8, "fnuz_bf8", np.float32),
    ("gfx942", "v_mfma_i32_32x32x16_i8", 32, 16, 1, 8, "i8", np.int32),
    ("gfx950", "v_mfma_f32_32x32x16_f16", 32, 16, 1, 8, "f16", np.float32),
    ("gfx950", "v_mfma_f32_16x16x32_bf16", 16, 32, 1, 8, "bf16", np.float32),
    ("gfx950", "v_mfma_f32_32x32x16_fp8_fp8", 32, 16, 1, 8, "fp8", np.float32),
    ("gfx950", "v_mfma_i32_16x16x64_i8", 16, 64, 1, 16, "i8", np.int32),
]


@pytest.mark.parametrize(
    ("target", "name", "size", "depth", "blocks", "count", "kind", "result"), _MFMA
)
def test_mfma(
    target: str, name: str, size: int, depth: int, blocks: int, count: int, kind: str, result: Any
) -> None:
    rng = np.random.default_rng(21)
    a, b = numbers(rng, kind, (blocks, size, depth)), numbers(rng, kind, (blocks, depth, size))
    c = np.asarray(rng.integers(-9, 9, (blocks, size, size))).astype(result)

    def operand(lane: int, e: int) -> tuple[int, int, int]:
        group = lane // size
        return (group, lane % size, e) if blocks > 1 else (0, lane % size, group * count + e)

    words = count * np.dtype(_TYPES[kind]).itemsize // 4
    elements = blocks * size * size // 64
    last = 40 + elements - 1
    registers = [
        f"v[{first}:{first + words - 1}]" if words > 1 else f"v{first}" for first in (8, 24)
    ]
    text = f"{name} v[40:{last}], {registers[0]}, {registers[1]}, v[40:{last}]"
    d = multiply(
        target,
        text,
        a,
        b,
        c,
        (operand, operand, _d32 if size == 32 else _d16),
        (count, count, elements),
        64,
        result,
    )
    np.testing.assert_array_equal(d, a.astype(np.float64) @ b.astype(np.float64) + c)


def test_mfma_with_a_constant_and_accumulation_registers() -> None:
    rng = np.random.default_rng(22)
    a, b = numbers(rng, "f16", (1, 16, 16)), numbers(rng, "f16", (1, 16, 16))

    def operand(lane: int, e: int) -> tuple[int, int, int]:
        return 0, lane % 16, lane // 16 * 4 + e

    text = "v_mfma_f32_16x16x16_f16 a[0:3], v[8:9], v[24:25], 1.0\n" + "\n".join(
        f"v_accvgpr_read_b32 v{40 + i}, a{i}" for i in range(4)
    )
    d = multiply(
        "gfx942",
        text,
        a,
        b,
        np.zeros((1, 16, 16), np.float32),
        (operand, operand, _d16),
        (4, 4, 4),
        64,
        np.float32,
    )
    np.testing.assert_array_equal(d, a.astype(np.float64) @ b.astype(np.float64) + 1)


def test_mfma_of_f64() -> None:
    rng = np.random.default_rng(23)
    a, b, c = (
        rng.standard_normal((1, 16, 4)),
        rng.standard_normal((1, 4, 16)),
        rng.standard_normal((1, 16, 16)),
    )

    def operand(lane: int, e: int) -> tuple[int, int, int]:
        return 0, lane % 16, lane // 16

    def result(lane: int, e: int) -> tuple[int, int, int]:
        return 0, 4 * e + lane // 16, lane % 16

    text = "v_mfma_f64_16x16x4_f64 v[40:47], v[8:9], v[24:25], v[40:47]"
    d = multiply("gfx942", text, a, b, c, (operand, operand, result), (1, 1, 4), 64, np.float64)
    np.testing.assert_allclose(d, a @ b + c, rtol=1e-14)


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize(
    ("kinds", "codes"),
    [
        (("fp8", "fp8"), (0, 0)),
        (("bf8", "fp4"), (1, 4)),
        (("fp4", "fp4"), (4, 4)),
        (("fp6", "bf6"), (2, 3)),
    ],
)
def test_scaled_products_of_narrow_floats(
    size: int, kinds: tuple[str, str], codes: tuple[int, int]
) -> None:
    """Lanes hold 32 elements along K; eight-bit ones as two runs of 16, the second half of K later.
    A byte of each lane scales 32 elements of K."""
    rng = np.random.default_rng(24)
    depth = 2048 // size
    widths = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}
    types = {
        "fp8": ml_dtypes.float8_e4m3fn,
        "bf8": ml_dtypes.float8_e5m2,
        "fp6": ml_dtypes.float6_e2m3fn,
        "bf6": ml_dtypes.float6_e3m2fn,
        "fp4": ml_dtypes.float4_e2m1fn,
    }
    raw = [rng.integers(0, 1 << widths[kind], (size, depth)).astype(np.uint8) for kind in kinds]
    raw = [
        np.where(np.isfinite(r.view(types[kind]).astype(np.float32)), r, 1).astype(np.uint8)
        for r, kind in zip(raw, kinds, strict=True)
    ]
    scales = [rng.integers(120, 134, (size, depth // 32)) for _ in range(2)]
    inputs: dict[int, Array] = {}
    for first, codes_of, kind in zip((8, 24), raw, kinds, strict=True):
        lines = []
        for lane in range(64):
            row, group, bits = lane % size, lane // size, 0
            for e in range(32):
                k = (
                    e // 16 * (depth // 2) + group * 16 + e % 16
                    if widths[kind] == 8
                    else group * 32 + e
                )
                bits |= int(codes_of[row, k]) << (widths[kind] * e)
            lines.append([bits >> 32 * i & 0xFFFFFFFF for i in range(widths[kind])])
        for i, words in enumerate(np.array(lines, np.uint32).T):
            inputs[first + i] = words
    for register, values in zip((4, 5), scales, strict=True):  # in byte 1 for A and byte 2 for B
        shift = 8 if register == 4 else 16
        inputs[register] = np.array(
            [int(values[lane % size, lane // size]) << shift | 0x11000022 for lane in range(64)],
            np.uint32,
        )
    elements = size * size // 64
    a_registers, b_registers = (
        f"v[{first}:{first + widths[kind] - 1}]" for first, kind in zip((8, 24), kinds, strict=True)
    )
    text = (
        f"v_mfma_scale_f32_{size}x{size}x{depth}_f8f6f4 v[40:{39 + elements}], {a_registers}, "
        f"{b_registers}, 0, v4, v5"
    )
    text += f" op_sel:[1,0,0] op_sel_hi:[0,1,0] cbsz:{codes[0]} blgp:{codes[1]}"
    out = execute("gfx950", text, inputs, [40 + i for i in range(elements)])
    d = unheld(out, _d32 if size == 32 else _d16, np.float32, (1, size, size), 64)[0]
    values = [
        r.view(types[kind]).astype(np.float64) * np.repeat(2.0 ** (s - 127.0), 32, axis=1)
        for r, kind, s in zip(raw, kinds, scales, strict=True)
    ]
    np.testing.assert_allclose(d, values[0] @ values[1].T, rtol=1e-6, atol=1e-9)


def _wmma_place(generation: int, count: int) -> Place:
    return lambda lane, e: (0, lane % 16, e if generation == 11 else lane // 16 * count + e)


def _wmma_result(generation: int) -> Place:
    return lambda lane, e: (
        0,
        2 * e + lane // 16 if generation == 11 else lane // 16 * 8 + e,
        lane % 16,
    )


@pytest.mark.parametrize(
    ("target", "name", "kind", "result"),
    [
        ("gfx1100", "v_wmma_f32_16x16x16_f16", "f16", np.float32),
        ("gfx1151", "v_wmma_f32_16x16x16_bf16", "bf16", np.float32),
        ("gfx1100", "v_wmma_i32_16x16x16_iu8", "i8", np.int32),
        ("gfx1201", "v_wmma_f32_16x16x16_f16", "f16", np.float32),
        ("gfx1201", "v_wmma_f32_16x16x16_bf16", "bf16", np.float32),
        ("gfx1201", "v_wmma_f32_16x16x16_fp8_fp8", "fp8", np.float32),
        ("gfx1201", "v_wmma_f32_16x16x16_bf8_bf8", "bf8", np.float32),
        ("gfx1201", "v_wmma_i32_16x16x16_iu8", "i8", np.int32),
        ("gfx1201", "v_wmma_f16_16x16x16_f16", "f16", np.float16),
    ],
)
def test_wmma(target: str, name: str, kind: str, result: Any) -> None:
    rng = np.random.default_rng(25)
    generation = 12 if target == "gfx1201" else 11
    count = 16 if generation == 11 else 8
    a, b = numbers(rng, kind, (1, 16, 16)), numbers(rng, kind, (1, 16, 16))
    c = np.asarray(rng.integers(-9, 9, (1, 16, 16))).astype(result)
    words = count * np.dtype(_TYPES[kind]).itemsize // 4
    last = 40 + 8 * np.dtype(result).itemsize // 4 - 1
    text = f"{name} v[40:{last}], v[8:{7 + words}], v[24:{23 + words}], v[40:{last}]"
    text += " neg_lo:[1,1,0]" if kind == "i8" else ""
    place = _wmma_place(generation, count)
    d = multiply(
        target,
        text,
        a,
        b,
        c,
        (place, place, _wmma_result(generation)),
        (count, count, 8),
        32,
        result,
    )
    np.testing.assert_array_equal(d, a.astype(np.float64) @ b.astype(np.float64) + c)


@pytest.mark.parametrize("high", [0, 1])
def test_wmma_of_gfx11_writes_one_half_of_f16_results(high: int) -> None:
    rng = np.random.default_rng(26)
    a, b = numbers(rng, "f16", (1, 16, 16)), numbers(rng, "f16", (1, 16, 16))
    place = _wmma_place(11, 16)
    inputs = {}
    for first, matrix in ((8, a), (24, b.swapaxes(1, 2))):
        for i, words in enumerate(held(matrix, place, 16, 32)):
            inputs[first + i] = words
    kept = np.float16(7)
    for i in range(8):
        inputs[40 + i] = np.full((32, 2), kept).view(np.uint32)[:, 0]
    sel = f" op_sel:[0,0,{high}]" if high else ""
    out = execute(
        "gfx1100",
        f"v_wmma_f16_16x16x16_f16 v[40:47], v[8:15], v[24:31], v[40:47]{sel}",
        inputs,
        list(range(40, 48)),
    )
    product = (a.astype(np.float64) @ b.astype(np.float64) + 7)[0]
    for e, words in enumerate(out):
        pair = np.ascontiguousarray(words).view(np.float16).reshape(32, 2)
        np.testing.assert_array_equal(
            pair[:, high], [product[2 * e + lane // 16, lane % 16] for lane in range(32)]
        )
        np.testing.assert_array_equal(pair[:, 1 - high], np.full(32, kept))


def test_operands_of_gfx11_that_are_not_there_twice_are_an_error() -> None:
    inputs = {first + i: np.arange(32, dtype=np.uint32) for first in (8, 24, 40) for i in range(8)}
    with pytest.raises(WaveError, match="upper half"):
        execute(
            "gfx1100", "v_wmma_f32_16x16x16_f16 v[40:47], v[8:15], v[24:31], v[40:47]", inputs, [40]
        )


def test_registers_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(WaveError, match="registers"):
        execute(
            "gfx942",
            "v_mfma_f32_16x16x16_f16 v[40:43], v[8:10], v[24:25], 0",
            {8: np.zeros(64, np.uint32)},
            [40],
        )
