"""Memory accesses: data forms, lanes captured at issue, registers written at completion."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from tilewright_amd_emulator.code.operands import Operand
    from tilewright_amd_emulator.decode.decoder import Decoder
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Form:
    """The form of an access of ``size`` bytes of memory.

    ``signed`` bytes and 16-bit words are sign-extended. ``half`` is the half of the register that
    is read or written, None for the whole register.
    """

    size: int
    signed: bool = False
    half: int | None = None

    @property
    def words(self) -> int:
        return max(self.size // 4, 1)

    def loaded(self, words: Array) -> Array:
        """Words [count, ...] as registers get them: bytes and halves extended to 32 bits."""
        if not self.signed:
            return words
        narrow = np.int8 if self.size == 1 else np.int16
        return words.astype(narrow).astype(np.int32).view(np.uint32)


_FORMS = {
    "ubyte": Form(1), "u8": Form(1), "sbyte": Form(1, True), "i8": Form(1, True),
    "ushort": Form(2), "u16": Form(2), "sshort": Form(2, True), "i16": Form(2, True),
    "byte": Form(1), "b8": Form(1), "short": Form(2), "b16": Form(2),
    "dword": Form(4), "b32": Form(4), "dwordx2": Form(8), "b64": Form(8), "dwordx3": Form(12),
    "b96": Form(12), "dwordx4": Form(16), "b128": Form(16),
}  # fmt: skip


def form(text: str) -> Form | None:
    """Return the form that a part of a mnemonic names, such as dwordx2 or d16_hi_b16, or None."""
    half: int | None = None
    if m := re.search(r"(^d16_hi_|_d16_hi$)", text):
        half, text = 1, text.replace(m.group(), "", 1)
    elif m := re.search(r"(^d16_|_d16$)", text):
        half, text = 0, text.replace(m.group(), "", 1)
    found = _FORMS.get(text)
    return None if found is None else Form(found.size, found.signed, half)


class Space(Protocol):
    """Memory that lanes access by checked offsets."""

    def gather(self, offsets: Array, size: int) -> Array: ...

    def scatter(self, offsets: Array, size: int, values: Array) -> None: ...


@dataclass
class Lanes:
    """Accesses of lanes: offsets into ``space``, which are valid where ``mask``."""

    space: Space
    offsets: Array
    mask: Array

    def at(self, rows: Array | slice) -> Lanes:
        """Those of some of the waves."""
        return (
            self
            if isinstance(rows, slice)
            else Lanes(self.space, self.offsets[rows], self.mask[rows])
        )

    def load(self, size: int) -> Array:
        """uint32 [words, waves, lanes]; what is masked out is anything."""
        return self.space.gather(self.offsets, size)

    def store(self, size: int, values: Array) -> None:
        if self.mask.all():
            self.space.scatter(self.offsets.reshape(-1), size, values.reshape(len(values), -1))
        else:
            self.space.scatter(self.offsets[self.mask], size, values[:, self.mask])

    def span(self, size: int) -> tuple[int, int]:
        """First and last offset that is touched; an empty range where none is."""
        inside = self.offsets[self.mask]
        return (int(inside.min()), int(inside.max()) + size - 1) if inside.size else (1, 0)


def deposit(
    m: Machine, register: int, waves: Array, value: Array, mask: Array, half: int | None = None
) -> None:
    """Write ``value`` [waves, lanes] into a register, or one half of it, where ``mask``."""
    everything = len(waves) == m.waves
    old = m.vectors[register] if everything else m.vectors[register, waves]
    if half is not None:
        value = (
            (old & np.uint32(0xFFFF0000)) | (value & np.uint32(0xFFFF))
            if half == 0
            else (old & np.uint32(0xFFFF)) | value << np.uint32(16)
        )
    if everything:
        np.copyto(old, value, where=mask)
    elif mask.all():
        m.vectors[register, waves] = value
    else:
        np.copyto(old, value, where=mask)
        m.vectors[register, waves] = old


def result_register(d: Decoder, operand: Operand, data: Form) -> tuple[int, int | None]:
    """The first register of a loaded result, and the half of it."""
    if operand.kind != "v":
        raise d.fail(f"the result {operand.text!r} must be a vector register")
    d.note_write(operand, data.words)
    return operand.index, data.half if operand.half is None else operand.half


def stored_words(d: Decoder, operand: Operand, data: Form) -> Any:
    """Reads what is stored: uint32 [words, waves, lanes], a copy."""
    if operand.kind != "v":
        raise d.fail(f"the data {operand.text!r} must be a vector register")
    d.note_read(operand, data.words)
    register, words = operand.index, data.words
    half = operand.half if operand.half is not None else data.half

    def read(m: Machine) -> Array:
        values = np.stack([m.vector(register + i) for i in range(words)])
        return values >> np.uint32(16) if half == 1 else values

    return read
