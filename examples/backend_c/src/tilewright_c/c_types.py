"""How the types of Tile IR look in C: what a value is kept as, and literals.

Integers, f32 and f64 are C's own types, and a pointer is its address. Floats of 16 and 8 bits are
only moved, as the manifest's ``computes`` says: they are kept as their bits.
"""

from __future__ import annotations

import math

from tilewright.ir.types import FloatType, IntType, PointerType, Type, element_type

#: element type -> the C type its values are kept as
KEPT: dict[str, str] = {
    "i1": "_Bool", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t",
    **dict.fromkeys(("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4b15"), "uint8_t"),
}  # fmt: skip


def kept(type_: Type) -> str:
    """The C type of a scalar, or of a tile's elements."""
    element = element_type(type_)
    return "uint64_t" if isinstance(element, PointerType) else KEPT[str(element)]


def kind(type_: Type) -> str:
    """Return the column of a type in a table.

    ``i`` signed, ``u`` unsigned or i1, ``f`` float, ``p`` pointer.
    """
    element = element_type(type_)
    if isinstance(element, IntType):
        return "i" if element.signed and element.bits > 1 else "u"
    return "f" if isinstance(element, FloatType) else "p"


def literal(value: float, type_: Type) -> str:
    """A constant, in parentheses."""
    if isinstance(type_, FloatType):
        sign = "-" if math.copysign(1, value) < 0 else ""
        text = (
            f"{sign}NAN"
            if math.isnan(value)
            else f"{sign}INFINITY"
            if math.isinf(value)
            else float(value).hex()
        )
        return f"(({kept(type_)}){text})"
    if (
        kind(type_) == "i" and value < 0
    ):  # C has no negative literals, so that the least integer is written in two steps
        return f"(({kept(type_)})({int(value) + 1}LL - 1))"
    return f"(({kept(type_)}){int(value)}ULL)"
