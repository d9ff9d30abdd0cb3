"""Elements as operands of inline assembly, packed to 32 bits where they are narrower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.ir.types import IntType, Type, bit_width
from tilewright.llvm.emission.registers import register_type
from tilewright.llvm.emission.writer import FunctionWriter


@dataclass(frozen=True)
class AssemblyOperand:
    """One operand of assembly, or one result.

    Attributes:
        type: LLVM type of the value.
        bits: how many bits, the low ones, hold elements: a register may be as narrow as that.
        name: the value; empty for a result, which has none yet.
    """

    type: str
    bits: int
    name: str = ""


def _share(element: Type) -> int:
    """Return the elements per 32-bit operand; 0 for elements with an operand of their own."""
    bits = max(8, bit_width(element))
    return 32 // bits if bits < 32 else 0


def operand_types(element: Type, pack: int) -> list[AssemblyOperand]:
    """The operands, without names, that hold ``pack`` elements."""
    share, type_ = _share(element), register_type(element)
    if not share:
        return [AssemblyOperand(type_, 64 if type_ == "ptr" else bit_width(element))] * pack
    counts = [min(share, pack - first) for first in range(0, pack, share)]
    return [
        AssemblyOperand("i32", bit_width(element) if count == 1 else count * (32 // share))
        for count in counts
    ]


def to_operands(w: FunctionWriter, element: Type, names: Sequence[str]) -> list[AssemblyOperand]:
    """Pack a group of elements in register form into operands.

    Bits to spare are zero; a signed integer that is alone is sign-extended.
    """
    share, type_ = _share(element), register_type(element)
    operands = operand_types(element, len(names))
    if not share:
        return [replace(operand, name=name) for operand, name in zip(operands, names, strict=True)]
    found = []
    for number, operand in enumerate(operands):
        total = ""
        for position, name in enumerate(names[number * share : (number + 1) * share]):
            bits = type_
            if type_ == "half":
                name, bits = w.emit(f"bitcast half {name} to i16"), "i16"
            signed = len(names) == 1 and isinstance(element, IntType) and element.signed
            wide = w.emit(f"{'sext' if signed else 'zext'} {bits} {name} to i32")
            if position:
                wide = w.emit(f"shl i32 {wide}, {position * (32 // share)}")
            total = w.emit(f"or i32 {total}, {wide}") if total else wide
        found.append(replace(operand, name=total))
    return found


def from_operands(w: FunctionWriter, element: Type, names: Sequence[str], pack: int) -> list[str]:
    """The ``pack`` elements, in register form, that operands hold."""
    share, type_ = _share(element), register_type(element)
    if not share:
        return list(names)
    elements = []
    for position in range(pack):
        name, shift = names[position // share], position % share * (32 // share)
        if shift:
            name = w.emit(f"lshr i32 {name}, {shift}")
        name = w.emit(f"trunc i32 {name} to {'i16' if type_ == 'half' else type_}")
        elements.append(w.emit(f"bitcast i16 {name} to half") if type_ == "half" else name)
    return elements
