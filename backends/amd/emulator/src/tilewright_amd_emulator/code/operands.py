"""Operands of instructions as LLVM writes them: registers, numbers, symbols."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from tilewright_amd_emulator.errors import WaveError

#: scalar registers have numbers as in the encodings of GFX9; vector registers are v0..v255,
#: accumulation registers follow from ACCUMULATION on
VCC, TTMP, M0, EXEC, SCALARS = 106, 108, 124, 126, 128
ACCUMULATION = 256

_NAMED = {
    "vcc": (VCC, 2),
    "vcc_lo": (VCC, 1),
    "vcc_hi": (VCC + 1, 1),
    "exec": (EXEC, 2),
    "exec_lo": (EXEC, 1),
    "exec_hi": (EXEC + 1, 1),
    "m0": (M0, 1),
    "flat_scratch": (102, 2),
    "flat_scratch_lo": (102, 1),
    "flat_scratch_hi": (103, 1),
    "xnack_mask": (104, 2),
    "xnack_mask_lo": (104, 1),
    "xnack_mask_hi": (105, 1),
}
_SPECIAL = ("scc", "src_scc", "vccz", "execz", "src_vccz", "src_execz")
#: the high words of apertures of generic addresses; no address of a host begins so
SHARED_APERTURE, PRIVATE_APERTURE = 0x00A10000, 0x00A20000
_APERTURES = {
    "src_shared_base": SHARED_APERTURE << 32,
    "src_shared_base_lo": SHARED_APERTURE << 32,
    "src_private_base": PRIVATE_APERTURE << 32,
    "src_private_base_lo": PRIVATE_APERTURE << 32,
    "src_shared_limit": SHARED_APERTURE << 32 | 0xFFFFFFFF,
    "src_shared_limit_lo": SHARED_APERTURE << 32 | 0xFFFFFFFF,
    "src_private_limit": PRIVATE_APERTURE << 32 | 0xFFFFFFFF,
    "src_private_limit_lo": PRIVATE_APERTURE << 32 | 0xFFFFFFFF,
}


@dataclass(frozen=True)
class Operand:
    """An operand of an instruction.

    ``kind`` is one of v (vector register), s (scalar register), number, real (a number written
    with a point), special (such as SCC), off, null, symbol (unresolved), and text (anything else,
    such as hwreg(...))."""

    kind: str
    text: str
    index: int = 0
    count: int = 1
    value: int = 0
    real: float = 0.0
    negated: bool = False
    absolute: bool = False
    #: for a half of a vector register: 0 low, 1 high; None where the whole is meant
    half: int | None = None
    #: the number was written in hexadecimal: bits, not a value
    bits: bool = False
    signed: bool = False


_REGISTER = re.compile(r"^(v|s|a|ttmp)(\d+)(?:\.([lh]))?$")
_TUPLE = re.compile(r"^(v|s|a|ttmp)\[(\d+)(?::(\d+))?\]$")
_NUMBER = re.compile(r"^-?(0x[0-9a-fA-F]+|\d+)$")
_REAL = re.compile(r"^-?\d+\.\d*(?:[eE][-+]?\d+)?$")
_BASE = {"v": 0, "a": ACCUMULATION, "s": 0, "ttmp": TTMP}


def operand(text: str) -> Operand:
    """The operand that ``text`` stands for."""
    whole = text
    negated = absolute = signed = False
    if text.startswith("-") and not _NUMBER.match(text) and not _REAL.match(text):
        negated, text = True, text[1:]
    if text.startswith("neg(") and text.endswith(")"):
        negated, text = True, text[4:-1]
    if text.startswith("sext(") and text.endswith(")"):
        signed, text = True, text[5:-1]
    if text.startswith("|") and text.endswith("|"):
        absolute, text = True, text[1:-1]
    elif text.startswith("abs(") and text.endswith(")"):
        absolute, text = True, text[4:-1]
    common = {"negated": negated, "absolute": absolute, "signed": signed}
    if m := _REGISTER.match(text):
        kind, number, half = m.groups()
        return Operand(
            "v" if kind in "va" else "s",
            whole,
            _BASE[kind] + int(number),
            half=None if half is None else int(half == "h"),
            **common,
        )
    if m := _TUPLE.match(text):
        kind, first, last = m.groups()
        return Operand(
            "v" if kind in "va" else "s",
            whole,
            _BASE[kind] + int(first),
            int(last or first) - int(first) + 1,
            **common,
        )
    if text in _NAMED:
        index, count = _NAMED[text]
        return Operand("s", whole, index, count, **common)
    if text in _APERTURES:
        return Operand("number", whole, value=_APERTURES[text], **common)
    if text in _SPECIAL:
        return Operand("special", text.removeprefix("src_"), **common)
    if text in ("off", "null"):
        return Operand(text, whole)
    if text.startswith(("lit(", "lit64(")):
        text = text[text.index("(") + 1 : -1]
    if _NUMBER.match(text):
        return Operand("number", whole, value=int(text, 0), bits="0x" in text, **common)
    if _REAL.match(text):
        return Operand("real", whole, real=float(text), **common)
    if re.match(r"^[A-Za-z_.$][\w.$]*(@[\w@]+)?([-+]\d+)?$", text):
        return Operand("symbol", text)
    return Operand("text", text)


def float_bits(real: float, width: int) -> int:
    """The bits of an inline constant in an operand of ``width`` bits of a float."""
    if abs(real) == 0.15915494309189532 or abs(abs(real) - 0.15915494) < 1e-6:
        bits = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}[width]
        return bits | (1 << (width - 1) if real < 0 else 0)
    form, unsigned = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}[width]
    return int(struct.unpack(unsigned, struct.pack(form, real))[0])


def split(text: str, separator: str) -> list[str]:
    """``text`` at each ``separator`` (a comma or a blank) that is in no bracket."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
            if depth < 0:
                raise WaveError(f"unbalanced brackets in {text!r}")
        elif character == separator and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    parts.append(text[start:])
    return [p.strip() for p in parts if p.strip()]
