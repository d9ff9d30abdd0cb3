"""Writing IR as Python's expressions: ``x < 0.0``, ``bits >> 23``, ``1.0 - x`` each append an
operation."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ir.types import IntType, Type, bit_width, element_type, with_element

_Number = TypeVar("_Number", bound="Number")


class Number:
    """A scalar or tile value with Python's operators.

    A Python number beside one becomes a constant of its type. Comparisons yield booleans of the IR;
    ``==`` is :meth:`equals`.

    Attributes:
        builder: appends operations, and makes constants by its ``constant_like``.
        value: the value in the IR.
    """

    __slots__ = ("builder", "value")

    def __init__(self, builder: Builder, value: Value) -> None:
        self.builder, self.value = builder, value

    @property
    def element(self) -> Type:
        """The type of a scalar, or of a tile's elements."""
        return element_type(self.value.type)

    def constant(self, value: float, element: Type) -> Self:
        """A constant in this one's shape."""
        return type(self)(
            self.builder, self.builder.constant_like(with_element(self.value.type, element), value)
        )

    def like(self, other: Self | float) -> Self:
        """``other`` as a value of this one's type."""
        if isinstance(other, type(self)):
            return other
        return self.constant(other, self.element)  # type: ignore[arg-type]

    def apply(self, op: str, *others: Self | float, **attributes: Any) -> Self:
        """An operation on values of one type, by its builder's name."""
        return type(self)(
            self.builder,
            getattr(self.builder, op)(
                self.value, *(self.like(other).value for other in others), **attributes
            ),
        )

    def cast(self, element: Type, **attributes: Any) -> Self:
        """The numbers as another type."""
        if element is self.element:
            return self
        return type(self)(
            self.builder,
            self.builder.cast(
                self.value, result=with_element(self.value.type, element), **attributes
            ),
        )

    def bitcast(self, element: Type) -> Self:
        """The bits as another type."""
        if element is self.element:
            return self
        return type(self)(
            self.builder,
            self.builder.bitcast(self.value, result=with_element(self.value.type, element)),
        )

    def bits(self, *, signed: bool = True) -> Self:
        """The encoding, as an integer of the same width."""
        return self.bitcast(IntType(bit_width(self.element), signed))

    def ldexp(self, exponent: Self) -> Self:
        """``self * 2**exponent`` with an i32 exponent, rounded once."""
        return type(self)(self.builder, self.builder.ldexp(self.value, exponent.value))

    def compare(self, predicate: str, other: Self | float) -> Self:
        return self.apply("cmp", other, predicate=predicate)

    def __add__(self, other: Self | float) -> Self:
        return self.apply("add", other)

    def __radd__(self, other: float) -> Self:
        return self.like(other) + self

    def __sub__(self, other: Self | float) -> Self:
        return self.apply("sub", other)

    def __rsub__(self, other: float) -> Self:
        return self.like(other) - self

    def __mul__(self, other: Self | float) -> Self:
        return self.apply("mul", other)

    def __rmul__(self, other: float) -> Self:
        return self.like(other) * self

    def __truediv__(self, other: Self | float) -> Self:
        return self.apply("div", other)

    def __rtruediv__(self, other: float) -> Self:
        return self.like(other) / self

    def __and__(self, other: Self | int) -> Self:
        return self.apply("and_", other)

    def __or__(self, other: Self | int) -> Self:
        return self.apply("or_", other)

    def __xor__(self, other: Self | int) -> Self:
        return self.apply("xor", other)

    def __lshift__(self, other: Self | int) -> Self:
        return self.apply("shl", other)

    def __rshift__(self, other: Self | int) -> Self:
        return self.apply("shr", other)

    def __neg__(self) -> Self:
        return self.apply("neg")

    def __abs__(self) -> Self:
        return self.apply("abs")

    def __lt__(self, other: Self | float) -> Self:
        return self.compare("lt", other)

    def __le__(self, other: Self | float) -> Self:
        return self.compare("le", other)

    def __gt__(self, other: Self | float) -> Self:
        return self.compare("gt", other)

    def __ge__(self, other: Self | float) -> Self:
        return self.compare("ge", other)

    def equals(self, other: Self | float) -> Self:
        return self.compare("eq", other)

    def differs(self, other: Self | float) -> Self:
        return self.compare("ne", other)


def fma(a: _Number, b: _Number | float, c: _Number | float) -> _Number:
    """``a * b + c``, rounded once."""
    return a.apply("fma", b, c)


def select(condition: _Number, a: _Number | float, b: _Number | float) -> _Number:
    """``a`` where ``condition`` holds, else ``b``; one of the two must be a Number."""
    typed = a if isinstance(a, Number) else b
    assert isinstance(typed, Number)
    chosen = condition.builder.select(condition.value, typed.like(a).value, typed.like(b).value)
    return type(condition)(condition.builder, chosen)
