"""A program under construction: its values and their attributes, its arguments, and its guards.

Every value is either *exact* (a backend must reproduce it bit for bit) or not: results of math
functions and of additions in any order. An inexact value is moved and stored but not computed with,
since a comparison or a rounding could turn a tolerated difference into any other. Its output
carries the bound to hold.

Guards, the operations made in :meth:`State.guarding`, keep a later operation defined and its result
exact: they make divisors non-zero, mask shift amounts, replace NaN, keep addresses apart. They have
locations in the file ``guard``; the minimiser leaves them alone.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tilewright.ir import Builder, Function, Location, Module, Operation, Region, Value
from tilewright.ir.types import (
    F32,
    F64,
    I1,
    I32,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    element_type,
    shape_of,
    tile_or_scalar,
    with_element,
)
from tilewright_conformance.random_programs.language import Language
from tilewright_conformance.random_programs.program import (
    ArrayArgument,
    NumberArgument,
    special_numbers,
)

#: The file of the locations of operations that keep a program defined.
GUARD = "guard"

T = TypeVar("T")


def is_guard(operation: Operation) -> bool:
    """Return whether an operation keeps another one defined."""
    return operation.location is not None and operation.location.file == GUARD


@dataclass
class Item:
    """A value of the program with its attributes.

    ``bound`` is (ulp, scale) of an inexact value; (0, 0) means that the value may be moved only.
    """

    value: Value
    bound: tuple[float, float] | None = None

    @property
    def type(self) -> Type:
        return self.value.type


@dataclass
class Slot:
    """An argument that an output or a later access is about."""

    value: Value
    parameter: ArrayArgument | NumberArgument
    #: (ulp, scale) where the program writes it
    written: tuple[float, float] | None = None


Accept = Callable[[Type], bool]


@dataclass
class State:
    """A program being built. ``pool`` has the values that are visible at the builder's place."""

    random: random.Random
    language: Language
    grid: tuple[int, int, int]
    module: Module
    function: Function
    builder: Builder
    pool: list[Item] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    depth: int = 0
    line: int = 1
    #: this program's number in the grid, where the kernel's beginning is visible
    linear: Value | None = None

    # ---- drawing

    def one_of(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def chance(self, one_in: int) -> bool:
        """Return True once in so many times."""
        return self.number(1, one_in) == one_in

    # ---- values

    def pick(self, accept: Callable[[Item], bool]) -> Item | None:
        """Pick a visible value, preferring recent ones: long chains of operations find bugs."""
        found = [item for item in self.pool if accept(item)]
        if not found:
            return None
        return self.one_of(found[-6:] if self.number(0, 2) else found)

    def exact(self, accept: Accept) -> Value | None:
        """An exact value whose element type is accepted."""
        found = self.pick(lambda item: item.bound is None and accept(element_type(item.type)))
        return found.value if found is not None else None

    def exact_tile(self, accept: Callable[[TileType], bool]) -> Value | None:
        """An exact value that is a tile of an accepted type."""
        found = self.pick(
            lambda item: (
                item.bound is None and isinstance(item.type, TileType) and accept(item.type)
            )
        )
        return found.value if found is not None else None

    def exact_of(self, type_: Type) -> Value | None:
        """An exact value of one type."""
        found = self.pick(lambda item: item.bound is None and item.type is type_)
        return found.value if found is not None else None

    def partner(self, like: Value) -> Value:
        """Return an exact value of the same type as an operand.

        It is the same or another value, a constant, a splat number, or a value of another type cast
        to it.
        """
        way = self.number(0, 5)
        found = self.exact_of(like.type) if way < 3 else None
        if found is None and way < 5:
            found = (
                self._spread(like.type) if way == 3 else self._cast(like.type) if way == 4 else None
            )
        return found if found is not None else self.constant(like.type)

    def of(self, type_: Type) -> Value:
        """An exact value of a type."""
        found = self.exact_of(type_)
        return found if found is not None else self.constant(type_)

    def _spread(self, type_: Type) -> Value | None:
        if not isinstance(type_, TileType):
            return None
        scalar = self.exact_of(type_.element)
        found: Value | None = (
            self.builder.splat(scalar, result=type_) if scalar is not None else None
        )
        return found

    def _cast(self, type_: Type) -> Value | None:
        """A value of the same shape cast to the type, where no cast of such values is undefined."""
        element = element_type(type_)
        shape = shape_of(type_)
        found = self.pick(
            lambda item: (
                item.bound is None
                and shape_of(item.type) == shape
                and _casts_freely(element_type(item.type), element)
            )
        )
        return self.builder.cast(found.value, result=type_) if found is not None else None

    def constant(self, type_: Type) -> Value:
        """A constant: a small number, or one at the edge of its type."""
        element = element_type(type_)
        if element is I1:
            return self.builder.constant_like(type_, self.chance(2))
        if self.number(0, 3) == 0:
            return self.builder.constant_like(type_, self.one_of(special_numbers(element)))
        low = 0 if isinstance(element, IntType) and not element.signed else -3
        return self.builder.constant_like(type_, self.number(low, 5))

    def add(self, value: Value, bound: tuple[float, float] | None = None) -> None:
        self.pool.append(Item(value, bound))

    # ---- operations that keep others defined

    @contextlib.contextmanager
    def guarding(self) -> Iterator[Builder]:
        saved = self.builder.location
        self.builder.location = Location(GUARD, self.line)
        try:
            yield self.builder
        finally:
            self.builder.location = saved

    def settled(self, value: Value, replacement: float = 1.0) -> Value:
        """A float with NaN replaced by a number: its bits, and the sign of a NaN, are open."""
        if not isinstance(element_type(value.type), FloatType):
            return value
        with self.guarding() as b:
            found: Value = b.select(
                b.cmp(value, value, predicate="eq"), value, b.constant_like(value.type, replacement)
            )
        return found

    def ordered(self, value: Value) -> Value:
        """Make a float finite and without a negative zero.

        Which of two zeros is the smaller is open, and so is a chain of NaN-ignoring steps on NaN.
        """
        if not isinstance(element_type(value.type), FloatType):
            return value
        with self.guarding() as b:
            finite = b.cmp(b.sub(value, value), b.constant_like(value.type, 0.0), predicate="eq")
            found: Value = b.select(
                finite,
                b.add(value, b.constant_like(value.type, 0.0)),
                b.constant_like(value.type, 1.0),
            )
        return found

    def positive_zero(self, value: Value) -> Value:
        """A float with -0.0 made 0.0."""
        if not isinstance(element_type(value.type), FloatType):
            return value
        with self.guarding() as b:
            found: Value = b.add(value, b.constant_like(value.type, 0.0))
        return found

    def whole(self, type_: Type, bits: int, scale: float = 1.0) -> Value:
        """Derive a value of a type that holds integers of at most ``bits`` bits, times ``scale``.

        The integers are signed where the type is.
        """
        element, shape = element_type(type_), shape_of(type_)
        signed = not isinstance(element, IntType) or element.signed
        with self.guarding() as b:
            source = self.integers(shape)
            middle = tile_or_scalar(shape, I32)
            if source.type is not middle:
                source = b.cast(source, result=middle)
            found: Value = b.and_(source, b.constant_like(middle, (1 << bits) - 1))
            if signed:
                found = b.sub(found, b.constant_like(middle, 1 << (bits - 1)))
            if scale != 1.0:
                wide = b.cast(found, result=with_element(middle, F32))
                found = b.mul(wide, b.constant_like(wide.type, scale))
            return found if found.type is type_ else b.cast(found, result=type_)

    def integers(self, shape: tuple[int, ...]) -> Value:
        """Integers of a shape that differ from element to element, or a value of the program."""
        found = self.pick(
            lambda item: (
                item.bound is None
                and shape_of(item.type) == shape
                and is_int(element_type(item.type))
            )
        )
        if found is not None and self.number(0, 3):
            return found.value
        if not shape:
            return found.value if found is not None else self.linear_program()
        numbers = self.positions(shape)
        with self.guarding() as b:
            factor = b.constant_like(numbers.type, self.one_of((1, 3, 37, 1103)))
            made: Value = b.add(
                b.mul(numbers, factor), b.splat(self.linear_program(), result=numbers.type)
            )
        return made

    def positions(self, shape: tuple[int, ...]) -> Value:
        """The position in row-major order of every element of a tile of ``shape``, in i32."""
        with self.guarding() as b:
            found: Value = b.arange(start=0, end=self.language.numel(shape))
            return found if len(shape) == 1 else b.reshape(found, result=TileType(shape, I32))

    def along(self, shape: tuple[int, ...], axis: int) -> Value:
        """The coordinate along ``axis`` of every element of a tile of ``shape``, in i32."""
        with self.guarding() as b:
            found: Value = b.arange(start=0, end=shape[axis])
            for other in range(len(shape)):
                if other != axis:
                    found = b.expand_dims(found, axis=other)
            return (
                b.broadcast(found, result=TileType(shape, I32))
                if shape_of(found.type) != shape
                else found
            )

    def linear_program(self) -> Value:
        """This program's number in the grid."""
        if self.linear is not None:
            return self.linear
        with self.guarding() as b:
            x, y, z = (b.program_id(axis=axis) for axis in range(3))
            width, height = b.num_programs(axis=0), b.num_programs(axis=1)
            found: Value = b.add(x, b.mul(width, b.add(y, b.mul(height, z))))
        return found

    @property
    def programs(self) -> int:
        """Number of programs in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    # ---- arguments

    def array(
        self,
        element: Type,
        count: int,
        fill: str,
        name: str,
        written: tuple[float, float] | None = None,
    ) -> Slot:
        """A new argument: an array of ``count`` elements."""
        return self._argument(
            PointerType(element), ArrayArgument(element, count, fill), name, written
        )

    def scalar(self, type_: IntType | FloatType, value: int | float | bool, name: str) -> Slot:
        """A new argument: a number."""
        return self._argument(type_, NumberArgument(type_, value), name, None)

    def _argument(
        self,
        type_: Type,
        parameter: ArrayArgument | NumberArgument,
        name: str,
        written: tuple[float, float] | None,
    ) -> Slot:
        self.function.argument_attributes.append({})
        slot = Slot(
            self.function.body.add_argument(type_, f"{name}{len(self.slots)}"), parameter, written
        )
        self.slots.append(slot)
        return slot

    # ---- regions

    @contextlib.contextmanager
    def inside(
        self, region: Region, values: Sequence[Value], *, closed: bool = False
    ) -> Iterator[None]:
        """Append to a region that reads ``values`` and, unless it is closed, outer values."""
        outer = self.pool
        self.pool = [*([] if closed else outer), *(Item(value) for value in values)]
        self.depth += 1
        try:
            with self.builder.at_region(region):
                yield
        finally:
            self.pool = outer
            self.depth -= 1


def is_int(type_: Type) -> bool:
    """Integers other than the boolean."""
    return isinstance(type_, IntType) and type_ is not I1


def _casts_freely(source: Type, target: Type) -> bool:
    """Return whether casting every value of one number type to another is defined."""
    return (
        source is not target
        and not isinstance(source, PointerType)
        and not (isinstance(source, FloatType) and isinstance(target, IntType))
    )


def is_float(type_: Type) -> bool:
    return isinstance(type_, FloatType)


def is_wide_float(type_: Type) -> bool:
    """The floats that functions are of."""
    return type_ in (F32, F64)


def is_number(type_: Type) -> bool:
    return isinstance(type_, IntType | FloatType) and type_ is not I1
