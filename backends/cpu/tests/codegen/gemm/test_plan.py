"""Plans of matmuls: blocks for any extents and any vector width."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.ir.types import BF16, F16, F32, F64, I8, U8, FloatType
from tilewright_cpu.codegen.gemm.operand import Accumulator
from tilewright_cpu.codegen.gemm.pack import Matrix
from tilewright_cpu.codegen.gemm.plan import (
    BF16_PAIRS,
    BF16_TILES,
    BYTE_QUADS,
    FINE_FLOAT_TILES,
    FLOAT_TILES,
    FMA32,
    FMA64,
    HALF_TILES,
    INT32,
    SIGNED_DOT,
    UNSIGNED_DOT,
    WORD_PAIRS,
    choose_block,
    choose_scheme,
    packed_columns,
    split_columns,
    split_rows,
)
from tilewright_cpu.codegen.gemm.problem import Gemm
from tilewright_cpu.hardware import USUAL_CACHES, Hardware

_EXTENTS = st.integers(1, 300)


def hardware(arch: str, bits: int, registers: int = 16, *features: str, **limits: int) -> Hardware:
    return Hardware(arch, frozenset(features), bits, registers, {**USUAL_CACHES, **limits})


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    m=_EXTENTS,
    n=_EXTENTS,
    lanes=st.sampled_from([2, 4, 8, 16]),
    registers=st.sampled_from([8, 16, 32]),
)
def test_blocks_cover_every_element_once_and_fit_the_registers(
    m: int, n: int, lanes: int, registers: int
) -> None:
    block = choose_block(m, n, lanes, hardware("x86-64", 256, registers))
    assert block.rows * block.vectors + block.vectors + 1 <= registers
    columns: list[int] = []
    for panel in split_columns(n, block):
        for number in range(panel.count):
            start = panel.start + number * panel.columns
            columns += range(start, start + panel.columns - panel.widths[-1] + panel.valid)
        assert all(width & (width - 1) == 0 and width <= block.lanes for width in panel.widths)
        assert panel.widths[-1] < 2 * panel.valid  # the smallest that holds them
    assert columns == list(range(n))
    assert packed_columns(split_columns(n, block)) - n < block.lanes
    rows = [
        first + number * size + row
        for first, count, size in split_rows(m, block)
        for number in range(count)
        for row in range(size)
    ]
    assert rows == list(range(m))


@pytest.mark.parametrize(
    ("registers", "rows", "vectors"), [(8, 2, 2), (16, 6, 2), (32, 6, 4), (64, 14, 4)]
)
def test_blocks_follow_from_the_registers(registers: int, rows: int, vectors: int) -> None:
    found = hardware("x86-64", 256, registers)
    assert found.block == (rows, vectors)
    block = choose_block(120, 96, 8, found)
    assert (block.rows, block.vectors, block.lanes) == (rows, vectors, 8)


def test_few_columns_or_rows_keep_as_many_accumulators() -> None:
    wide = hardware("x86-64", 512, 32)
    assert choose_block(128, 16, 16, wide).rows == 12
    assert choose_block(2, 128, 16, wide).vectors == 8


@pytest.mark.parametrize(
    ("a", "b", "features", "bits", "scheme"),
    [
        (F32, F32, (), 128, FMA32),
        (F64, F64, (), 512, FMA64),
        (F16, F16, ("avx512f",), 512, FMA32),
        (BF16, BF16, ("avx512bf16",), 512, BF16_PAIRS),
        (BF16, BF16, ("avx512bf16",), 256, FMA32),
        (BF16, BF16, ("avx512bf16", "avx512vl"), 256, BF16_PAIRS),
        (BF16, BF16, ("avx512bf16", "avx512vl", "avx512fp16"), 512, FMA32),
        (BF16, BF16, (), 512, FMA32),
        (I8, I8, ("avx512vnni",), 512, BYTE_QUADS),
        (I8, U8, ("avxvnni",), 256, BYTE_QUADS),
        (I8, U8, ("avxvnni", "avx512bw"), 512, WORD_PAIRS),
        (U8, U8, ("avx512bw",), 512, WORD_PAIRS),
        (U8, U8, (), 512, INT32),
        (I8, I8, ("avx2",), 256, WORD_PAIRS),
    ],
)
def test_scheme_by_features(
    a: object, b: object, features: tuple[str, ...], bits: int, scheme: object
) -> None:
    assert choose_scheme(a, b, hardware("x86-64", bits, 16, *features)) is scheme


@pytest.mark.parametrize(
    ("a", "b", "features", "scheme"),
    [
        (I8, I8, (), INT32),
        (I8, I8, ("dotprod",), SIGNED_DOT),
        (U8, U8, ("dotprod",), UNSIGNED_DOT),
        (I8, U8, ("dotprod",), INT32),
        (BF16, BF16, ("avx512bf16", "avx512vl"), FMA32),
        (F64, F64, ("dotprod",), FMA64),
    ],
)
def test_arm_has_schemes_of_its_own(
    a: object, b: object, features: tuple[str, ...], scheme: object
) -> None:
    assert choose_scheme(a, b, hardware("aarch64", 128, 32, *features)) is scheme


TILES = ("amx-tile", "amx-bf16")


@pytest.mark.parametrize(
    ("element", "precision", "scheme"),
    [
        (BF16, "ieee", BF16_TILES),
        (F16, "ieee", HALF_TILES),
        (F32, "ieee", FMA32),
        (F32, "tf32", FLOAT_TILES),
        (F32, "bf16x3", FLOAT_TILES),
        (F32, "tf32x3", FINE_FLOAT_TILES),
        (F32, "bf16x6", FINE_FLOAT_TILES),
        (F64, "tf32", FMA64),
    ],
)
def test_tiles_by_precision(element: FloatType, precision: str, scheme: object) -> None:
    tiled = hardware("x86-64", 512, 32, *TILES)
    assert choose_scheme(element, element, tiled, (64, 64, 64), precision) is scheme
    assert not choose_scheme(element, element, tiled, (64, 64, 24), precision).tiled
    assert not choose_scheme(
        element, element, hardware("x86-64", 512, 32), (64, 64, 64), precision
    ).tiled


@pytest.mark.parametrize(("sums", "scheme"), [(F32, HALF_TILES), (F16, FMA32)])
def test_accumulators_in_f16_are_rounded_as_they_grow(sums: FloatType, scheme: object) -> None:
    """A unit whose sums are in f32 cannot do that."""
    matrix = Matrix("%p", F16, 64, 64, 64, 1)
    writer: Any = None
    gemm = Gemm(
        writer,
        hardware("x86-64", 512, 32, *TILES),
        (F16, F16),
        matrix,
        matrix,
        Accumulator("%c", sums, 64, 4, True),
        writer,
    )
    assert gemm.scheme is scheme


def test_other_architectures_use_no_instruction_of_these() -> None:
    assert choose_scheme(I8, I8, hardware("riscv64", 128, 32, "avx512vnni", "dotprod")) is INT32
