"""Vectors of LLVM IR, built from their elements."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_amd.codegen.kernel_state import kernel_state


def join(w: FunctionWriter, type_: str, names: Sequence[str]) -> str:
    """Build an LLVM vector from its elements; a single element stays a scalar.

    Elements that were rounded from f32 to fp8 are rounded again here in pairs.
    """
    if len(names) == 1:
        return names[0]
    if all(name[0] != "%" for name in names):
        return f"<{', '.join(f'{type_} {name}' for name in names)}>"
    narrowed = kernel_state(w).narrowed
    if type_ == "i8" and len(names) % 2 == 0 and all(name in narrowed for name in names):
        return _joined_pairs(w, [narrowed[name] for name in names])
    vector = "poison"
    for i, name in enumerate(names):
        vector = w.emit(f"insertelement <{len(names)} x {type_}> {vector}, {type_} {name}, i32 {i}")
    return vector


def elements(w: FunctionWriter, type_: str, vector: str, count: int) -> list[str]:
    """Return the ``count`` elements of a vector."""
    return (
        [vector]
        if count == 1
        else [w.emit(f"extractelement <{count} x {type_}> {vector}, i32 {i}") for i in range(count)]
    )


def narrow_pair(w: FunctionWriter, kind: str, low: str, high: str, word: str | None = None) -> str:
    """Convert two f32 numbers to fp8, in the lower half of an i32 or the upper half of ``word``."""
    given = [
        ("float", low),
        ("float", high),
        ("i32", word or "poison"),
        ("i1", "false" if word is None else "true"),
    ]
    return w.call(f"llvm.amdgcn.cvt.pk.{kind}.f32", "i32", given)


def _joined_pairs(w: FunctionWriter, numbers: Sequence[tuple[str, str]]) -> str:
    """Convert f32 numbers to a vector of fp8, in pairs."""
    kind = numbers[0][1]
    words = []
    for i in range(0, len(numbers), 4):
        operands = [number for number, _ in numbers[i : i + 4]]
        word = narrow_pair(w, kind, operands[0], operands[1])
        words.append(
            narrow_pair(w, kind, operands[2], operands[3], word) if len(operands) == 4 else word
        )
    if len(numbers) == 2:
        return w.emit(f"bitcast i16 {w.emit(f'trunc i32 {words[0]} to i16')} to <2 x i8>")
    whole = join(w, "i32", words)
    return w.emit(
        f"bitcast {'i32' if len(words) == 1 else f'<{len(words)} x i32>'} {whole} to "
        f"<{len(numbers)} x i8>"
    )
