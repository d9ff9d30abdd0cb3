"""Drawings of the site: what the pages say of them holds for the layouts that are drawn."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, row_major

pytest.importorskip("tilewright_nvidia")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
try:
    from drawings.compiled import definition, layout_of, simt_text
    from drawings.kernels import matmul, scale, transpose
    from drawings.layouts import owners
    from drawings.pictures import pictures
    from drawings.pipelines import schedule
finally:
    sys.path.pop(0)


def holders(text: str) -> tuple[LinearLayout, dict[int, tuple[int, int, int]]]:
    layout = LinearLayout.parse(re.sub(r"^layout<(.*)>$", r"\1", text))
    return layout, owners(layout)


def test_a_lane_loads_four_neighbouring_floats_and_a_warp_two_rows() -> None:
    text = simt_text(scale, "x=*fp32:16, out=*fp32:16", {"N": 64, "ROWS": 16}, "sm_90a")
    layout, held = holders(layout_of(text, "load"))
    for row in range(16):
        for column in range(64):
            warp, lane, _ = held[row_major((row, column), layout.shape)]
            assert lane == row % 2 * 16 + column // 4
            assert warp == row // 2 % 4


def test_a_lane_stores_eight_neighbouring_elements_of_a_column() -> None:
    text = simt_text(transpose, "x=*fp16:16, out=*fp16:16", {"N": 64}, "sm_90a")
    layout, held = holders(layout_of(text, "simt.convert"))
    for column in range(64):
        lanes = [held[row_major((row, column), layout.shape)][:2] for row in range(64)]
        assert all(lanes[row] == lanes[row // 8 * 8] for row in range(64))
        assert len(set(lanes)) == 8


def matmul_text(architecture: str) -> str:
    signature = "a=*fp16:16, b=*fp16:16, c=*fp32:16"
    return simt_text(matmul, signature, {"M": 64, "N": 64, "K": 64}, architecture)


def test_a_lane_holds_two_columns_of_the_accumulator_and_those_eight_rows_below() -> None:
    layout, held = holders(layout_of(matmul_text("sm_80"), "simt.dot"))
    lane = held[row_major((0, 0), layout.shape)][:2]
    for point in ((0, 1), (8, 0), (8, 1)):
        assert held[row_major(point, layout.shape)][:2] == lane


def test_a_column_of_a_swizzled_tile_touches_all_banks() -> None:
    text = definition(matmul_text("sm_90a"), "#S0")
    layout = SharedLayout.parse(re.sub(r"^shared<(.*)>$", r"\1", text))
    for column in range(0, 64, 8):
        offsets = [layout.offset(row_major((row, column), layout.shape)) for row in range(8)]
        assert sorted(offset * 2 // 16 % 8 for offset in offsets) == list(range(8))


def test_loads_of_two_stages_overlap_with_matmuls() -> None:
    assert schedule(1, 3, load=4, matmul=2) == [(0, 4), (6, 10), (12, 16)]
    assert schedule(2, 3, load=4, matmul=2) == [(0, 4), (0, 6), (6, 10)]


def test_pictures_say_what_they_show() -> None:
    for path, text in pictures().items():
        picture = ElementTree.fromstring(text)
        title = picture.find("{http://www.w3.org/2000/svg}title")
        assert title is not None and title.text, path
        assert len(text) < 100_000, path
