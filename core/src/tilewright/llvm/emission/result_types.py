"""Result type of an LLVM instruction, read off its text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_TYPE: Final = re.compile(
    r"(?<![\w.%@!])(?:i\d+|half|bfloat|float|double|fp128|ptr)(?![\w.])|[<{\[]"
)
_OPENING, _CLOSING = "<{[(", ">}])"

#: Instructions that give the type of their first operand.
_LIKE_FIRST: Final = frozenset({
    "add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or", "xor",
    "fadd", "fsub", "fmul", "fdiv", "frem", "fneg", "freeze",
    "phi", "load", "insertelement", "insertvalue", "call",
})  # fmt: skip
_CASTS: Final = frozenset({
    "trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp", "ptrtoint",
    "inttoptr", "bitcast", "addrspacecast",
})  # fmt: skip


def _split(text: str) -> list[str]:
    """Text cut at the commas outside brackets."""
    parts, depth, start, quoted = [], 0, 0, False
    for at, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif letter == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def _first_type(text: str) -> str:
    """The first type in text, whatever words stand before it."""
    found = _TYPE.search(text)
    if found is None:
        raise ValueError(f"no type in {text!r}")
    if found[0] not in _OPENING:
        return found[0]
    depth = 0
    for at in range(found.start(), len(text)):
        depth += (text[at] in _OPENING) - (text[at] in _CLOSING)
        if not depth:
            return text[found.start() : at + 1]
    raise ValueError(f"brackets stay open in {text!r}")


def _lanes(type_: str) -> str:
    """``<8 x `` of ``<8 x float>``; nothing for a scalar."""
    return type_[: type_.index(" x ") + 3] if type_.startswith("<") else ""


def _of_lanes(lanes: str, element: str) -> str:
    return f"{lanes}{element}>" if lanes else element


def result_type(text: str, type_of: Callable[[str], str]) -> str:
    """Return the type of an instruction's result.

    ``text`` is the instruction without its result's name; ``type_of`` returns the type of another
    value.

    Raises:
        ValueError: it is no instruction that is known here.
    """
    opcode, _, rest = text.partition(" ")
    if opcode in ("tail", "notail", "musttail"):
        opcode, _, rest = rest.partition(" ")
    if opcode == "alloca":
        return "ptr"
    if opcode in _LIKE_FIRST:
        return _first_type(rest)
    if opcode in _CASTS:
        return _first_type(_split(rest)[0].rpartition(" to ")[2])
    operands = _split(rest)
    if opcode in ("icmp", "fcmp"):
        return _of_lanes(_lanes(_first_type(operands[0])), "i1")
    if opcode == "select":
        return _first_type(operands[1])
    if opcode == "getelementptr":
        lanes = next(
            (
                lanes
                for lanes in map(
                    _lanes, map(_first_type, (one for one in operands[1:] if one[0] != "!"))
                )
                if lanes
            ),
            "",
        )
        return _of_lanes(lanes, "ptr")
    if opcode == "extractelement":
        whole = _first_type(operands[0])
        return whole[whole.index(" x ") + 3 : -1]
    if opcode == "shufflevector":
        whole, chosen = _first_type(operands[0]), _first_type(operands[2])
        return _of_lanes(_lanes(chosen), whole[whole.index(" x ") + 3 : -1])
    if opcode == "atomicrmw":
        return _first_type(operands[1])
    if opcode == "cmpxchg":
        return f"{{ {_first_type(operands[1])}, i1 }}"
    if opcode == "extractvalue":
        type_ = _first_type(operands[0])
        for index in (one for one in operands[1:] if one.isdigit()):
            if type_[0] == "[":
                type_ = type_[type_.index(" x ") + 3 : -1].strip()
            else:
                type_ = _split(type_[1:-1])[int(index)]
        return type_
    raise ValueError(f"the type of {text!r} is not known")
