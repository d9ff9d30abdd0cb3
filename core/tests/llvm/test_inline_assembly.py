"""Elements in registers of assembly, run on the host: registers narrower and wider than the word
that holds the elements."""

from __future__ import annotations

import ctypes
import platform

import pytest

from tilewright.errors import LoweringError
from tilewright.ir.types import BF16, F16, F32, I1, I8, I16, I32, U8, U16, Type
from tilewright.llvm.assembly.assembly_operands import (
    AssemblyOperand,
    from_operands,
    operand_types,
    to_operands,
)
from tilewright.llvm.assembly.inline_assembly import emit_inline_asm
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object
from tilewright.llvm.emission.registers import register_type
from tilewright.llvm.emission.writer import ModuleWriter

#: Letters of registers of general use, each for one width.
LETTERS = {"q": "i16", "r": "i32", "R": "i64"}
MOVES = {
    ("q", "q"): "movw $1, $0",
    ("r", "r"): "movl $1, $0",
    ("R", "R"): "movq $1, $0",
    ("r", "q"): "movzwl $1, $0",
    ("q", "r"): "movw ${1:w}, $0",
}


def moved(element: Type, result: Type, values: list[int], output: str, given: str) -> list[int]:
    """Return the bits of elements after a move to another element type."""
    triple, cpu, features = host_target()
    module = ModuleWriter()
    bits = [f"i{element.bits}" for _ in values]
    w = module.function("f", [("ptr", "out"), *[(kind, f"x{i}") for i, kind in enumerate(bits)]])
    names = [
        f"%x{i}"
        if register_type(element) == kind
        else w.emit(f"bitcast {kind} %x{i} to {register_type(element)}")
        for i, kind in enumerate(bits)
    ]
    operands = to_operands(w, element, names)
    made = emit_inline_asm(
        w,
        LETTERS,
        MOVES[output, given],
        f"={output},{given}",
        operand_types(result, len(values)),
        operands,
    )
    for i, name in enumerate(from_operands(w, result, made, len(values))):
        wide = w.emit(f"zext i1 {name} to i64") if result is I1 else ""
        if not wide:
            whole = (
                name
                if register_type(result) == f"i{result.bits}"
                else w.emit(f"bitcast {register_type(result)} {name} to i{result.bits}")
            )
            wide = w.emit(f"zext i{result.bits} {whole} to i64") if result.bits < 64 else whole
        w.do(f"store i64 {wide}, ptr {w.emit(f'getelementptr i64, ptr %out, i64 {i}')}")
    w.ret()
    loaded = load_object(
        compile_to_object(module.text(), triple=triple, cpu=cpu, features=features), ["f"]
    )
    out = (ctypes.c_int64 * len(values))()
    c_types = {8: ctypes.c_int8, 16: ctypes.c_int16, 32: ctypes.c_int32, 1: ctypes.c_bool}
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[c_types[element.bits]] * len(values))(
        loaded.address("f")
    )(ctypes.addressof(out), *values)
    return list(out)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the moves are x86's")
@pytest.mark.parametrize(
    ("element", "result", "values", "output", "given", "expected"),
    [
        (I16, I16, [-2], "q", "q", [0xFFFE]),
        (F16, BF16, [0x3C01], "q", "q", [0x3C01]),
        (I16, I32, [-2], "r", "r", [0xFFFFFFFE]),  # one that is alone is extended by its sign
        (U16, I32, [-2], "r", "r", [0xFFFE]),
        (I16, I32, [-2], "r", "q", [0xFFFE]),
        (I32, F16, [0x12345678], "q", "r", [0x5678]),
        (I32, F16, [0x12345678], "r", "r", [0x5678]),
        (I8, I16, [-2], "q", "q", [0xFFFE]),
        (U8, I16, [-2], "q", "q", [0xFE]),
        (U8, I8, [1, 2], "q", "q", [1, 2]),
        (I8, U8, [-1, -2], "r", "r", [0xFF, 0xFE]),
        (I8, I8, [1, 2, 3, -4], "r", "r", [1, 2, 3, 0xFC]),
        (F16, BF16, [0x3C01, 0x7BFF], "r", "r", [0x3C01, 0x7BFF]),
        (F16, F16, [1, 2, 3, 4], "R", "R", [1, 2, 3, 4]),
        (I1, I1, [True], "q", "q", [1]),
    ],
)
def test_elements_keep_their_bits(
    element: Type, result: Type, values: list[int], output: str, given: str, expected: list[int]
) -> None:
    assert moved(element, result, values, output, given) == expected


@pytest.mark.parametrize(
    ("results", "operands", "reason"),
    [
        (
            operand_types(F32, 1),
            [AssemblyOperand("i32", 16, "%a")],
            "1 elements of 32 bits do not fit a register of 16",
        ),
        (
            operand_types(U8, 3),
            [AssemblyOperand("i32", 16, "%a")],
            "1 elements of 24 bits do not fit a register of 16",
        ),
        (
            operand_types(F16, 1),
            [AssemblyOperand("i32", 32, "%a")],
            "an element of 32 bits does not fit a register of 16",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    results: list[AssemblyOperand], operands: list[AssemblyOperand], reason: str
) -> None:
    w = ModuleWriter().function("f", [("i32", "a")])
    with pytest.raises(LoweringError, match=reason):
        emit_inline_asm(w, LETTERS, "text", "=q,q", results, operands)
