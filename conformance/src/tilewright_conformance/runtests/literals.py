"""Values in a ``run:`` directive, and their conversion to arrays of a Tile IR type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.types import I1, FloatType, IntType, Type
from tilewright.reference.numerics import encode, numpy_dtype

Array = np.ndarray[Any, Any]


class LiteralError(ValueError):
    """A value does not fit a type; ``literal`` is the part that does not."""

    def __init__(self, message: str, literal: Literal) -> None:
        super().__init__(message)
        self.message, self.literal = message, literal


@dataclass(frozen=True)
class Literal:
    """A number, a boolean, or a list of literals.

    Attributes:
        value: ``int``, ``float``, ``bool``, or a tuple of literals.
        line, column: where it begins in the file, from 1.
    """

    value: int | float | bool | tuple[Literal, ...]
    line: int
    column: int

    def shape(self) -> tuple[int, ...]:
        """Return the extents of a nested list, ``()`` for a number.

        Raises:
            LiteralError: its rows have different lengths.
        """
        if not isinstance(self.value, tuple):
            return ()
        shapes = [item.shape() for item in self.value]
        for item, shape in zip(self.value, shapes, strict=True):
            if shape != shapes[0]:
                raise LiteralError("the rows of this list have different shapes", item)
        return (len(self.value), *(shapes[0] if shapes else ()))

    def numbers(self) -> list[Literal]:
        """Return the numbers of a nested list in row-major order."""
        if not isinstance(self.value, tuple):
            return [self]
        return [number for item in self.value for number in item.numbers()]


def scalar(literal: Literal, element: Type) -> int | float | bool:
    """Return a literal as a number of an element type.

    Raises:
        LiteralError: it is a list, of another kind, or out of range.
    """
    value = literal.value
    if isinstance(value, tuple):
        raise LiteralError(f"expected a number of type {element}, found a list", literal)
    if element is I1:
        if not isinstance(value, bool):
            raise LiteralError("expected true or false, a value of type i1", literal)
        return value
    if isinstance(value, bool):
        message = f"expected a number of type {element}, found a value of type i1"
        raise LiteralError(message, literal)
    if isinstance(element, IntType):
        if isinstance(value, float):
            raise LiteralError(f"expected an integer of type {element}", literal)
        if not element.minimum <= value <= element.maximum:
            limits = f"{element.minimum} to {element.maximum}"
            raise LiteralError(f"{value} is no {element}, which is {limits}", literal)
        return value
    return float(value)


def exact(literal: Literal, element: Type) -> Array:
    """Return the numbers of a literal in its shape; floats as float64, not rounded to ``element``.

    Raises:
        LiteralError: as :func:`scalar`, or the rows of a list differ.
    """
    shape = literal.shape()
    values = [scalar(number, element) for number in literal.numbers()]
    dtype = np.dtype(np.float64) if isinstance(element, FloatType) else numpy_dtype(element)
    return np.array(values, dtype).reshape(shape)


def array(literal: Literal, element: Type) -> Array:
    """Return a literal as the reference stores it: floats rounded to nearest, bf16 and fp8 as bits.

    Raises:
        LiteralError: as :func:`exact`.
    """
    values = exact(literal, element)
    if isinstance(element, FloatType):
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(encode(values, element))
    return values
