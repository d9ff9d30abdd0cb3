"""Expressions of the source text: their text, how tightly they bind, and their type."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from tilewright.ir.types import (
    F64,
    DescriptorType,
    FloatType,
    IntType,
    PointerType,
    Type,
    element_type,
)
from tilewright.language.value_types.dtypes import from_ir
from tilewright.language.value_types.promotion import scalar_type


class Binding(IntEnum):
    """Precedence of Python's operators, from the loosest."""

    TEST = 1
    COMPARISON = 2
    OR = 3
    XOR = 4
    AND = 5
    SHIFT = 6
    SUM = 7
    FACTOR = 8
    SIGN = 9
    ATOM = 10


@dataclass(frozen=True, slots=True)
class SourceExpression:
    """Text of an expression.

    Attributes:
        text: of the source.
        binding: of its outermost operator.
        type: the IR type of its value; of a number the type of the IR's constant.
        number: its value, where it is a number of the program text, whose type the language chooses
            by what stands beside it.
    """

    text: str
    binding: Binding
    type: Type
    number: int | float | bool | None = None

    def within(self, binding: Binding) -> str:
        """Return the text as an operand that must bind at least as tightly as ``binding``."""
        return self.text if self.binding >= binding else f"({self.text})"

    @property
    def is_number(self) -> bool:
        return self.number is not None


def atom(text: str, type_: Type) -> SourceExpression:
    """Return an expression that needs no brackets: a name, a call, an attribute."""
    return SourceExpression(text, Binding.ATOM, type_)


def call_text(function: str, *arguments: str, **keywords: str | None) -> str:
    """Return the text of a call; keywords whose value is None are absent."""
    named = [f"{name}={text}" for name, text in keywords.items() if text is not None]
    return f"{function}({', '.join([*arguments, *named])})"


def list_text(items: Iterable[object]) -> str:
    """Return the text of a list."""
    return f"[{', '.join(map(str, items))}]"


def tuple_text(items: Iterable[str]) -> str:
    """Return the text of a tuple; of one item the item alone."""
    texts = list(items)
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def number_text(value: float) -> str:
    """Return the text of a number: an integer, a boolean or a float that is no special NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'{"-" if value < 0 else ""}float("{"nan" if value != value else "inf"}")'
    return repr(value)


def is_plain_number(value: float) -> bool:
    """Return whether a number of the program text has the bits of a constant of the IR."""
    if not isinstance(value, float) or value == value:
        return True
    return struct.pack("<d", value) == struct.pack("<d", float("nan"))


def number(value: float, type_: Type) -> SourceExpression:
    """Return a number of the program text."""
    negative = not isinstance(value, bool) and math.copysign(1.0, value) < 0
    binding = Binding.SIGN if negative else Binding.ATOM
    return SourceExpression(number_text(value), binding, type_, value)


def own_type(value: float) -> Type:
    """Return the IR type of a number of the program text that stands alone."""
    return scalar_type(value).ir_type


def keeps_value(value: float, type_: Type) -> bool:
    """Return whether a number that stands alone is a constant of ``type_``, to the bit."""
    if not is_plain_number(value) or own_type(value) is not element_type(type_):
        return False
    if not isinstance(value, float) or value != value or math.isinf(value):
        return True
    if own_type(value) is F64:
        return True
    (narrow,) = struct.unpack("f", struct.pack("f", value))
    return bool(narrow == value)


def _dtype_names() -> dict[Type, str]:
    """Return the language's names of the number types."""
    floats = {
        "f16": "float16",
        "bf16": "bfloat16",
        "f32": "float32",
        "f64": "float64",
        "f8e4m3fn": "float8e4nv",
        "f8e5m2": "float8e5",
        "f8e4m3fnuz": "float8e4b8",
        "f8e5m2fnuz": "float8e5b16",
        "f8e4b15": "float8e4b15",
    }
    names: dict[Type, str] = {FloatType(name): text for name, text in floats.items()}
    for bits in (8, 16, 32, 64):
        names[IntType(bits)] = f"int{bits}"
        names[IntType(bits, signed=False)] = f"uint{bits}"
    names[IntType(1)] = "int1"
    return names


_DTYPES = _dtype_names()


def dtype_text(type_: Type) -> str:
    """Return how the language writes a number or pointer type, or the element of a tile."""
    element = element_type(type_)
    if isinstance(element, PointerType):
        suffix = "" if element.space == "global" else f", {element.space!r}"
        return f"tl.pointer_type({dtype_text(element.pointee)}{suffix})"
    return f"tl.{_DTYPES[element]}"


def parameter_type_text(type_: Type) -> str:
    """Return how a signature spells the type of a parameter: ``*fp32``, ``i32``."""
    if isinstance(type_, DescriptorType):
        element = parameter_type_text(type_.element)
        return f"tensordesc<{element}{list(type_.block_shape)}>".replace(" ", "")
    if isinstance(type_, PointerType):
        return f"*{parameter_type_text(type_.pointee)}"
    text = str(type_)
    if isinstance(type_, FloatType):
        return from_ir(type_).name
    return "u1" if text == "i1" else text


def words(text: str) -> set[str]:
    """Return the identifiers in a text of the source."""
    return set(re.findall(r"[^\W\d]\w*", text))
