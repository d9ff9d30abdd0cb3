"""Writing scalar Tile IR functions as arithmetic: ``fma(r, r, 1.0)``, ``(x < 0.0)``, ``bits >> 23`` each append an operation.

A :class:`Scope` is one function being written. A Python number beside a :class:`Number` becomes a constant of that number's type; equal constants are
made once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir import Builder, Function
from tilewright.ir.core import Value
from tilewright.ir.expressions import Expression
from tilewright.ir.types import I1, FloatType, IntType, Type, bit_width

Operand = "Number | float"


class Scope:
    """A function under construction: ``name(*argument_types) -> result_type``."""

    __slots__ = ("_constants", "builder", "function")

    def __init__(self, name: str, argument_types: Sequence[Type], result_type: Type) -> None:
        self.function = Function(name, argument_types, (result_type,), ("x", "y", "z")[: len(argument_types)], kernel=False)
        self.builder = Builder.at_end(self.function.body)
        self._constants: dict[tuple[Type, str], Number] = {}

    @property
    def arguments(self) -> list[Number]:
        return [Number(self, value) for value in self.function.arguments]

    def constant(self, value: float, type_: Type) -> Number:
        """A constant; integers wrap around to the type's range."""
        if isinstance(type_, FloatType):
            value = float(value)
        elif isinstance(type_, IntType) and type_ is not I1:
            value = type_.wrap(int(value))
        # repr tells -0.0 from 0.0, and NaN from itself not at all
        key = (type_, repr(value))
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = Number(self, self.builder.constant(value=value, result=type_))
        return found

    def finish(self, result: Number) -> Function:
        """End the function with its result."""
        self.builder.return_([result.value])
        return self.function


class Number(Expression):
    """A scalar SSA value with Python's operators."""

    __slots__ = ("scope", "value")

    def __init__(self, scope: Scope, value: Value) -> None:
        self.scope, self.value = scope, value

    @property
    def type(self) -> Type:
        return self.value.type

    def like(self, other: Number | float) -> Number:
        return other if isinstance(other, Number) else self.scope.constant(other, self.type)

    def apply(self, op: str, *others: Number | float, **attributes: Any) -> Number:
        return Number(self.scope, getattr(self.scope.builder, op)(self.value, *(self.like(other).value for other in others), **attributes))

    def high_product(self, other: Number | float) -> Number:
        """The upper half of the double-width product."""
        return self.apply("mulhi", other)

    def copysign(self, sign: Number) -> Number:
        return self.apply("copysign", sign)

    def sqrt(self) -> Number:
        return self.apply("sqrt")

    def ldexp(self, exponent: Number) -> Number:
        return Number(self.scope, self.scope.builder.ldexp(self.value, exponent.value))

    def cast(self, type_: Type) -> Number:
        if self.type is type_:
            return self
        return Number(self.scope, self.scope.builder.cast(self.value, result=type_))

    def bitcast(self, type_: Type) -> Number:
        if self.type is type_:
            return self
        return Number(self.scope, self.scope.builder.bitcast(self.value, result=type_))

    def bits(self, *, signed: bool = True) -> Number:
        """The encoding, as an integer of the same width."""
        return self.bitcast(IntType(bit_width(self.type), signed))


def fma(a: Number, b: Number | float, c: Number | float) -> Number:
    """a * b + c, rounded once."""
    return Number(a.scope, a.scope.builder.fma(a.value, a.like(b).value, a.like(c).value))


def select(condition: Number, a: Number | float, b: Number | float) -> Number:
    """``a`` where ``condition`` holds, else ``b``; one of the two must be a Number."""
    typed = a if isinstance(a, Number) else b
    assert isinstance(typed, Number)
    return Number(condition.scope, condition.scope.builder.select(condition.value, typed.like(a).value, typed.like(b).value))


def clamp(x: Number, low: float, high: float) -> Number:
    """x within bounds; NaN stays NaN."""
    x = select(x < low, low, x)
    return select(x > high, high, x)


def at_most(x: Number, high: float) -> Number:
    """x, but not above ``high``; NaN stays NaN."""
    return select(x > high, high, x)


def horner(coefficients: Sequence[float], x: Number) -> Number:
    """The polynomial with these coefficients, lowest degree first, by Horner's rule: fewest operations, one chain."""
    result = fma(x, coefficients[-1], coefficients[-2])
    for coefficient in reversed(coefficients[:-2]):
        result = fma(result, x, coefficient)
    return result


def estrin(coefficients: Sequence[float], x: Number) -> Number:
    """The polynomial with these coefficients, lowest degree first, by Estrin's scheme: chains of logarithmic length, for long polynomials."""
    terms: list[Number | float] = list(coefficients)
    power = x
    while len(terms) > 1:
        paired: list[Number | float] = [fma(power, terms[i + 1], terms[i]) for i in range(0, len(terms) - 1, 2)]
        if len(terms) % 2:
            paired.append(terms[-1])
        terms = paired
        if len(terms) > 1:
            power = power * power
    result = terms[0]
    assert isinstance(result, Number)
    return result


def split_constant(value: str, element: FloatType, parts: int) -> list[float]:
    """A real number, given by its decimal digits, as a sum of ``parts`` numbers of the format, each the nearest to what is left."""
    from fractions import Fraction

    rest, found = Fraction(value), []
    for _ in range(parts):
        part = _nearest(rest, element)
        found.append(part)
        rest -= Fraction(part)
    return found


def _nearest(value: object, element: FloatType) -> float:
    from fractions import Fraction

    assert isinstance(value, Fraction)
    if value == 0:
        return 0.0
    exponent = math.frexp(float(value))[1]
    scale = Fraction(2) ** (element.mantissa + 1 - exponent)
    return float(Fraction(round(value * scale)) / scale)
