"""Layouts of loads whose threads transpose a matmul's operand."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tilewright.simt.assign_layouts.coalesce import TileAccess, transposed_read
from tilewright.simt.layouts.linear_layout import LinearLayout, blocked

#: A tile of 64 rows along K and 128 contiguous columns: a thread reads 4 rows, and 4 more from row
#: 8 on.
READER = LinearLayout((64, 128), (128, 256, 1024, 2048, 4096, 32), (1, 2, 4, 8, 16, 512), (0, 64))
UNKNOWN = cast(Any, None)


def access(order: tuple[int, int] = (1, 0), vector: int = 8, size: int = 2) -> TileAccess:
    return TileAccess(UNKNOWN, (64, 128), order, vector, size, 16, UNKNOWN, None)


@pytest.mark.parametrize(("lanes", "rows"), [(64, [128, 256]), (32, [128, 256, 1024])])
def test_threads_have_rows_that_the_product_has_together(lanes: int, rows: list[int]) -> None:
    layout = transposed_read(access(), 0, READER, lanes, 4, 16)
    assert layout is not None
    assert layout.registers == (1, 2, 4, *rows)
    # lanes go on along memory, and every element is in one place
    assert layout.lanes[:4] == (8, 16, 32, 64)
    assert sorted((*layout.registers, *layout.lanes, *layout.warps)) == [
        1 << bit for bit in range(13)
    ]


def test_wide_elements_fill_an_access() -> None:
    layout = transposed_read(access(vector=4, size=4), 0, READER, 32, 4, 16)
    assert layout is not None and layout.registers[:4] == (1, 2, 128, 256)


def test_what_lies_as_the_product_sums_stays() -> None:
    assert transposed_read(access(order=(0, 1)), 0, READER, 32, 4, 16) is None
    assert transposed_read(access(vector=1), 0, READER, 32, 4, 16) is None
    # each thread has but one access, or a part of one
    assert transposed_read(access(), 0, READER, 64, 16, 16) is None
    assert transposed_read(access(), 0, READER, 64, 64, 16) is None


def test_the_other_threads_are_as_in_a_plain_layout() -> None:
    plain, layout = (
        blocked((64, 128), (1, 0), 8, 32, 4),
        transposed_read(access(), 0, READER, 32, 4, 16),
    )
    assert (
        layout is not None
        and layout.register_count == plain.register_count
        and layout.shape == plain.shape
    )
