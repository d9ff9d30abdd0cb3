"""Operations that forward values hide nothing from the analyses, whatever they do beside that."""

from __future__ import annotations

import pytest

from tilewright.ir import Function, Value, verify
from tilewright.ir.parser import parse_module
from tilewright.ir.table import OpSpec
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.axis import axis_info
from tilewright.simt.analysis.alias import root_of
from tilewright.simt.dialect.ops import SIMT_TABLE

FORWARDING = [spec for spec in SIMT_TABLE if spec.forwards]

TEXT = """tilewright.ir 1.0
kernel @k(%p: ptr<f16> {{divisibility = 16}}, %s: i32 {{divisibility = 16}}, %n: i32) {{
  %rows = arange {{start = 0, end = 128}} : tile<128xi32>
  %columns = arange {{start = 0, end = 64}} : tile<64xi32>
  %r = expand_dims %rows {{axis = 1}} : tile<128x1xi32>
  %c = expand_dims %columns {{axis = 0}} : tile<1x64xi32>
  %rr = broadcast %r : tile<128x64xi32>
  %cc = broadcast %c : tile<128x64xi32>
  %ss = splat %s : tile<128x64xi32>
  %row = mul %rr, %ss : tile<128x64xi32>
  %at = add %row, %cc : tile<128x64xi32>
  %pp = splat %p : tile<128x64xptr<f16>>
  %pointers = addptr %pp, %at : tile<128x64xptr<f16>>
  %nn = splat %n : tile<128x64xi32>
  %mask = cmp %cc, %nn {{predicate = lt}} : tile<128x64xi1>
  {forward}
  return
}}
"""

#: How each operation is written that forwards two tiles, or one twice.
WRITTEN = {
    "hint": "%a = hint %pointers : tile<128x64xptr<f16>> %b = hint %mask : tile<128x64xi1>",
    "simt.convert": (
        "%a = simt.convert %pointers : tile<128x64xptr<f16>> %b = simt.convert %mask : "
        "tile<128x64xi1>"
    ),
    "simt.wait": (
        "%token = simt.commit : token<loads> %b, %a = simt.wait tokens=[%token], "
        "tiles=[%mask, %pointers], held=[] : tile<128x64xi1>, tile<128x64xptr<f16>>"
    ),
}


def value_called(function: Function, name: str) -> Value:
    return next(
        result
        for operation in function.walk()
        for result in operation.results
        if result.name == name
    )


@pytest.mark.parametrize("spec", FORWARDING, ids=lambda spec: spec.name)
def test_what_is_known_of_an_operand_is_known_of_the_result(spec: OpSpec) -> None:
    module = parse_module(TEXT.format(forward=WRITTEN[spec.name]), SIMT_TABLE)
    verify(module)
    function = module.kernel
    pointers, mask, a, b = (value_called(function, name) for name in ("pointers", "mask", "a", "b"))
    known = axis_info(function)
    assert (
        known[a] == known[pointers]
        and known[a].contiguity == (1, 64)
        and known[a].divisibility == (2, 16)
    )
    assert known[b] == known[mask]
    affine = Affine(function)
    assert affine.form(a) == affine.form(pointers) is not None
    assert affine.mask_bounds(b) == affine.mask_bounds(mask) != [None]
    assert root_of(a) is function.arguments[0]


def test_operands_that_are_forwarded_are_named() -> None:
    assert [spec.name for spec in FORWARDING] == list(WRITTEN)
