"""The text of the ``print`` operation, which every backend prints alike."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import FloatType, IntType, PointerType, Type, bit_width


def element_text(value: int | float | bool, type_: Type, *, hexadecimal: bool = False) -> str:
    """One element: integers in decimal, or in hexadecimal of their full width; floats with six
    decimals, as C's ``%f``; booleans as 0 and 1."""
    if isinstance(type_, PointerType) or (hexadecimal and isinstance(type_, IntType)):
        width = bit_width(type_)
        return f"0x{int(value) & ((1 << width) - 1):0{max(1, width // 4)}x}"
    if isinstance(type_, FloatType):
        return f"{float(value):f}"
    return str(int(value))


def template(prefix: str, shape: Sequence[int], operand: int, operands: int) -> str:
    """The %-format of what stands before an element on its line, after the program: ``idx (%3d,
    %2d) prefix: (operand 1) ``.

    Coordinates are as wide as the largest. Prefixes that end in ``:`` or a space do not get another
    one.

    Args:
        shape: of the value; ``()`` for a scalar.
        operand, operands: which of how many values of the statement.
    """
    index = ", ".join(f"%{len(str(extent - 1))}d" for extent in shape)
    number = f"(operand {operand}) " if operands > 1 else ""
    return f"idx ({index}){_label(prefix)}: {number}"


def _label(prefix: str) -> str:
    text = prefix.removesuffix(" ").removesuffix(":").replace("%", "%%")
    return f" {text}" if text and not text.startswith(" ") else text


def program_text(program: Sequence[object]) -> str:
    """``pid (x, y, z)``, what every line starts with."""
    return f"pid ({program[0]}, {program[1]}, {program[2]})"


def line(program: Sequence[int], head: str, index: Sequence[int], text: str) -> str:
    """The line of one element; ``head`` is the :func:`template` of its value."""
    return f"{program_text(program)} {head % tuple(index)}{text}"


def message(program: Sequence[object], prefix: str) -> str:
    """The line of a statement without values."""
    return f"{program_text(program)}{prefix if prefix.startswith(' ') else f' {prefix}'}"
