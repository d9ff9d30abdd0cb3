"""How the types of Tile IR look in C: what a value is kept as, what it is computed in, and literals.

Integers, f32 and f64 are C's own types. C has no f16 and bf16: they are kept as the bits in a ``uint16_t``, computed in ``float``, and rounded after each
operation by the functions of ``prelude.py``. A pointer is its address, a ``uint64_t``.
"""

from __future__ import annotations

import math

from tilewright.errors import LoweringError
from tilewright.ir.types import FloatType, IntType, PointerType, Type, element_type

#: element type -> the C type its values are kept as
KEPT: dict[str, str] = {
    "i1": "_Bool", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "f16": "uint16_t", "bf16": "uint16_t", "f32": "float", "f64": "double",
}  # fmt: skip

#: Kept as bits: read by ``from_f16``, written by ``to_f16``.
RAW = frozenset({"f16", "bf16"})


def kept(type_: Type) -> str:
    """The C type of a scalar, or of a tile's elements."""
    element = element_type(type_)
    if isinstance(element, PointerType):
        return "uint64_t"
    if str(element) not in KEPT:
        raise LoweringError(f"the C backend has no element type {element}; it has {', '.join(KEPT)}")
    return KEPT[str(element)]


def number(text: str, type_: Type) -> str:
    """A kept value as a number that C computes with."""
    element = str(element_type(type_))
    return f"from_{element}({text})" if element in RAW else text


def bits(text: str, type_: Type) -> str:
    """A number as it is kept: rounded where C's own conversion does not do it."""
    element = str(element_type(type_))
    return f"to_{element}({text})" if element in RAW else text


def kind(type_: Type) -> str:
    """Which column of a table a type is in: ``i`` signed, ``u`` unsigned (with i1), ``f`` float, ``p`` pointer."""
    element = element_type(type_)
    if isinstance(element, IntType):
        return "i" if element.signed and element.bits > 1 else "u"
    return "f" if isinstance(element, FloatType) else "p"


def literal(value: float, type_: Type) -> str:
    """A constant as it is kept, in parentheses."""
    if isinstance(type_, FloatType):
        sign = "-" if math.copysign(1, value) < 0 else ""
        text = f"{sign}NAN" if math.isnan(value) else f"{sign}INFINITY" if math.isinf(value) else float(value).hex()
        return f"(({kept(type_)}){bits(text, type_)})"
    if kind(type_) == "i" and value < 0:  # C has no negative literals, so that the least integer is written in two steps
        return f"(({kept(type_)})({int(value) + 1}LL - 1))"
    return f"(({kept(type_)}){int(value)}ULL)"
