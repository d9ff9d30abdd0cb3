"""The rows of the op table, and the table.

An operation is declared once, as a class (:mod:`tilewright.ir.declare`), of which its row is made,
an :class:`OpSpec`: builder, printer, parser, verifier, reference, passes and the reference pages
read it from here. A plugin adds operations of its own under a dotted name (``vendor.op``) by
extending the table, never by editing it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tilewright.ir.core import Operation
from tilewright.ir.encoding import Encoding
from tilewright.ir.type_text import KEYWORDS
from tilewright.ir.types import FloatType, IntType, Type

Row = TypeVar("Row")


def merged(*tables: Mapping[str, Row], what: str = "operation") -> dict[str, Row]:
    """One table of those of several modules.

    Args:
        what: the rows' names are of such things.

    Raises:
        ValueError: a name stands in two of them.
    """
    found: dict[str, Row] = {}
    for table in tables:
        twice = found.keys() & table
        if twice:
            raise ValueError(f"{what} {min(twice)!r} has a row in two tables")
        found.update(table)
    return found


class RuleError(Exception):
    """An operation breaks a rule of its row in the table.

    The message is the rule, with the types at hand.
    """


class Effect(enum.Flag):
    """The effects of an operation beyond its results."""

    NONE = 0
    READ = enum.auto()  # reads memory
    WRITE = enum.auto()  # writes memory
    ORDER = enum.auto()  # must keep its place among effects: barriers, prints, asserts
    REGION = enum.auto()  # whatever the operations in its regions do


class Trait(enum.Flag):
    """Properties that passes and backends rely on."""

    NONE = 0
    ELEMENTWISE = enum.auto()  # scalars, or tiles of one shape, element by element
    COMMUTATIVE = enum.auto()
    ASSOCIATIVE = enum.auto()  # operands in any order, up to rounding
    IDEMPOTENT = enum.auto()  # op(x, x) = x
    SHAPE = enum.auto()  # moves or repeats elements, computes nothing
    ACCESS = enum.auto()  # reads or writes memory at the address that is its first operand
    NO_MEMORY = enum.auto()  # keeps its place among effects, but orders no reads and writes
    SCALAR_REGION = enum.auto()  # its regions compute on scalars, for the elements of its operands
    ADDRESSING = enum.auto()  # an address that it computes is one through which memory is accessed
    COMMON_DIVISOR = enum.auto()  # integers: a power of two that divides all operands divides it
    BITWISE = enum.auto()  # copies the bits of floats, or has none, but in its regions


class Kind(enum.Enum):
    """The number of operands that a group takes."""

    SINGLE = "single"
    OPTIONAL = "optional"
    VARIADIC = "variadic"


@dataclass(frozen=True, slots=True)
class Operand:
    """A named group of operands."""

    name: str
    meaning: str = ""
    kind: Kind = Kind.SINGLE


REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Attribute:
    """A named attribute.

    ``kind`` is one of ``int bool str float number ints strs type encoding``, or ``enum`` with its
    ``choices``.

    ``number`` is an int, float or bool (the value of a constant). An attribute equal to its default
    is not printed.
    """

    name: str
    kind: str
    meaning: str = ""
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def accepts(self, value: object) -> bool:
        """Return whether ``value`` is of this attribute's kind."""
        match self.kind:
            case "int":
                return isinstance(value, int) and not isinstance(value, bool)
            case "bool":
                return isinstance(value, bool)
            case "str":
                return isinstance(value, str)
            case "float":
                return isinstance(value, float)
            case "number":
                return isinstance(value, int | float | bool)
            case "type":
                return isinstance(value, Type)
            case "encoding":
                return isinstance(value, Encoding)
            case "ints":
                return isinstance(value, tuple) and all(
                    isinstance(v, int) and not isinstance(v, bool) for v in value
                )
            case "strs":
                return isinstance(value, tuple) and all(isinstance(v, str) for v in value)
            case "enum":
                return value in self.choices
        raise AssertionError(f"attribute kind {self.kind!r}")


@dataclass(frozen=True, slots=True)
class Shape:
    """An operation as a type rule sees it.

    It has the operand types by group, the attributes with defaults filled in and, where the
    operation states its result types itself (``explicit_results``), those types.
    """

    spec: OpSpec
    groups: Mapping[str, Sequence[Type]]
    attributes: Mapping[str, Any]
    results: Sequence[Type] = ()

    def type(self, name: str) -> Type:
        """The type of the single operand ``name``."""
        return self.groups[name][0]

    def optional(self, name: str) -> Type | None:
        group = self.groups[name]
        return group[0] if group else None

    @property
    def result(self) -> Type:
        if len(self.results) != 1:
            raise RuleError(f"has one result, not {len(self.results)}")
        return self.results[0]


#: The result types of an operation that is made.
Rule = Callable[[Shape], Sequence[Type]]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One row of the op table.

    ``rule`` maps a :class:`Shape` to the result types, or raises :class:`RuleError`. With
    ``explicit_results`` the result types are part of the operation's text; the rule then checks and
    returns them. ``check`` verifies what only the whole operation shows (its regions). ``regions``
    names the regions. ``cost`` is what an element takes on a processor without an instruction of
    its own for it, in additions. ``op_class`` is what its operations are; those of a row that was
    made without a class are plain ones, whose operands and attributes are read by name.
    ``forwards`` names the group of operands that the results are, one each and value for value, so
    that analyses carry what they know of an operand to its result; it is empty for operations that
    compute or move something.
    """

    name: str
    summary: str
    operands: tuple[Operand, ...]
    rule: Rule
    attributes: tuple[Attribute, ...] = ()
    effects: Effect = Effect.NONE
    traits: Trait = Trait.NONE
    regions: tuple[str, ...] = ()
    explicit_results: bool = False
    terminator: bool = False
    check: Callable[[Operation], None] | None = None
    cost: int = 1
    op_class: type[Operation] = Operation
    forwards: str = ""
    _attributes: dict[str, Attribute] = field(default_factory=dict, repr=False, compare=False)
    _simple: bool = field(default=False, init=False, repr=False, compare=False)
    # asked many times for each operation: a look among traits takes several times as long
    _elementwise: bool = field(default=False, init=False, repr=False, compare=False)
    #: What the rule gave, by the types and attributes it was asked about
    #: (:func:`tilewright.ir.builder.infer_types`).
    inferred: dict[tuple[object, ...], tuple[Type, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        names = [
            *(operand.name for operand in self.operands),
            *(attribute.name for attribute in self.attributes),
            *self.regions,
        ]
        if len(set(names)) != len(names):
            raise ValueError(
                f"operation {self.name!r} has two parts called "
                f"{next(name for name in names if names.count(name) > 1)!r}"
            )
        if self.forwards and self.forwards not in [operand.name for operand in self.operands]:
            raise ValueError(f"operation {self.name!r} has no operand {self.forwards!r} to forward")
        self._attributes.update({attribute.name: attribute for attribute in self.attributes})
        object.__setattr__(
            self, "_simple", all(operand.kind is Kind.SINGLE for operand in self.operands)
        )
        object.__setattr__(self, "_elementwise", Trait.ELEMENTWISE in self.traits)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def simple_operands(self) -> bool:
        """True where every operand group is single, so that segments carry no information."""
        return self._simple

    @property
    def pure(self) -> bool:
        """No effect of its own (a pure operation's regions may still have effects only if
        ``Effect.REGION`` is set)."""
        return self.effects is Effect.NONE and not self.terminator

    @property
    def elementwise(self) -> bool:
        return self._elementwise

    @property
    def commutative(self) -> bool:
        return Trait.COMMUTATIVE in self.traits

    @property
    def associative(self) -> bool:
        return Trait.ASSOCIATIVE in self.traits

    @property
    def idempotent(self) -> bool:
        return Trait.IDEMPOTENT in self.traits

    @property
    def moves(self) -> bool:
        """Return whether the results are the elements of the one operand, moved or repeated."""
        return Trait.SHAPE in self.traits and len(self.operands) == 1

    @property
    def python_name(self) -> str:
        """The builder's method name: keywords of Python get a trailing underscore, dots become
        underscores."""
        import keyword

        name = self.name.replace(".", "_")
        return f"{name}_" if keyword.iskeyword(name) else name

    def attribute(self, name: str) -> Attribute:
        try:
            return self._attributes[name]
        except KeyError:
            raise KeyError(f"{self.name} has no attribute {name!r}") from None

    def has_attribute(self, name: str) -> bool:
        return name in self._attributes


#: Reads what stands between the brackets of an encoding's text.
EncodingParser = Callable[[str], Encoding]
#: Reads what stands between the brackets of a type's text; the second argument reads the encodings
#: in it, which are names or whole texts.
TypeParser = Callable[[str, Callable[[str], Encoding]], Type]


class OpTable:
    """The operations by name.

    Attributes:
        types: how the types beside Tile IR's own are read, by keyword.
        encodings: how encodings are read, by keyword.
    """

    def __init__(
        self,
        specs: Iterable[OpSpec],
        types: Mapping[str, TypeParser] | None = None,
        encodings: Mapping[str, EncodingParser] | None = None,
    ) -> None:
        self.types, self.encodings = dict(types or {}), dict(encodings or {})
        own = KEYWORDS & self.types.keys()
        if own:
            raise ValueError(f"type {min(own)!r} is one of Tile IR's own: give it another name")
        self._specs: dict[str, OpSpec] = {}
        for spec in specs:
            if spec.name in self._specs:
                raise ValueError(f"operation {spec.name!r} is declared twice")
            self._specs[spec.name] = spec

    def __getitem__(self, name: str) -> OpSpec:
        try:
            return self._specs[name]
        except KeyError:
            raise KeyError(f"no operation {name!r} in the table") from None

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def __iter__(self) -> Iterator[OpSpec]:
        return iter(self._specs.values())

    def __len__(self) -> int:
        return len(self._specs)

    def extended(
        self,
        specs: Iterable[OpSpec],
        types: Mapping[str, TypeParser] | None = None,
        encodings: Mapping[str, EncodingParser] | None = None,
    ) -> OpTable:
        """A new table with a plugin's operations, whose names must be dotted (``vendor.op``), and
        with more types and encodings.

        Raises:
            ValueError: an operation's name has no dot; or a name is known already, of Tile IR, of
                this table, or twice among the new ones.
        """
        specs = tuple(specs)
        for spec in specs:
            if "." not in spec.name:
                raise ValueError(f"a plugin's operation is named 'vendor.op', not {spec.name!r}")
        return OpTable(
            (*self, *specs),
            merged(self.types, types or {}, what="type"),
            merged(self.encodings, encodings or {}, what="encoding"),
        )


def is_int(type_: Type) -> bool:
    return isinstance(type_, IntType)


def is_float(type_: Type) -> bool:
    return isinstance(type_, FloatType)
