"""The table of source: each operation has a row, and what the language lacks is refused."""

from __future__ import annotations

from typing import Any

import pytest
from source_round_trip import compiled, kernels_in

from tilewright.frontend.source import module_source
from tilewright.frontend.source.expression_text import (
    SourceExpression,
    atom,
    call_text,
    keeps_value,
    number_text,
)
from tilewright.frontend.source.line_breaks import WIDTH, broken
from tilewright.frontend.source.source_rows import ROWS, SourceError
from tilewright.ir import TABLE
from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, SingleOperand
from tilewright.ir.ops.rules import same_floats
from tilewright.ir.parser import parse_module
from tilewright.ir.table import Trait
from tilewright.ir.types import BF16, F32, F64, I32, I64, U32

HEAD = "tilewright.ir 1.0\n\n"


def test_each_operation_of_the_table_has_a_row() -> None:
    assert {spec.name for spec in TABLE} == set(ROWS)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("%t = clock : i64\n  store %q, %t", "no function of the language"),
        ("%x = load %p : f16\n  %o = atomic_rmw %p, %x {kind = xchg} : f16", "does not take fp16"),
        (
            "%i = constant 1 : i64\n  %d = make_descriptor %p, shape=[%i], strides=[%i] "
            ": desc<16xf16>\n  %x = descriptor_load %d, offsets=[%i] : tile<16xf16>\n"
            "  descriptor_store %d, offsets=[%i], %x",
            "aligned to 16 bytes",
        ),
        (
            "%i = arange {start = 0, end = 6} : tile<6xi32>\n  %s = splat %p : tile<6xptr<f16>>\n"
            "  %a = addptr %s, %i : tile<6xptr<f16>>\n  %x = load %a : tile<6xf16>\n  store %a, %x",
            "powers of two",
        ),
    ],
    ids=["clock", "exchange", "descriptor", "extents"],
)
def test_what_the_language_lacks_is_refused(body: str, why: str) -> None:
    text = f"{HEAD}kernel @k(%p: ptr<f16>, %q: ptr<i64>) {{\n  {body}\n  return\n}}\n"
    with pytest.raises(SourceError, match=why):
        module_source.source_of_module(parse_module(text))


OPS = Declarations()


@OPS.operation("acme.half", "half of x", same_floats, traits=Trait.ELEMENTWISE)
class Half(Operation):
    __slots__ = ()

    x = SingleOperand()

    def source_expression(self, writer: Any) -> SourceExpression:
        return atom(call_text("acme.half", writer.name_of(self.x)), self.result.type)


@OPS.operation("acme.third", "a third of x", same_floats, traits=Trait.ELEMENTWISE)
class Third(Operation):
    __slots__ = ()

    x = SingleOperand()


def test_an_operation_of_a_plugin_brings_its_source() -> None:
    text = f"{HEAD}kernel @k(%p: ptr<f32>) {{\n  %x = load %p : f32\n"
    table = TABLE.extended(OPS)
    end = "\n  store %p, %y\n  return\n}\n"
    module = parse_module(f"{text}  %y = acme.half %x : f32{end}", table)
    source = module_source.source_of_module(module)
    assert "y = acme.half(x)\n    tl.store(p, y)" in source
    module = parse_module(f"{text}  %y = acme.third %x : f32{end}", table)
    with pytest.raises(SourceError, match="source_expression"):
        module_source.source_of_module(module)


def test_numbers_have_the_bits_of_constants() -> None:
    assert number_text(float("-inf")) == '-float("inf")'
    assert number_text(-0.0) == "-0.0"
    assert keeps_value(1, I32)
    assert not keeps_value(1, I64)  # alone it is an int32
    assert keeps_value(2**31, U32)
    assert keeps_value(0.5, F32)
    assert not keeps_value(0.1, F32)  # 0.1 is no number of fp32
    assert not keeps_value(0.5, F64)
    assert not keeps_value(0.5, BF16)


def test_special_constants_round_trip() -> None:
    values = ["nan", "nan(0xfff8000000000000)", "-0.0", "inf", "-inf", "1e-42", "0.1"]
    lines = []
    for index, value in enumerate(values):
        lines += [f"%c{index} = constant {value} : f32", f"%i{index} = constant {index} : i32"]
        lines += [f"%p{index} = addptr %out, %i{index} : ptr<f32>", f"store %p{index}, %c{index}"]
    body = "\n  ".join(lines)
    module = parse_module(f"{HEAD}kernel @k(%out: ptr<f32>) {{\n  {body}\n  return\n}}\n")
    import numpy as np

    from tilewright.reference.interpreter import run

    found = []
    for one in (module, compiled(module_source.source_of_module(module), module)):
        out = np.zeros(len(values), np.float32)
        run(one, [out], (1, 1, 1))
        found.append(out.tobytes())
    assert found[0] == found[1]


def test_long_lines_are_broken_at_commas() -> None:
    arguments = [f"argument_{i} + 'a, (b'" for i in range(8)]
    lines = broken(f"x = tl.call({', '.join(arguments)})", 4)
    assert len(lines) > 1
    assert max(map(len, lines)) <= WIDTH
    assert kernels_in("def f():\n" + "\n".join(lines))["f"]
