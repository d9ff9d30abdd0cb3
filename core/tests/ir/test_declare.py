"""Operations as classes: their fields make the row of the table, and read what the operation
has."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import pytest

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.declare import (
    Declarations,
    NamedRegion,
    OptionalOperand,
    SingleOperand,
    TypedAttribute,
    VariadicOperand,
)
from tilewright.ir.encoding import Encoding
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.arithmetic import Binary, Cmp
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.table import Attribute, Kind, Operand, OpSpec
from tilewright.ir.types import I32, Type
from tilewright.passes.clone import clone_operation
from tilewright.simt.dialect.ops import OPS as SIMT_OPS

OPS = Declarations()


def nothing(shape: Any) -> tuple[()]:
    return ()


class Placed(Operation):
    """What has a place, wherever it stands among the operands."""

    __slots__ = ()

    place = SingleOperand()
    extents = TypedAttribute[tuple[int, ...]]()


@OPS.operation("acme.all", "of every kind", nothing)
class All(Placed):
    __slots__ = ()

    first = OptionalOperand("may be absent")
    many = VariadicOperand("any number")
    place = SingleOperand("moved behind them")
    last = OptionalOperand()
    on = TypedAttribute[bool]("a truth", False)
    extents = TypedAttribute[tuple[int, ...]]("extents", (1,))
    mode = TypedAttribute[Literal["up", "down"]]("which way", "up")
    class_ = TypedAttribute[str]()
    parent_ = TypedAttribute[str]()
    for_ = NamedRegion()
    then = NamedRegion()


def values(count: int) -> list[Value]:
    return [Value(I32, Region()) for _ in range(count)]


def test_the_row_is_made_of_the_fields() -> None:
    assert All.row == OPS[0] == OpSpec(
        "acme.all",
        "of every kind",
        (
            Operand("first", "may be absent", Kind.OPTIONAL),
            Operand("many", "any number", Kind.VARIADIC),
            Operand("place", "moved behind them"),
            Operand("last", "", Kind.OPTIONAL),
        ),
        nothing,
        (
            Attribute("on", "bool", "a truth", False),
            Attribute("extents", "ints", "extents", (1,)),
            Attribute("mode", "enum", "which way", "up", ("up", "down")),
            Attribute("class", "str"),
            Attribute("parent", "str"),
        ),
        regions=("for", "then"),
        op_class=All,
    )  # fmt: skip


@pytest.mark.parametrize(("first", "many", "last"), [*itertools.product((0, 1), (0, 1, 3), (0, 1))])
def test_operands_are_read_wherever_groups_before_them_end(
    first: int, many: int, last: int
) -> None:
    operands = values(first + many + 1 + last)
    regions = [Region(), Region()]
    operation = Operation(
        All.row,
        operands,
        (first, many, 1, last),
        {"class": "c", "parent": "p", "extents": (2, 3)},
        (),
        regions,
    )
    assert type(operation) is All
    assert operation.first is (operands[0] if first else None)
    assert operation.many == operands[first : first + many]
    assert operation.place is operands[first + many]
    assert operation.last is (operands[-1] if last else None)
    assert (
        operation.on,
        operation.extents,
        operation.mode,
        operation.class_,
        operation.parent_,
    ) == (False, (2, 3), "up", "c", "p")
    assert operation.parent is None
    assert (operation.for_, operation.then) == tuple(regions)
    (replacement,) = values(1)
    operation.set_operand(first + many, replacement)
    assert operation.place is replacement


@pytest.mark.parametrize("spec", [*TABLE, *SIMT_OPS], ids=lambda spec: spec.name)
def test_the_fields_of_every_operation_read_what_its_row_names(spec: OpSpec) -> None:
    for sizes in itertools.product(
        *[
            {Kind.SINGLE: (1,), Kind.OPTIONAL: (0, 1), Kind.VARIADIC: (0, 2)}[operand.kind]
            for operand in spec.operands
        ]
    ):
        operation: Any = Operation(
            spec, values(sum(sizes)), sizes, {}, (), [Region() for _ in spec.regions]
        )
        assert type(operation) is spec.op_class is not Operation
        for operand in spec.operands:
            group = operation.group(operand.name)
            assert getattr(operation, operand.name) == (
                group if operand.kind is Kind.VARIADIC else operation.operand(operand.name)
            )
        for attribute in spec.attributes:
            field = f"{attribute.name}_" if hasattr(Operation, attribute.name) else attribute.name
            if not attribute.required:
                assert getattr(operation, field) == attribute.default
            operation.attributes[attribute.name] = given = object()
            assert getattr(operation, field) is given
        for name, region in zip(spec.regions, operation.regions, strict=True):
            assert getattr(operation, "else_" if name == "else" else name) is region
        assert not hasattr(operation, "__dict__")


def test_operations_are_of_their_class_however_they_are_made() -> None:
    (a, b) = values(2)
    made = Operation(TABLE["cmp"], [a, b], (1, 1), {"predicate": "lt"}, ())
    assert isinstance(made, Cmp) and isinstance(made, Binary) and Cmp.row is TABLE["cmp"]
    assert type(clone_operation(made, {})) is Cmp
    assert type(Operation(TABLE["add"], [a, b], (1, 1), {}, ())) is Binary is TABLE["add"].op_class
    assert not isinstance(made, Load)


def test_a_plain_row_makes_plain_operations() -> None:
    spec = OpSpec("acme.plain", "has no class", (Operand("x"),), nothing)
    assert type(Operation(spec, values(1), (1,), {}, ())) is Operation


@pytest.mark.parametrize("type_", [list[int], None, complex, Literal])
def test_attributes_of_no_kind_are_refused(type_: Any) -> None:
    class Wrong(Operation):
        __slots__ = ()
        value = TypedAttribute[type_]()  # type: ignore[valid-type]

    with pytest.raises(TypeError, match="attribute value is of no kind that attributes have"):
        OPS.operation("acme.wrong", "", nothing)(Wrong)


def test_attributes_of_types_and_encodings() -> None:
    class Typed(Operation):
        __slots__ = ()
        of = TypedAttribute[Type]()
        layout = TypedAttribute[Encoding]()
        number = TypedAttribute[int | float | bool]()
        words = TypedAttribute[tuple[str, ...]]()

    declared = Declarations()
    declared.operation("acme.typed", "", nothing)(Typed)
    assert [attribute.kind for attribute in declared[0].attributes] == [
        "type",
        "encoding",
        "number",
        "strs",
    ]


@pytest.mark.parametrize("name", ["operands", "name", "row"])
def test_a_field_does_not_hide_what_every_operation_has(name: str) -> None:
    hiding = type("Hiding", (Operation,), {"__slots__": (), name: SingleOperand()})
    with pytest.raises(
        TypeError, match=f"Hiding.{name} would hide what every operation has: call it {name}_"
    ):
        OPS.operation("acme.hiding", "", nothing)(hiding)


def test_a_class_without_slots_is_refused() -> None:
    class Heavy(Operation):
        pass

    with pytest.raises(
        TypeError, match=r"Heavy must be a class of operations, and say __slots__ = \(\)"
    ):
        OPS.operation("acme.heavy", "", nothing)(Heavy)


def test_a_class_of_no_row_reads_nothing() -> None:
    (x,) = values(1)
    bare = object.__new__(Placed)
    bare.operands = [x]
    with pytest.raises(TypeError, match="Placed'> is no class of a row"):
        _ = bare.place


def test_fields_are_not_assigned() -> None:
    store = Operation(Store.row, values(2), (1, 1, 0), {}, ())
    assert isinstance(store, Store)
    with pytest.raises(AttributeError):
        store.value = values(1)[0]  # type: ignore[assignment]
