"""Tiles that are kept in memory for later readers."""

from __future__ import annotations

import pytest

from tilewright.ir.core import Value
from tilewright.ir.parser import parse_module
from tilewright_cpu.codegen.analysis.tiles import Analysis

#: An exponential that is summed, and then read rounded; %read says by what.
_TEXT = """tilewright.ir 1.0

kernel @exponentials(%x: ptr<f32>, %total: ptr<f32>, %out: ptr<f16>, %count: i32) {{
  %i = arange {{start = 0, end = 64}} : tile<64xi32>
  %xs = splat %x : tile<64xptr<f32>>
  %from = addptr %xs, %i : tile<64xptr<f32>>
  %v = load %from : tile<64xf32>
  %e = exp %v : tile<64xf32>
  %narrow = cast %e : tile<64xf16>
  %sum = reduce %e {{axis = 0}} : f32 combine(%l: f32, %r: f32) {{
    %t = add %l, %r : f32
    yield %t
  }}
  store %total, %sum
  %outs = splat %out : tile<64xptr<f16>>
  %to = addptr %outs, %i : tile<64xptr<f16>>
{read}  return
}}
"""
_ONCE = "  store %to, %narrow\n"
_IN_A_LOOP = (
    "  %zero = constant 0 : i32\n  %one = constant 1 : i32\n"
    "  for %zero, %count, %one body(%j: i32) {\n    store %to, %narrow\n    yield\n  }\n"
)


def _analysed(read: str) -> tuple[Analysis, dict[str, Value]]:
    function = parse_module(_TEXT.format(read=read)).kernel
    return Analysis(function, 64), {
        value.name: value for operation in function.walk() for value in operation.results
    }


def test_the_first_loop_nest_writes_tiles_for_later_ones() -> None:
    analysis, values = _analysed(_ONCE)
    assert analysis.written_by_first_nest(values["e"]) is values[
        "narrow"
    ] and not analysis.is_kept_at_once(values["e"])
    assert (
        analysis.written_by_first_nest(values["narrow"]) is None
        and analysis.written_by_first_nest(values["v"]) is None
    )


@pytest.mark.parametrize(
    ("alone", "kept"), [("e", False), ("narrow", False), ("v", True), ("to", True)]
)
def test_a_tile_that_is_materialized_alone_is_kept_by_no_loop_nest_nor_is_the_wider_one(
    alone: str, kept: bool
) -> None:
    analysis, values = _analysed(_ONCE)
    analysis.drop_kept(values[alone])
    assert analysis.written_by_first_nest(values["e"]) is (values["narrow"] if kept else None)


def test_a_tile_that_a_loop_reads_is_materialized_where_it_is_defined() -> None:
    analysis, values = _analysed(_IN_A_LOOP)
    assert analysis.is_kept_at_once(values["e"]) and not analysis.is_deep(values["e"])
    assert analysis.written_by_first_nest(values["e"]) is None
    analysis.drop_kept(values["e"])
    assert analysis.is_kept_at_once(values["e"])
