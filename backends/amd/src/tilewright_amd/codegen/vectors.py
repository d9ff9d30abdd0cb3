"""Vectors of LLVM IR, built from their elements."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_amd.codegen.kernel_state import kernel_state


def join(w: FunctionWriter, type_: str, names: Sequence[str]) -> str:
    """One value of several of an LLVM type; of one that element itself. Numbers that were rounded to fp8 are rounded by pairs here."""
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
    """The elements of one value of ``count``."""
    return [vector] if count == 1 else [w.emit(f"extractelement <{count} x {type_}> {vector}, i32 {i}") for i in range(count)]


def narrow_pair(w: FunctionWriter, kind: str, low: str, high: str, word: str | None = None) -> str:
    """Two f32 numbers as fp8 of a kind, in the lower half of a word; in the upper half of ``word``, where there is one."""
    given = [("float", low), ("float", high), ("i32", word or "poison"), ("i1", "false" if word is None else "true")]
    return w.call(f"llvm.amdgcn.cvt.pk.{kind}.f32", "i32", given)


def _joined_pairs(w: FunctionWriter, numbers: Sequence[tuple[str, str]]) -> str:
    """A vector of fp8 of f32 numbers, each with its kind."""
    kind = numbers[0][1]
    words = []
    for i in range(0, len(numbers), 4):
        operands = [number for number, _ in numbers[i : i + 4]]
        word = narrow_pair(w, kind, operands[0], operands[1])
        words.append(narrow_pair(w, kind, operands[2], operands[3], word) if len(operands) == 4 else word)
    if len(numbers) == 2:
        return w.emit(f"bitcast i16 {w.emit(f'trunc i32 {words[0]} to i16')} to <2 x i8>")
    whole = join(w, "i32", words)
    return w.emit(f"bitcast {'i32' if len(words) == 1 else f'<{len(words)} x i32>'} {whole} to <{len(numbers)} x i8>")
