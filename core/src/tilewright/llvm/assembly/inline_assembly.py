"""Inline assembly of kernels, with constraints as LLVM writes them (``"=r,r"``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tilewright.errors import LoweringError
from tilewright.llvm.assembly.assembly_operands import AssemblyOperand
from tilewright.llvm.emission.writer import FunctionWriter

#: Letters of constraints whose operand is written into the text: an integer known to the compiler.
_IMMEDIATE: Final = ("n", "i")
#: LLVM types of one element: bits.
BITS: Final = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "half": 16,
    "bfloat": 16,
    "i32": 32,
    "float": 32,
    "i64": 64,
    "double": 64,
    "ptr": 64,
}


def emit_inline_asm(
    w: FunctionWriter,
    letters: Mapping[str, str],
    text: str,
    constraints: str,
    results: Sequence[AssemblyOperand],
    operands: Sequence[AssemblyOperand],
    marks: str = "",
) -> list[str]:
    """Run a kernel's assembly on one group of elements.

    A register takes several operands that are narrower where there are fewer registers than
    operands: neighbours of one input. It may itself be narrower than its operand, if it has room
    for the bits that hold elements: one half is in a register of 16 bits or in one of 32, by the
    constraint.

    Args:
        letters: letter of a constraint -> LLVM type of its registers; empty for registers that are
            as wide as what they hold, 32 bits where that is several elements or less than 16 bits.
            A register that is named, as in ``{v7}``, is one of those. ``n`` and ``i`` are no
            registers: integers that are constants, written into the text.
        marks: what is put behind the call: attributes, then metadata
            (:func:`tilewright.llvm.assembly.assembly_sites.site`).

    Raises:
        LoweringError: the constraints do not fit the elements.
    """
    listed = [part.strip() for part in constraints.split(",") if part.strip()]
    outputs = [part for part in listed if part.startswith("=")]
    clobbers = [part for part in listed if part.startswith("~")]
    inputs = [part for part in listed if part not in outputs and part not in clobbers]
    result_groups = _groups(results, len(outputs), "results", constraints)
    groups = _groups(operands, len(inputs), "inputs", constraints)
    out_types = [
        _register(letters, part.lstrip("=&"), group, constraints)
        for part, group in zip(outputs, result_groups, strict=True)
    ]
    in_types: list[str] = []
    values: list[str] = []
    for part, group in zip(inputs, groups, strict=True):
        if part in _IMMEDIATE:
            type_, value = _immediate(part, group, constraints)
        else:
            tied = part.isdigit() and int(part) < len(out_types)
            type_ = out_types[int(part)] if tied else _register(letters, part, group, constraints)
            value = _to_register(w, group, type_)
        in_types.append(type_)
        values.append(value)
    kind = (
        "void"
        if not out_types
        else out_types[0]
        if len(out_types) == 1
        else f"{{{', '.join(out_types)}}}"
    )
    quoted = (
        text.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A").replace("\t", "\\09")
    )
    arguments = ", ".join(f"{type_} {name}" for type_, name in zip(in_types, values, strict=True))
    call = (
        f'call {kind} asm sideeffect "{quoted}", '
        f'"{",".join((*outputs, *inputs, *clobbers))}"({arguments}){marks}'
    )
    if not out_types:
        w.do(call)
        return []
    made = w.emit(call)
    words = (
        [made]
        if len(out_types) == 1
        else [w.emit(f"extractvalue {kind} {made}, {i}") for i in range(len(out_types))]
    )
    return [
        name
        for word, type_, group in zip(words, out_types, result_groups, strict=True)
        for name in _from_register(w, word, type_, group)
    ]


def _register(
    letters: Mapping[str, str], letter: str, group: Sequence[AssemblyOperand], constraints: str
) -> str:
    """The LLVM type of the register that holds a group of elements."""
    named = letter.startswith("{") and letter.endswith("}")
    if letter not in letters and not named:
        raise LoweringError(
            f"constraint {letter!r} in {constraints!r} is none of {', '.join(letters)}"
        )
    if not named and letters[letter]:
        return letters[letter]
    type_ = group[0].type
    return (
        type_
        if len(group) == 1 and BITS[type_] >= 16 and type_ != "ptr"
        else "i64"
        if type_ == "ptr"
        else "i32"
    )


def _immediate(letter: str, group: Sequence[AssemblyOperand], constraints: str) -> tuple[str, str]:
    """The LLVM type and value of an operand that is written into the text."""
    type_, value = group[0].type, group[0].name
    if len(group) > 1 or not type_.startswith("i") or not value.removeprefix("-").isdigit():
        raise LoweringError(
            f"constraint {letter!r} in {constraints!r} takes one integer that is a constant of the "
            "kernel, as a tl.constexpr"
        )
    return type_, value


def _groups(
    elements: Sequence[AssemblyOperand], count: int, what: str, constraints: str
) -> list[list[AssemblyOperand]]:
    """The elements of each register."""
    if count == 0 and not elements:
        return []
    if count == 0 or len(elements) % count:
        raise LoweringError(
            f"constraints {constraints!r} have {count} {what}, which {len(elements)} elements "
            "do not fill"
        )
    each = len(elements) // count
    return [list(elements[i * each : (i + 1) * each]) for i in range(count)]


def _to_register(w: FunctionWriter, group: Sequence[AssemblyOperand], register: str) -> str:
    types = {operand.type for operand in group}
    if len(types) != 1:
        raise LoweringError(f"elements of types {', '.join(sorted(types))} cannot share a register")
    (type_,) = types
    names = [operand.name for operand in group]
    if type_ == register:
        if len(names) == 1:
            return names[0]
        raise LoweringError(
            f"{len(names)} elements of type {type_} do not fit one register of type {register}"
        )
    if type_ == "i1":
        return w.emit(f"zext i1 {names[0]} to {register}")
    word = f"i{BITS[register]}"
    width = BITS[type_] * len(names)
    if len(names) > 1:
        if width > BITS[register]:
            raise LoweringError(
                f"{len(names)} elements of {BITS[type_]} bits do not fit a register of "
                f"{BITS[register]}"
            )
        vector_type, vector = f"<{len(names)} x {type_}>", "poison"
        for i, name in enumerate(names):
            vector = w.emit(f"insertelement {vector_type} {vector}, {type_} {name}, i32 {i}")
        bits = w.emit(f"bitcast {vector_type} {vector} to i{width}")
    else:
        if group[0].bits > BITS[register]:
            raise LoweringError(
                f"an element of {group[0].bits} bits does not fit a register of {BITS[register]}"
            )
        bits = (
            names[0]
            if type_ == f"i{width}"
            else w.emit(
                f"{'ptrtoint' if type_ == 'ptr' else 'bitcast'} {type_} {names[0]} to i{width}"
            )
        )
    bits = _resized(w, bits, width, BITS[register])
    return bits if register == word else w.emit(f"bitcast {word} {bits} to {register}")


def _from_register(
    w: FunctionWriter, name: str, register: str, group: Sequence[AssemblyOperand]
) -> list[str]:
    type_, count = group[0].type, len(group)
    if type_ == register and count == 1:
        return [name]
    if type_ == "i1":
        return [w.emit(f"icmp ne {register} {name}, 0")]
    word = f"i{BITS[register]}"
    bits = name if register == word else w.emit(f"bitcast {register} {name} to {word}")
    width = BITS[type_] * count
    if (width if count > 1 else group[0].bits) > BITS[register]:
        raise LoweringError(
            f"{count} elements of {BITS[type_] if count > 1 else group[0].bits} bits do not fit a "
            f"register of {BITS[register]}"
        )
    bits = _resized(w, bits, BITS[register], width)
    if count > 1:
        vector = w.emit(f"bitcast i{width} {bits} to <{count} x {type_}>")
        return [
            w.emit(f"extractelement <{count} x {type_}> {vector}, i32 {i}") for i in range(count)
        ]
    return [
        bits
        if type_ == f"i{width}"
        else w.emit(f"{'inttoptr' if type_ == 'ptr' else 'bitcast'} i{width} {bits} to {type_}")
    ]


def _resized(w: FunctionWriter, name: str, source: int, result: int) -> str:
    """The low bits of an integer, in one of another width: what is wider has zeros above them."""
    if source == result:
        return name
    return w.emit(f"{'zext' if source < result else 'trunc'} i{source} {name} to i{result}")
