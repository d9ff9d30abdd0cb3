"""The table of exact mode: every operation has a row or the trait that it moves floats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.breakpoint import OPS
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module
from tilewright.ir.ops import TABLE
from tilewright.ir.table import OpSpec, Trait
from tilewright.ir.types import F32, I32, PointerType, TileType
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.rewrite import exact
from tilewright.passes.exact.ring import PRIME, ring
from tilewright.passes.exact.rules import Meaning, rules
from tilewright.reference.interpreter import run

SPECS = [*TABLE, *OPS]


@pytest.mark.parametrize("spec", SPECS, ids=[spec.name for spec in SPECS])
def test_an_operation_has_a_row_or_moves_floats(spec: OpSpec) -> None:
    moves = bool(spec.traits & (Trait.BITWISE | Trait.SHAPE))
    assert moves != (spec.name in rules()), (
        f"{spec.name} needs a row in tilewright.passes.exact, or the trait BITWISE where it only "
        "moves floats; not both"
    )


@pytest.mark.parametrize("rule", rules().values(), ids=list(rules()))
def test_a_row_states_its_law(rule) -> None:
    assert rule.law and not rule.law.endswith(".")
    assert set(rule.keeps).isdisjoint(rule.breaks)
    if rule.meaning is Meaning.UNINTERPRETED:
        assert len(rule.keeps) <= 1


#: Elementwise rows on f32 operands alone -> the attributes that they need.
ELEMENTWISE = {
    spec.name: {"predicate": "lt"} if spec.has_attribute("predicate") else {}
    for spec in TABLE
    if spec.elementwise and spec.name in rules() and not spec.explicit_results
    and spec.name != "ldexp"
}  # fmt: skip
COUNT = 32


def evaluated(name: str, operands: list[np.ndarray]) -> np.ndarray:
    """The payloads of an operation's results on f32 payloads, or its integers."""
    tile, count = TileType((COUNT,), F32), len(operands)
    function = Function("k", [PointerType(F32)] * count + [PointerType(F32)])
    b = Builder.at_end(function.body)
    place = b.arange(start=0, end=COUNT)

    def at(pointer):
        return b.addptr(b.splat(pointer, result=TileType((COUNT,), pointer.type)), place)

    *inputs, out = function.arguments
    values = [b.load(at(pointer)) for pointer in inputs]
    found = getattr(b, TABLE[name].python_name)(*values, **ELEMENTWISE[name])
    if found.type is not tile:
        found = b.cast(found, result=tile)
    b.store(at(out), found)
    b.return_([])
    module = Module()
    module.add(function)
    exact(module)
    result = np.zeros(COUNT, np.float32)
    run(module, [*(x.view(np.float32) for x in operands), result], (1, 1, 1))
    return result.view(np.uint32)


RING = ring(32)
UNITS = st.integers(0, RING.modulus - 1).filter(lambda x: x % PRIME != 0)
PAYLOADS = st.lists(UNITS, min_size=COUNT, max_size=COUNT)


@pytest.mark.parametrize("name", [name for name in ELEMENTWISE if rules()[name].digitwise])
@settings(max_examples=3)
@given(data=st.data(), digits=st.sampled_from([1, 2, 3]))
def test_digitwise_rows_move_across_narrowing(name: str, data, digits: int) -> None:
    modulus = PRIME**digits
    count = len(TABLE[name].operands)
    first = [np.array(data.draw(PAYLOADS), np.uint32) for _ in range(count)]
    upper = [np.array(data.draw(PAYLOADS), np.uint32) // modulus * modulus for _ in range(count)]
    second = [
        np.minimum(x % modulus + high, RING.modulus - modulus + x % modulus).astype(np.uint32)
        for x, high in zip(first, upper, strict=True)
    ]
    left, right = evaluated(name, first), evaluated(name, second)
    both = (left < RING.modulus) & (right < RING.modulus)
    assert (left[both] % modulus == right[both] % modulus).all()
    assert both.all() or name == "div"


def test_an_operation_without_a_row_is_refused() -> None:
    spec = TABLE.extended([OpSpec("vendor.twice", "", TABLE["neg"].operands, TABLE["neg"].rule)])
    function = Function("k", [F32, PointerType(F32)])
    b = Builder.at_end(function.body)
    twice = b.create(spec["vendor.twice"], [[function.arguments[0]]], {}).result
    b.store(function.arguments[1], twice)
    b.return_([])
    module = Module()
    module.add(function)
    with pytest.raises(ExactModeError, match=r"operation vendor\.twice computes floats and has no"):
        exact(module)


def test_an_operation_of_integers_alone_needs_no_row() -> None:
    function = Function("k", [I32, PointerType(I32)])
    b = Builder.at_end(function.body)
    b.store(function.arguments[1], b.mul(function.arguments[0], function.arguments[0]))
    b.return_([])
    module = Module()
    module.add(function)
    before = str(module)
    assert not exact(module)
    assert str(module) == before
