"""The text of the ``print`` operation, which every backend prints alike."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import FloatType, IntType, PointerType, Type, bit_width


def element_text(value: int | float | bool, type_: Type, *, hexadecimal: bool = False) -> str:
    """One element: integers in decimal, or in hexadecimal of their full width; floats with six decimals, as C's ``%f``; booleans as 0 and 1."""
    if isinstance(type_, PointerType) or (hexadecimal and isinstance(type_, IntType)):
        width = bit_width(type_)
        return f"0x{int(value) & ((1 << width) - 1):0{max(1, width // 4)}x}"
    if isinstance(type_, FloatType):
        return f"{float(value):f}"
    return str(int(value))


def line(program: tuple[int, int, int], index: Sequence[int], prefix: str, text: str) -> str:
    """``pid (x, y, z) idx (i, ...) prefix: text``; a scalar's index is ``()``."""
    return f"pid ({program[0]}, {program[1]}, {program[2]}) idx ({', '.join(map(str, index))}) {prefix}: {text}"
