"""Declaration of operations as classes whose fields are operands, attributes and regions.

    OPS = Declarations()

    @OPS.operation("acme.blend", "a where the mask holds, else b, times scale", _blend_type)
    class Blend(Operation):
        __slots__ = ()

        a = SingleOperand()
        b = SingleOperand()
        mask = OptionalOperand("where a is taken")
        scale = TypedAttribute[float]("of the result", 1.0)

The row of the op table is made of the class, and every operation of the row is of the class: after
``isinstance(operation, Blend)``, or where a function takes a ``Blend``, ``operation.mask`` is the
value or None and ``operation.scale`` a float, with the default filled in; type checkers know it,
and refuse other names. Operations with the same operands and no attributes, such as most
elementwise ones, share a class: each is one :meth:`Declarations.row`.

Fields stand in the row's order, those of base classes first; a field that is declared again stands
where the class itself has it. A name that is a keyword of Python, or that every operation has, gets
an underscore behind it: ``else_``, ``name_``.
"""

from __future__ import annotations

import keyword
import typing
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from tilewright.ir.core import Operation
from tilewright.ir.encoding import Encoding
from tilewright.ir.table import REQUIRED, Attribute, Effect, Kind, Operand, OpSpec, Rule, Trait
from tilewright.ir.types import Type

if TYPE_CHECKING:
    from tilewright.ir.core import Region, Value

_Class = TypeVar("_Class", bound=type[Operation])
_Attribute = TypeVar("_Attribute")

#: What an attribute of each kind is, beside the choices of an ``enum``, which are a Literal.
_KINDS: Final[dict[Any, str]] = {
    int: "int",
    bool: "bool",
    str: "str",
    float: "float",
    int | float | bool: "number",
    tuple[int, ...]: "ints",
    tuple[str, ...]: "strs",
    Type: "type",
    Encoding: "encoding",
}


class _Field:
    """Declaration of an operand, an attribute or a region."""


class _OperandField(_Field):
    """A group of operands."""

    kind: ClassVar[Kind]

    def __init__(self, meaning: str = "") -> None:
        self.meaning = meaning


class SingleOperand(_OperandField):
    """One value."""

    kind = Kind.SINGLE

    def __get__(self, operation: object, owner: object = None) -> Value:
        raise _undeclared(owner)


class OptionalOperand(_OperandField):
    """One value, or None."""

    kind = Kind.OPTIONAL

    def __get__(self, operation: object, owner: object = None) -> Value | None:
        raise _undeclared(owner)


class VariadicOperand(_OperandField):
    """Any number of values."""

    kind = Kind.VARIADIC

    def __get__(self, operation: object, owner: object = None) -> list[Value]:
        raise _undeclared(owner)


class TypedAttribute(_Field, Generic[_Attribute]):
    """An attribute of the type between the brackets; a Literal's values are its choices.

    Without a default the operation always has it.
    """

    def __init__(self, meaning: str = "", default: _Attribute | Any = REQUIRED) -> None:
        self.meaning, self.default = meaning, default

    def __get__(self, operation: object, owner: object = None) -> _Attribute:
        raise _undeclared(owner)

    def attribute(self, name: str) -> Attribute:
        """The row's attribute."""
        (type_,) = typing.get_args(getattr(self, "__orig_class__", None)) or (None,)
        if typing.get_origin(type_) is typing.Literal:
            return Attribute(name, "enum", self.meaning, self.default, typing.get_args(type_))
        kind = _KINDS.get(type_)
        if kind is None:
            raise TypeError(f"attribute {name} is of no kind that attributes have: {type_}")
        return Attribute(name, kind, self.meaning, self.default)


class NamedRegion(_Field):
    """A region."""

    def __get__(self, operation: object, owner: object = None) -> Region:
        raise _undeclared(owner)


def _undeclared(owner: object) -> TypeError:
    return TypeError(
        f"{owner} is no class of a row: it names fields that the classes below it have"
    )


class Declarations(list[OpSpec]):
    """Rows of an op table, in order."""

    def operation(
        self,
        name: str,
        summary: str,
        rule: Rule,
        *,
        effects: Effect = Effect.NONE,
        traits: Trait = Trait.NONE,
        explicit_results: bool = False,
        terminator: bool = False,
        check: Callable[[Any], None] | None = None,
        cost: int = 1,
        forwards: str = "",
    ) -> Callable[[_Class], _Class]:
        """Declare the operation of a class.

        The arguments are :class:`~tilewright.ir.table.OpSpec`'s.
        """

        def declare(op_class: _Class) -> _Class:
            self.row(
                op_class,
                name,
                summary,
                rule,
                effects=effects,
                traits=traits,
                explicit_results=explicit_results,
                terminator=terminator,
                check=check,
                cost=cost,
                forwards=forwards,
            )
            op_class.row = self[-1]
            return op_class

        return declare

    def row(
        self, op_class: type[Operation], name: str, summary: str, rule: Rule, **named: Any
    ) -> None:
        """Declare an operation whose class others share."""
        fields = _fields(op_class)
        self.append(
            OpSpec(
                name,
                summary,
                tuple(
                    [
                        Operand(key, field.meaning, field.kind)
                        for key, field in fields.items()
                        if isinstance(field, _OperandField)
                    ]
                ),
                rule,
                tuple(
                    [
                        field.attribute(key)
                        for key, field in fields.items()
                        if isinstance(field, TypedAttribute)
                    ]
                ),
                regions=tuple(
                    [key for key, field in fields.items() if isinstance(field, NamedRegion)]
                ),
                op_class=op_class,
                **named,
            )
        )


#: The fields of each class, by their names in the row.
_BOUND: Final[dict[type[Operation], dict[str, _Field]]] = {}


def _fields(op_class: type[Operation]) -> dict[str, _Field]:
    """The fields of a class, which are properties from here on."""
    if op_class in _BOUND:
        return _BOUND[op_class]
    if "__dict__" in vars(op_class) or not issubclass(op_class, Operation):
        raise TypeError(
            f"{op_class.__name__} must be a class of operations, and say __slots__ = ()"
        )
    found: dict[str, _Field] = {}
    for base in reversed(op_class.__mro__):
        declared = _BOUND.get(base) or {
            _row_name(op_class, name): field
            for name, field in vars(base).items()
            if isinstance(field, _Field)
        }
        for name in declared:
            found.pop(name, None)
        found.update(declared)
    for name, reader in _readers(found):
        setattr(op_class, _field_name(name), property(reader))
    _BOUND[op_class] = found
    return found


def _field_name(name: str) -> str:
    """Return the class's name of a field, which Python or ``Operation`` may have taken."""
    taken = keyword.iskeyword(name) or hasattr(Operation, name) or name in Operation.__annotations__
    return f"{name}_" if taken else name


def _row_name(op_class: type[Operation], name: str) -> str:
    found = name.removesuffix("_") if name == _field_name(name.removesuffix("_")) else name
    if name != _field_name(found):
        raise TypeError(
            f"{op_class.__name__}.{name} would hide what every operation has: call it "
            f"{_field_name(found)}"
        )
    return found


def _readers(fields: dict[str, _Field]) -> Iterable[tuple[str, Callable[[Any], Any]]]:
    """Yield each field with the function that reads it.

    A group's place is known where every group before it is single; else it is counted.
    """
    place, fixed, region = 0, True, 0
    for name, field in fields.items():
        if isinstance(field, _OperandField):
            yield name, _operand_reader(field.kind, place, fixed)
            place, fixed = place + 1, fixed and field.kind is Kind.SINGLE
        elif isinstance(field, TypedAttribute):
            yield name, _attribute_reader(field.attribute(name))
        else:
            yield name, _region_reader(region)
            region += 1


def _attribute_reader(attribute: Attribute) -> Callable[[Operation], Any]:
    name, default = attribute.name, attribute.default
    if attribute.required:
        return lambda operation: operation.attributes[name]
    return lambda operation: operation.attributes.get(name, default)


def _region_reader(place: int) -> Callable[[Operation], Region]:
    return lambda operation: operation.regions[place]


def _operand_reader(kind: Kind, group: int, fixed: bool) -> Callable[[Operation], Any]:
    """Reads the operands of a group; where ``fixed``, all before it are single."""
    if fixed:
        if kind is Kind.SINGLE:
            return lambda operation: operation.operands[group]
        if kind is Kind.OPTIONAL:
            return lambda operation: (
                operation.operands[group] if operation.segments[group] else None
            )
        return lambda operation: operation.operands[group : group + operation.segments[group]]
    if kind is Kind.SINGLE:
        return lambda operation: operation.operands[sum(operation.segments[:group])]
    if kind is Kind.OPTIONAL:
        return lambda operation: (
            operation.operands[sum(operation.segments[:group])]
            if operation.segments[group]
            else None
        )

    def variadic(operation: Operation) -> list[Value]:
        start = sum(operation.segments[:group])
        return operation.operands[start : start + operation.segments[group]]

    return variadic


__all__ = [
    "Declarations",
    "NamedRegion",
    "OptionalOperand",
    "SingleOperand",
    "TypedAttribute",
    "VariadicOperand",
]
