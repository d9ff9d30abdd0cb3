"""The table of lowerings that backends keep: what it takes, what it says of what is missing, and
that regions are written in order."""

from __future__ import annotations

import pytest

from tilewright.errors import LoweringError
from tilewright.ir import TABLE, Module, Operation
from tilewright.ir.parser import parse_module
from tilewright.plugins.lowerings import Lowerings

KERNEL = """tilewright.ir 1.0

kernel @fill(%x: ptr<f32>, %c: i1) {
  %one = constant 1.0 : f32
  if %c then {
    %two = add %one, %one : f32
    store %x, %two
    yield
  } else {
    yield
  }
  return
}
"""


@pytest.fixture
def module() -> Module:
    return parse_module(KERNEL)


@pytest.fixture
def lowers() -> Lowerings[list[str]]:
    table: Lowerings[list[str]] = Lowerings("vega", "lower.py")

    @table("constant", "store", "add")
    def _plain(code: list[str], operation: Operation) -> None:
        code.append(operation.name)

    @table("if")
    def _if(code: list[str], operation: Operation) -> None:
        for region in operation.regions:
            code.append("{")
            table.region(code, region)
            code.append("}")

    return table


def test_regions_are_written_in_order(lowers: Lowerings[list[str]], module: Module) -> None:
    lowers.require(module)
    code: list[str] = []
    lowers.region(code, module.kernel.body)
    assert " ".join(code) == "constant { add store } { }"


def test_the_names_are_those_with_a_function_and_the_ends_of_regions(
    lowers: Lowerings[list[str]],
) -> None:
    assert lowers.names == {
        "constant",
        "store",
        "add",
        "if",
        *(spec.name for spec in TABLE if spec.terminator),
    }
    assert Lowerings[list[str]]("vega", "lower.py").names == {"yield", "condition", "return"}


def test_a_table_may_go_on_from_another(lowers: Lowerings[list[str]], module: Module) -> None:
    further: Lowerings[list[str]] = Lowerings("rigel", "own.py")
    further.functions.update(lowers.functions)
    further("add")(lambda code, operation: code.append("sum"))
    code: list[str] = []
    further.region(code, module.kernel.body)
    assert code[0] == "constant" and further.names == lowers.names
    further.functions["add"](code, next(module.walk()))
    assert code[-1] == "sum" and lowers.functions["add"] is not further.functions["add"]


def test_what_is_missing_is_named_with_what_pays_first_in_front(module: Module) -> None:
    table: Lowerings[list[str]] = Lowerings("vega", "lower.py")
    with pytest.raises(LoweringError) as caught:
        table.require(module)
    assert "backend 'vega' does not lower constant yet (at " in str(caught.value)
    assert str(caught.value).endswith(
        "marked @lowers('constant'), in lower.py; this kernel also needs store, add, if"
    )
    table("constant", "store", "add")(lambda code, operation: None)
    with pytest.raises(LoweringError, match=r"does not lower if yet .*in lower.py\n"):
        table.require(module)
