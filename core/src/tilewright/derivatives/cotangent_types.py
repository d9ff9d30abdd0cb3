"""Types of tangents and cotangents."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.types import F32, FloatType, Type, bit_width, element_type, with_element


def is_float(value: Value) -> bool:
    """Return whether a value is a float or a tile of floats."""
    return isinstance(element_type(value.type), FloatType)


def cotangent_type(type_: Type) -> Type:
    """Return the type of a float's tangents and cotangents, and of sums of them.

    It is f32 where the float is narrower: sums of many narrow cotangents would lose digits.
    """
    element = element_type(type_)
    if isinstance(element, FloatType) and bit_width(element) < 32:
        return with_element(type_, F32)
    return type_
