"""Inline PTX in LLVM IR."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.llvm.emission.writer import FunctionWriter

#: LLVM type of a register -> its letter in constraints.
LETTERS = {
    "i1": "b",
    "i16": "h",
    "i32": "r",
    "i64": "l",
    "float": "f",
    "double": "d",
    "ptr": "l",
    "ptr addrspace(1)": "l",
    "ptr addrspace(3)": "r",
}
#: Letter of a constraint of assembly that a kernel brings -> LLVM type of its registers.
ASSEMBLY_REGISTERS = {
    "h": "i16",
    "r": "i32",
    "l": "i64",
    "f": "float",
    "d": "double",
    "b": "i1",
    "c": "i8",
}


def call_asm(
    w: FunctionWriter,
    text: str,
    results: Sequence[str],
    operands: Sequence[tuple[str, str]],
    *,
    initial: Sequence[str] = (),
    effects: bool = True,
    memory: bool = False,
    convergent: bool = False,
) -> list[str]:
    """Emit inline PTX; return its results.

    Args:
        text: results are ``$0`` and on, operands follow.
        results: LLVM types of the results.
        operands: (LLVM type, name).
        initial: initial values of the results' registers, one each; an instruction that is
            predicated off keeps them.
        effects: whether LLVM must neither move, duplicate nor delete it.
        memory: whether it reads or writes memory that LLVM's own instructions access.
        convergent: whether the threads of a warp run it together.
    """
    constraints = [f"={LETTERS[type_]}" for type_ in results]
    constraints += [LETTERS[type_] for type_, _ in operands]
    constraints += [str(i) for i in range(len(initial))]
    if memory:
        constraints.append("~{memory}")
    listed = [f"{type_} {name}" for type_, name in operands] + [
        f"{type_} {name}" for type_, name in zip(results, initial, strict=False)
    ]
    kind = (
        "void" if not results else results[0] if len(results) == 1 else f"{{{', '.join(results)}}}"
    )
    quoted = text.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A")
    call = (
        f'call {kind} asm {"sideeffect " if effects else ""}"{quoted}", '
        f'"{",".join(constraints)}"({", ".join(listed)}){" convergent" if convergent else ""}'
    )
    if not results:
        w.do(call)
        return []
    name = w.emit(call)
    if len(results) == 1:
        return [name]
    return [w.emit(f"extractvalue {kind} {name}, {i}") for i in range(len(results))]


def listed(first: int, number: int) -> str:
    """Format the registers of an access: ``{$0, $1}``, or one alone."""
    names = ", ".join(f"${first + i}" for i in range(number))
    return f"{{{names}}}" if number > 1 else names
