"""The builder, and the graph it builds."""

from __future__ import annotations

import pytest

from tilewright.ir import TABLE, Builder, Function, Location, Operation, RuleError
from tilewright.ir.builder import infer_types
from tilewright.ir.table import Attribute, Operand, OpSpec, Shape
from tilewright.ir.types import F32, I1, I32, I64, DescriptorType, PointerType, TileType, Type


def at_end(*types: Type) -> tuple[Function, Builder]:
    function = Function("k", types)
    return function, Builder.at_end(function.body)


def names(function: Function) -> list[str]:
    return [operation.name for operation in function.body]


def test_every_operation_has_a_method() -> None:
    for spec in TABLE:
        assert callable(
            getattr(Builder, spec.python_name, None) or getattr(Builder(), spec.python_name)
        )
    with pytest.raises(AttributeError, match="no operation 'nothing' in the op table"):
        _ = Builder().nothing


def test_operands_by_position_and_name() -> None:
    function, b = at_end(PointerType(F32), I1, F32)
    pointer, mask, other = function.arguments
    for value in (
        b.load(pointer, mask, other),
        b.load(pointer, mask=mask, other=other),
        b.load(pointer=pointer, mask=mask, other=other),
    ):
        assert value.owner.operands == [pointer, mask, other]
        assert value.owner.operand("mask") is mask
        assert value.owner.group("other") == [other]
    bare = b.load(pointer).owner
    assert bare.segments == (1, 0, 0)
    assert bare.operand("mask") is None
    with pytest.raises(KeyError, match="load has no operand 'lanes'"):
        bare.group("lanes")
    with pytest.raises(TypeError, match="neg takes at most 1 operands, not 2"):
        b.neg(other, other)


def test_results() -> None:
    function, b = at_end(TileType((4, 2), F32), PointerType(F32), F32, I64)
    tile, pointer, value, extent = function.arguments
    assert [part.type for part in b.split(tile)] == [TileType((4,), F32)] * 2
    assert b.store(pointer, value) is None
    descriptor = b.make_descriptor(pointer, [extent], [extent], result=DescriptorType((4,), F32))
    assert descriptor.type is DescriptorType((4,), F32)
    assert descriptor.owner.group("strides") == [extent]
    assert [part.index for part in function.body.first.results] == [0, 1]


def test_defaults_are_not_kept() -> None:
    function, b = at_end(PointerType(F32))
    operation = b.load(function.arguments[0], volatile=False, cache="cg").owner
    assert operation.attributes == {"cache": "cg"}
    assert (operation.attribute("volatile"), operation.attribute("eviction")) == (False, "normal")
    with pytest.raises(KeyError, match="load has no attribute 'speed'"):
        operation.attribute("speed")


def test_rules_are_checked_as_it_is_built() -> None:
    function, b = at_end(F32, I32)
    with pytest.raises(RuleError, match=r"^add: operands must have one type, not f32 and i32$"):
        b.add(*function.arguments)
    with pytest.raises(RuleError, match=r"^neg: operand x is one value, not 0$"):
        b.neg()
    with pytest.raises(RuleError, match=r"^neg: has no attribute 'fast'$"):
        b.neg(function.arguments[0], fast=True)
    assert names(function) == []


def test_constants() -> None:
    function, b = at_end()
    assert b.constant_like(I1, 1).owner.attributes["value"] is True
    assert b.constant_like(F32, 1).owner.attributes["value"] == 1.0
    splat = b.constant_like(TileType((4,), I32), 7)
    assert splat.type is TileType((4,), I32)
    assert names(function) == ["constant", "constant", "constant", "splat"]


def test_insertion_points() -> None:
    function, b = at_end(I32)
    b.location = Location("f.py", 3)
    last = b.neg(function.arguments[0])
    before = Builder.at(last.owner)
    first = before.abs(function.arguments[0])
    assert names(function) == ["abs", "neg"]
    assert first.owner.location == last.owner.location == Location("f.py", 3)
    inner = Function("g", [I32]).body
    with b.at_region(inner):
        b.neg(inner.arguments[0])
    b.clz(last)
    assert names(function) == ["abs", "neg", "clz"]
    assert len(inner) == 1


def test_uses() -> None:
    function, b = at_end(I32, I32)
    x, y = function.arguments
    total = b.add(x, x)
    assert x.uses == {total.owner: 2}
    total.owner.set_operand(0, y)
    assert (x.uses, y.uses) == ({total.owner: 1}, {total.owner: 1})
    x.replace_all_uses(y)
    assert (x.uses, y.uses) == ({}, {total.owner: 2})
    total.owner.replace_operands([x, y], (1, 1))
    assert (x.uses, y.uses) == ({total.owner: 1}, {total.owner: 1})
    total.owner.erase()
    assert (x.uses, y.uses, len(function.body)) == ({}, {}, 0)


def test_erasing_an_operation_drops_what_its_regions_read() -> None:
    function, b = at_end(I32)
    (x,) = function.arguments
    body = Function("g", [I32]).body
    with b.at_region(body):
        b.neg(x)
        b.yield_([])
    loop = b.region_op("for", x, x, x, [], regions=[body])
    assert len(x.uses) == 2
    loop.erase()
    assert x.uses == {}


def test_moving() -> None:
    function, b = at_end(I32)
    operations: list[Operation] = [b.neg(function.arguments[0]).owner for _ in range(4)]
    operations[3].move_before(operations[0])
    assert list(function.body) == [operations[3], *operations[:3]]
    assert function.body.first is operations[3]
    assert function.body.last is operations[2]
    for operation in function.body:
        assert operation.next is None or operation.next.previous is operation
    visited = []
    for operation in function.body:  # the operation given out may be erased
        visited.append(operation)
        operation.erase()
    assert len(visited) == 4
    assert function.body.first is None
    assert function.body.last is None


def test_a_rule_is_asked_once_for_the_same_types_and_attributes() -> None:
    asked = []

    def rule(shape: Shape) -> tuple[Type, ...]:
        asked.append(dict(shape.attributes))
        return (I1 if shape.attributes["wide"] is True else shape.type("x"),)

    spec = OpSpec(
        "test.once",
        "",
        (Operand("x"),),
        rule,
        (Attribute("wide", "bool", default=False), Attribute("count", "int", default=0)),
    )
    assert [list(infer_types(spec, [[type_]], {})) for type_ in (I32, F32, I32)] == [
        [I32],
        [F32],
        [I32],
    ]
    assert list(infer_types(spec, [[I32]], {"wide": True})) == [I1] and len(asked) == 3
    stated = OpSpec(
        "test.stated",
        "",
        (Operand("x"),),
        lambda shape: tuple(shape.results),
        explicit_results=True,
    )
    assert [list(infer_types(stated, [[I32]], {}, [type_])) for type_ in (I32, F32)] == [
        [I32],
        [F32],
    ]
    with pytest.raises(RuleError, match="attribute wide must be bool, not 1"):
        infer_types(spec, [[I32]], {"wide": 1})
    for _ in range(2):
        with pytest.raises(RuleError, match="takes 1 operand groups, not 0"):
            infer_types(spec, [], {})
    for count in range(3):  # numbers are any number of values
        infer_types(spec, [[I32]], {"count": count})
    assert len(asked) == 6 and len(spec.inferred) == 3
