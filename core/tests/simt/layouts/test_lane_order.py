"""Copies whose lanes write side by side: layouts for them, which loads are copied so, and what
comes of it on an emulated machine."""

from __future__ import annotations

import pytest
from matmul_kernels import MODES, operations, run_matmul

from tilewright.passes.analysis.axis import axis_info
from tilewright.simt.compile import kernel_of
from tilewright.simt.layouts.lane_order import lane_ordered, lane_ordered_shared
from tilewright.simt.layouts.linear_layout import LinearLayout, blocked
from tilewright.simt.layouts.swizzle import transactions
from tilewright.simt.lowering.async_copy import copies_of
from tilewright.testing.toy_targets import RunsTarget

LANES, WARPS, BANKS, SIZE = 64, 4, 64, 2
#: rows of 64 elements of 16 bits; each lane reads 8 of a row, 16 lanes a column of rows
SHAPE = (128, 64)
READER = LinearLayout(SHAPE, (1, 2, 4, 32, 1024, 2048, 4096), (64, 128, 256, 512, 8, 16), (0, 0))


def ordered(
    shape: tuple[int, ...] = SHAPE, reader: LinearLayout = READER, width: int = 8
) -> LinearLayout | None:
    return lane_ordered(shape, (1, 0), width, reader, SIZE, LANES, WARPS, 16, BANKS)


def test_lanes_fill_runs() -> None:
    layout = ordered()
    assert layout is not None and layout.covers
    shared = lane_ordered_shared(layout, 8)
    assert shared is not None
    assert shared.through(layout.registers[:3]) == (1, 2, 4)
    assert shared.through(layout.lanes) == tuple(8 << bit for bit in range(6))
    assert shared.through(layout.warps) == (512, 1024)
    assert sorted(map(shared.offset, range(SHAPE[0] * SHAPE[1]))) == list(
        range(SHAPE[0] * SHAPE[1])
    )


def test_a_warp_reads_the_same_lines_of_memory_as_in_order() -> None:
    layout, plain = ordered(), blocked(SHAPE, (1, 0), 8, LANES, WARPS)
    assert layout is not None and layout.lanes != plain.lanes
    for first in range(0, LANES, 8):
        rows = {layout.element(lane=lane) >> 6 for lane in range(first, first + 8)}
        assert len(rows) == 1, "eight lanes read a row"


def test_what_is_read_is_in_different_banks() -> None:
    layout = ordered()
    assert layout is not None
    shared, rows = (
        lane_ordered_shared(layout, 8),
        lane_ordered_shared(blocked(SHAPE, (1, 0), 8, LANES, WARPS), 8),
    )
    assert shared is not None and rows is not None
    count, turns = transactions(READER, shared, SIZE, 16, BANKS)
    assert turns == 4 * count  # 64 lanes of 16 bytes from a memory of 256
    assert transactions(READER, rows, SIZE, 16, BANKS)[1] == 8 * turns


def test_a_tile_of_too_few_elements_has_no_such_layout() -> None:
    shape = (4, 64)
    reader = LinearLayout(shape, (1, 2, 4), (64, 128, 8, 16, 32, 0), (0, 0))
    assert ordered(shape, reader) is None
    narrow = blocked(shape, (1, 0), 8, LANES, WARPS)
    assert lane_ordered_shared(narrow, 8) is None, "lanes hold elements twice"


SIZES = [(16, 8, 8), (32, 16, 40), (19, 12, 20), (16, 8, 4), (5, 4, 0)]


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul_by_runs(size: tuple[int, int, int], drains: bool, completion: str) -> None:
    for stages in (2, 3, 4):
        module = run_matmul(
            size, stages, RunsTarget(8, drains=drains, k_step=4), completion=completion
        )
        starts = operations(module, "simt.copy_start")
        axes = axis_info(kernel_of(module))
        assert starts and not operations(module, "simt.load_start")
        assert all(copies_of(start, RunsTarget(8), axes) for start in starts), (
            "none goes through registers"
        )


def test_loads_of_a_loop_are_all_copied_the_same_way() -> None:
    """Copies fill with zeros: where one load is filled with ones, both go through registers."""
    module = run_matmul((16, 8, 20), 3, RunsTarget(8, k_step=4), 1.0)
    assert len(operations(module, "simt.load_start")) == 2 * 3 and not operations(
        module, "simt.copy_start"
    )


def test_loops_that_are_not_pipelined_are_left_alone() -> None:
    module = run_matmul((16, 8, 20), 1, RunsTarget(8, k_step=4))
    assert not operations(module, "simt.load_start") and not operations(module, "simt.copy_start")
