"""How products are cut into blocks, for any extents and any vector width."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.ir.types import BF16, F16, F32, F64, I8, U8
from tilewright_cpu.lowering.dot_plan import (
    BF16_PAIRS,
    BYTE_QUADS,
    FMA32,
    FMA64,
    INT32,
    WORD_PAIRS,
    choose_block,
    choose_scheme,
    packed_columns,
    split_columns,
    split_rows,
)

_EXTENTS = st.integers(1, 300)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(m=_EXTENTS, n=_EXTENTS, lanes=st.sampled_from([2, 4, 8, 16]), registers=st.sampled_from([8, 16, 32]))
def test_blocks_cover_every_element_once_and_fit_the_registers(m: int, n: int, lanes: int, registers: int) -> None:
    block = choose_block(m, n, lanes, registers)
    assert block.rows * block.vectors + block.vectors + 1 <= registers
    columns: list[int] = []
    for panel in split_columns(n, block):
        for number in range(panel.count):
            start = panel.start + number * panel.columns
            columns += range(start, start + panel.columns - panel.widths[-1] + panel.valid)
        assert all(width & (width - 1) == 0 and width <= block.lanes for width in panel.widths)
    assert columns == list(range(n))
    assert packed_columns(split_columns(n, block)) - n < block.lanes
    rows = [first + number * size + row for first, count, size in split_rows(m, block) for number in range(count) for row in range(size)]
    assert rows == list(range(m))


@pytest.mark.parametrize(("lanes", "registers", "rows", "vectors"), [(16, 32, 8, 2), (8, 16, 6, 2), (8, 32, 8, 2), (4, 32, 8, 3)])
def test_large_products_use_the_measured_blocks(lanes: int, registers: int, rows: int, vectors: int) -> None:
    block = choose_block(120, 96, lanes, registers)
    assert (block.rows, block.vectors, block.lanes) == (rows, vectors, lanes)


@pytest.mark.parametrize(
    ("a", "b", "features", "bits", "scheme"),
    [
        (F32, F32, (), 128, FMA32),
        (F64, F64, (), 512, FMA64),
        (F16, F16, ("avx512f",), 512, FMA32),
        (BF16, BF16, ("avx512bf16",), 512, BF16_PAIRS),
        (BF16, BF16, ("avx512bf16",), 256, FMA32),
        (BF16, BF16, ("avx512bf16", "avx512vl"), 256, BF16_PAIRS),
        (BF16, BF16, (), 512, FMA32),
        (I8, I8, ("avx512vnni",), 512, BYTE_QUADS),
        (I8, U8, ("avxvnni",), 256, BYTE_QUADS),
        (I8, U8, ("avxvnni", "avx512bw"), 512, WORD_PAIRS),
        (U8, U8, ("avx512bw",), 512, WORD_PAIRS),
        (U8, U8, (), 512, INT32),
        (I8, I8, ("avx2",), 256, WORD_PAIRS),
    ],
)
def test_scheme_by_features(a: object, b: object, features: tuple[str, ...], bits: int, scheme: object) -> None:
    assert choose_scheme(a, b, frozenset(features), True, bits) is scheme  # type: ignore[arg-type]


def test_other_architectures_use_no_x86_instruction() -> None:
    assert choose_scheme(I8, I8, frozenset({"avx512vnni"}), False, 128) is INT32
    assert choose_scheme(BF16, BF16, frozenset({"avx512bf16", "avx512vl"}), False, 128) is FMA32
