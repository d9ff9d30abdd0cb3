"""Conversion of bit fields of 32-bit words to f32, f16 or bf16, for packed weights.

A field has the form ``(word >> shift & mask) + offset``. It is masked without a shift and becomes
the lowest mantissa bits of 2^23 (f16: 2^10, bf16: 2^7). One addition or FMA then removes that
constant, the scale of the field's position, and the offset. This replaces the shift, the addition
of the offset, and the integer conversion, which runs at half the rate of these instructions, and at
an eighth in f16. The result is exact, since the numbers are integers below 2^24 (2^11, 2^8).

In f16 and bf16 a field is converted together with the one 16 bits above or below it, by one
``lop3`` and one packed addition. Packed weights whose neighbours lie 16 bits apart need no other
instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tilewright.ir.types import BF16, F16, F32, I32, U32, Type
from tilewright.llvm.emission.writer import FunctionWriter, float_constant
from tilewright_nvidia.codegen.packed_registers import PackedRegisters, masked


@dataclass(frozen=True, slots=True)
class _Format:
    """A float format for conversions of bit fields: LLVM type, mantissa bits, and constants.

    ``unit`` encodes the power of two whose last mantissa bit is 1. Fields outside the mantissa are
    shifted by a multiple of ``step``, so that fields of a word share the shift. ``register`` is the
    LLVM type of registers.
    """

    type_: str
    mantissa: int
    unit: int
    step: int
    register: str


_FORMATS: Final[dict[Type, _Format]] = {
    F32: _Format("float", 23, 0x4B000000, 16, "float"),
    F16: _Format("half", 10, 0x6400, 8, "half"),
    BF16: _Format("bfloat", 7, 0x4300, 1, "i16"),
}
#: of the widest format
_MANTISSA: Final = 23


@dataclass(frozen=True, slots=True)
class _Field:
    """``(word >> shift & mask) + offset``; a shifted word that is not masked has the mask 0."""

    word: str
    shift: int = 0
    mask: int = 0
    offset: int = 0


class BitFields:
    """Tracks shifts, masks and offsets of words by literals, and converts the bit fields."""

    def __init__(self) -> None:
        self._fields: dict[str, _Field] = {}

    def emit(self, w: FunctionWriter, name: str, operands: list[str], element: Type) -> str | None:
        """Emit an integer operation whose result is part of a bit field; None for any other."""
        if element not in (I32, U32) or name not in ("shr", "and", "add", "sub"):
            return None
        a, b = operands
        if name in ("and", "add") and b.startswith("%"):
            a, b = b, a
        if not a.startswith("%") or b.startswith("%"):
            return None
        if name == "shr" and b == "0":
            return a
        field = self._made(name, a, int(b), element)
        if field is None:
            return None
        instruction = {"shr": "ashr" if element is I32 else "lshr"}.get(name, name)
        result = w.emit(f"{instruction} i32 {a}, {b}")
        self._fields[result] = field
        return result

    def _made(self, name: str, a: str, number: int, element: Type) -> _Field | None:
        known = self._fields.get(a)
        if name == "shr":
            return _Field(a, number) if 0 < number < 32 else None
        if name == "and":
            field = known if known is not None and not known.mask else _Field(a)
            fits = 0 < number < 1 << _MANTISSA and field.shift + number.bit_length() <= 32
            return replace(field, mask=number) if fits else None
        if known is None or not known.mask:
            return None
        offset = known.offset + (number if name == "add" else -number)
        most = 1 << _MANTISSA
        return (
            replace(known, offset=offset)
            if (-most if element is I32 else 0) <= offset <= most
            else None
        )

    def converted(
        self, w: FunctionWriter, words: PackedRegisters, name: str, result: Type
    ) -> str | None:
        """Convert a bit field to f32, f16 or bf16; None if it is unknown or the result inexact."""
        field, to = self._fields.get(name), _FORMATS[result]
        if (
            field is None
            or not field.mask
            or field.mask >> to.mantissa
            or abs(field.offset) > 1 << to.mantissa
        ):
            return None
        bits = field.mask.bit_length()
        if result is not F32 and field.shift % 16 + bits <= 16:
            return self._pair(w, words, field, to)
        if result is BF16:
            return None
        number, at = self._masked(w, words, field, to, 1)
        if result is F16:
            number = w.emit(f"trunc i32 {number} to i16")
        number = w.emit(f"bitcast {'i16' if result is F16 else 'i32'} {number} to {to.type_}")
        return _without_unit(w, number, to, at, field.offset, 1)

    def _pair(
        self, w: FunctionWriter, words: PackedRegisters, field: _Field, to: _Format
    ) -> str | None:
        """Convert a field together with the one in the other half of the word, once per block."""
        upper, shift = divmod(field.shift, 16)
        key = field.word, "fields", to.type_, shift, field.mask, field.offset
        if not words.is_written(w, key):
            low = replace(field, shift=shift)
            number, at = self._masked(w, words, low, to, 0x10001)
            pair = w.emit(f"bitcast i32 {number} to <2 x {to.type_}>")
            pair = _without_unit(w, pair, to, at, field.offset, 2)
            words.write(w, key, w.emit(f"bitcast <2 x {to.type_}> {pair} to i32"))
        return words.unpack(w, words.written(w, key), "i32", to.register)[upper]

    def _masked(
        self, w: FunctionWriter, words: PackedRegisters, field: _Field, to: _Format, both: int
    ) -> tuple[str, int]:
        """Mask a field and set the exponent; return the number and the field's lowest bit in it.

        ``both`` is 0x10001 to do so in both halves of the word, and else 1.
        """
        word, at, bits = field.word, field.shift, field.mask.bit_length()
        if at + bits > to.mantissa:
            within = at % to.step
            by = at - within if within + bits <= to.mantissa else at
            word, at = self._shifted(w, words, word, by), at - by
        return masked(w, word, (field.mask << at) * both, to.unit * both), at

    @staticmethod
    def _shifted(w: FunctionWriter, words: PackedRegisters, word: str, by: int) -> str:
        key = word, "shifted", by
        if not words.is_written(w, key):
            words.write(w, key, w.emit(f"lshr i32 {word}, {by}"))
        return words.written(w, key)


def _without_unit(
    w: FunctionWriter, number: str, to: _Format, at: int, offset: int, count: int
) -> str:
    """Remove the unit and the scale of a field at bit ``at``, and add its offset."""

    def constant(value: float) -> str:
        single = float_constant(to.type_, value)
        return single if count == 1 else f"<{to.type_} {single}, {to.type_} {single}>"

    type_ = to.type_ if count == 1 else f"<2 x {to.type_}>"
    unit = constant(float(offset - (1 << to.mantissa - at)))
    if not at:
        return w.emit(f"fadd {type_} {number}, {unit}")
    return w.intrinsic(
        "llvm.fma", type_, [(type_, name) for name in (number, constant(0.5**at), unit)]
    )
