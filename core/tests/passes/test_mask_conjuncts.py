"""Conjunctions that masks are: text in, conditions and moves out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.ir.core import Module, Operation
from tilewright.passes.analysis.mask_conjuncts import Conjunct, conjuncts

BODY = """
%r = arange {start = 0, end = 8} : tile<8xi32>
%n8 = splat %n : tile<8xi32>
%a0 = cmp %r, %n8 {predicate = "lt"} : tile<8xi1>
%a1 = and %a0, %m : tile<8xi1>
%a2 = expand_dims %a1 {axis = 1} : tile<8x1xi1>
%a3 = broadcast %a2 : tile<8x4xi1>
%sc = splat %c : tile<8x4xi1>
%b0 = and %a3, %sc : tile<8x4xi1>
%either = or %b0, %sc : tile<8x4xi1>
"""


@pytest.fixture
def operations(kernel_of: Callable[[str], Module]) -> dict[str, Operation]:
    module = kernel_of(BODY + "use %either")
    return {
        result.name: operation for operation in module.kernel.walk() for result in operation.results
    }


def _described(found: list[Conjunct]) -> list[tuple[str, list[str]]]:
    return [(each.condition.name, [move.name for move in each.moves]) for each in found]


def test_conditions_are_listed_in_order_with_the_moves_around_them(
    operations: dict[str, Operation],
) -> None:
    moves = ["broadcast", "expand_dims"]
    found = conjuncts(operations["b0"].results[0])
    assert _described(found) == [("a0", moves), ("m", moves), ("c", ["splat"])]


def test_a_disjunction_is_one_condition(operations: dict[str, Operation]) -> None:
    assert _described(conjuncts(operations["either"].results[0])) == [("either", [])]


def test_a_leaf_is_taken_as_it_is(operations: dict[str, Operation]) -> None:
    leaf = operations["a1"].results[0]
    found = conjuncts(operations["b0"].results[0], is_leaf=lambda value: value is leaf)
    assert _described(found) == [("a1", ["broadcast", "expand_dims"]), ("c", ["splat"])]


def test_a_value_may_stand_in_place_of_another(operations: dict[str, Operation]) -> None:
    instead = {operations["a3"].results[0]: operations["sc"].results[0]}
    found = conjuncts(operations["b0"].results[0], resolve=lambda value: instead.get(value, value))
    assert _described(found) == [("c", ["splat"]), ("c", ["splat"])]
