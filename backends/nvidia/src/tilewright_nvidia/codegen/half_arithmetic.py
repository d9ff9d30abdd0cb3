"""Arithmetic on f16 and bf16, two elements at a time.

Instructions such as ``fma.rn.bf16x2`` work on both halves of a packed register. Elements from one
packed register (:mod:`.packed_registers`) are computed together, once per block. The result is
again a packed register, so a chain from loads to stores needs no packing. LLVM selects the
instructions: it fuses multiplications and additions if the launch options allow it, and uses
``fma`` on targets without bf16 addition (before compute capability 9.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tilewright.ir.types import BF16, F16, Type
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.lowering.emission.context import UNWRITTEN, SimtContext
from tilewright_nvidia.codegen.packed_registers import PackedRegisters

#: Element type -> (LLVM type of a register, LLVM type of the arithmetic), on compute capability 8.0
#: and later.
_TYPES: Final[dict[Type, tuple[str, str]]] = {F16: ("half", "half"), BF16: ("i16", "bfloat")}
#: Operation that LLVM may fuse with others -> its instruction.
_ARITHMETIC: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul"}
#: Operation -> LLVM's intrinsic. Behind those of extrema comes their treatment of NaN.
_INTRINSICS: Final = {"fma": "llvm.fma", "min": "llvm.min", "max": "llvm.max"}


def half_operation(
    context: SimtContext,
    words: PackedRegisters,
    name: str,
    operands: Sequence[str],
    element: Type,
    attributes: Mapping[str, Any],
) -> str | None:
    """Compute an operation on f16 or bf16 elements, on compute capability 8.0 and later.

    None if the operands share no packed register and another lowering is better.
    """
    if element not in _TYPES or not (name in _ARITHMETIC or name in _INTRINSICS or name == "neg"):
        return None
    w, contract = context.writer, context.contract
    register, type_ = _TYPES[element]
    _join_neighbours(context, words, name, register)
    pair = words.pair(w, operands, register)
    if pair is None:
        return _single(w, name, operands, contract) if element is BF16 else None
    at, packed = pair
    key = (name, contract, attributes.get("nan"), *packed)
    if not words.is_written(w, key):
        vector = f"<2 x {type_}>"
        both = [w.emit(f"bitcast i32 {word} to {vector}") for word in packed]
        words.write(
            w,
            key,
            w.emit(
                f"bitcast {vector} {_computed(w, name, both, vector, attributes, contract)} to i32"
            ),
        )
    return words.unpack(w, words.written(w, key), "i32", register)[at]


def _join_neighbours(
    context: SimtContext, words: PackedRegisters, name: str, register: str
) -> None:
    """Pack a tile operation's operands in the order of a thread's elements.

    This does nothing if the packed registers of another operand have another order.
    """
    operation = context.operation
    if operation is None or operation.name != name:
        return  # the body of a reduction
    w, key = context.writer, ("join", operation)
    if words.is_written(w, key):
        return
    words.write(w, key, "")
    tiles = [
        names
        for operand in operation.operands
        if len(names := context.registers.get(operand, ())) > 1 and UNWRITTEN not in names
    ]
    if all(words.follow_registers(w, names) for names in tiles):
        for names in tiles:
            words.join(w, names, register)


def _single(w: FunctionWriter, name: str, operands: Sequence[str], contract: str) -> str | None:
    """Add, subtract or multiply two bf16 numbers in i16 registers."""
    if name not in _ARITHMETIC:
        return None
    singles = [w.emit(f"bitcast i16 {operand} to bfloat") for operand in operands]
    return w.emit(
        "bitcast bfloat "
        f"{w.emit(f'{_ARITHMETIC[name]}{contract} bfloat {singles[0]}, {singles[1]}')} to i16"
    )


def _computed(
    w: FunctionWriter,
    name: str,
    operands: Sequence[str],
    vector: str,
    attributes: Mapping[str, Any],
    contract: str,
) -> str:
    if name in _ARITHMETIC:
        return w.emit(f"{_ARITHMETIC[name]}{contract} {vector} {operands[0]}, {operands[1]}")
    if name == "neg":
        return w.emit(f"fneg {vector} {operands[0]}")
    intrinsic = _INTRINSICS[name]
    if name != "fma":
        intrinsic += "imum" if attributes.get("nan") == "propagate" else "num"
    return w.intrinsic(intrinsic, vector, [(vector, operand) for operand in operands])


__all__ = ["half_operation"]
