"""Stores that need more loads go first, where nothing stands between them."""

from __future__ import annotations

import pytest

from tilewright.derivatives.tiling.order_stores import order_stores
from tilewright.ir.parser import parse_module
from tilewright.ir.verifier import verify

KERNEL = """\
tilewright.ir 1.0

kernel @k(%p: tile<8xptr<f32>>, %q: tile<8xptr<f32>>, %a: {a}, %b: {b}) {{
  %x = load %p : tile<8xf32>
  %y = load %q : tile<8xf32>
  {first}
  {between}
  %z = mul %x, %y : tile<8xf32>
  {second}
  return
}}
"""
TILE = "tile<8xptr<f32>>"


def stores_of(**parts: str) -> list[str]:
    """Return the names of the arguments that a kernel stores to, in order."""
    given = {"a": TILE, "b": TILE, "between": "", **parts}
    module = parse_module(KERNEL.format(**given))
    order_stores(module)
    verify(module)
    return [
        operation.operands[0].name
        for operation in module.kernel.walk()
        if operation.name == "store"
    ]


def test_sort_by_the_loads_that_values_need() -> None:
    assert stores_of(first="store %a, %x", second="store %b, %z") == ["b", "a"]
    assert stores_of(first="store %a, %y", second="store %b, %x") == ["a", "b"]


@pytest.mark.parametrize("between", ["%w = load %q : tile<8xf32>", "barrier"])
def test_effects_between_stores_keep_them(between: str) -> None:
    found = stores_of(first="store %a, %x", second="store %b, %z", between=between)
    assert found == ["a", "b"]


def test_stores_to_one_argument_stay() -> None:
    assert stores_of(first="store %a, %x", second="store %a, %z") == ["a", "a"]
    third = "store %b, %z\n  store %a, %z"
    assert stores_of(first="store %a, %x", second=third) == ["a", "b", "a"]
