"""Vectors of LLVM IR, made of their elements."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.llvm.writer import FunctionWriter


def join(w: FunctionWriter, type_: str, names: Sequence[str]) -> str:
    """One value of several of an LLVM type; of one that element itself."""
    if len(names) == 1:
        return names[0]
    if all(name[0] != "%" for name in names):
        return f"<{', '.join(f'{type_} {name}' for name in names)}>"
    vector = "poison"
    for i, name in enumerate(names):
        vector = w.emit(f"insertelement <{len(names)} x {type_}> {vector}, {type_} {name}, i32 {i}")
    return vector


def elements(w: FunctionWriter, type_: str, vector: str, count: int) -> list[str]:
    """The elements of one value of ``count``."""
    return [vector] if count == 1 else [w.emit(f"extractelement <{count} x {type_}> {vector}, i32 {i}") for i in range(count)]
