"""Writing scalar Tile IR functions as arithmetic (:mod:`tilewright.ir.expressions`), and the
polynomials in them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir import Builder, Function
from tilewright.ir.core import Value
from tilewright.ir.expressions import Number, fma, select
from tilewright.ir.types import I1, FloatType, IntType, Type


class Scope(Builder):
    """A function under construction, ``name(*argument_types) -> result_type``, in which equal
    constants are one."""

    __slots__ = ("_constants", "function")

    def __init__(self, name: str, argument_types: Sequence[Type], result_type: Type) -> None:
        self.function = Function(
            name,
            argument_types,
            (result_type,),
            ("x", "y", "z")[: len(argument_types)],
            kernel=False,
        )
        super().__init__(self.function.body)
        self._constants: dict[tuple[Type, str], Value] = {}

    @property
    def arguments(self) -> list[Number]:
        return [Number(self, value) for value in self.function.arguments]

    def constant_like(self, type_: Type, value: float) -> Value:
        """A constant; integers wrap around to the type's range."""
        if isinstance(type_, FloatType):
            value = float(value)
        elif isinstance(type_, IntType) and type_ is not I1:
            value = type_.wrap(int(value))
        # repr tells -0.0 from 0.0, and NaN from itself not at all
        key = (type_, repr(value))
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = super().constant_like(type_, value)
        return found

    def finish(self, result: Number) -> Function:
        """End the function with its result."""
        self.return_([result.value])
        return self.function


def clamp(x: Number, low: float, high: float) -> Number:
    """x within bounds; NaN stays NaN."""
    x = select(x < low, low, x)
    return select(x > high, high, x)


def at_most(x: Number, high: float) -> Number:
    """x, but not above ``high``; NaN stays NaN."""
    return select(x > high, high, x)


def horner(coefficients: Sequence[float], x: Number) -> Number:
    """The polynomial with these coefficients, lowest degree first, by Horner's rule: fewest
    operations, one chain."""
    result = fma(x, coefficients[-1], coefficients[-2])
    for coefficient in reversed(coefficients[:-2]):
        result = fma(result, x, coefficient)
    return result


def estrin(coefficients: Sequence[float], x: Number) -> Number:
    """The polynomial with these coefficients, lowest degree first, by Estrin's scheme: chains of
    logarithmic length, for long polynomials."""
    terms: list[Number | float] = list(coefficients)
    power = x
    while len(terms) > 1:
        paired: list[Number | float] = [
            fma(power, terms[i + 1], terms[i]) for i in range(0, len(terms) - 1, 2)
        ]
        if len(terms) % 2:
            paired.append(terms[-1])
        terms = paired
        if len(terms) > 1:
            power = power * power
    result = terms[0]
    assert isinstance(result, Number)
    return result


def split_constant(value: str, element: FloatType, parts: int) -> list[float]:
    """A real number, given by its decimal digits, as a sum of ``parts`` numbers of the format, each
    the nearest to what is left."""
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
