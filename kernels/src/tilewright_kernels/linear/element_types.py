"""Element types of operands of matmuls."""

from __future__ import annotations

from typing import Any

import tilewright.language as tl

#: Name of a type -> the type in the language, for operands of matmuls.
OPERANDS = {
    "float16": tl.float16,
    "bfloat16": tl.bfloat16,
    "float32": tl.float32,
    "float64": tl.float64,
    "float8_e4m3fn": tl.float8e4nv,
    "float8_e5m2": tl.float8e5,
    "int8": tl.int8,
    "uint8": tl.uint8,
}
_BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}


def name_of(array: Any) -> str:
    """Return the name of the element type of an array, such as ``"float16"``."""
    return str(array.dtype).rsplit(".", 1)[-1]


def bits_of(name: str) -> int:
    """Return the bits of an element of a type of operands."""
    return _BITS.get(name, 8)


def operand_of(left: str, right: str) -> str:
    """Return the type in which operands of two types are multiplied.

    It is the floating-point type beside integers, and the narrower of two others, so that
    cotangents in float32 are multiplied as the operands of the forward pass were.

    Raises:
        TypeError: matmuls take no such operands.
    """
    for name in (left, right):
        if name not in OPERANDS:
            raise TypeError(f"operands of a matmul are of {', '.join(OPERANDS)}, not of {name}")
    if left == right:
        return left
    floats = [name for name in (left, right) if "float" in name]
    if len(floats) == 1:
        return floats[0]
    if not floats or bits_of(left) == bits_of(right) == 16:
        raise TypeError(
            f"operands of {left} and of {right} cannot be multiplied: convert one of them"
        )
    return min(floats, key=bits_of)


def result_of(operand: str) -> str:
    """Return the type of a result if none is given."""
    if operand in ("int8", "uint8"):
        return "int32"
    return "bfloat16" if operand.startswith("float8") else operand


def accumulator_of(operand: str) -> Any:
    """Return the type of the accumulator."""
    if operand in ("int8", "uint8"):
        return tl.int32
    return tl.float64 if operand == "float64" else tl.float32
