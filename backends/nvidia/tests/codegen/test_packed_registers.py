"""Words of narrow elements, made on the host: what surrounds an instruction is computed as on the
device."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright_nvidia.codegen import packed_registers
from tilewright_nvidia.codegen.packed_registers import PackedRegisters


def upper_bytes(
    w: FunctionWriter, text: str, results: Any, operands: list[tuple[str, str]], **options: Any
) -> list[str]:
    """Stands for a conversion of a pair: the byte of each number is the upper one of its
    encoding."""
    assert text == "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;"
    high, low = (
        w.emit(f"lshr i32 {w.emit(f'bitcast float {name} to i32')}, 24") for _, name in operands
    )
    moved = w.emit(f"shl i32 {high}, 8")
    return [w.emit(f"trunc i32 {w.emit(f'or i32 {low}, {moved}')} to i16")]


@pytest.mark.parametrize("count", [2, 4])
def test_bytes_are_rounded_by_pairs_in_order(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(packed_registers, "call_asm", upper_bytes)
    module = ModuleWriter()
    w = module.function("f", [("ptr", "x"), ("ptr", "y")])
    known, names, word_type = PackedRegisters(), [], f"i{8 * count}"
    for i in range(count):
        number = w.load("float", w.emit(f"getelementptr float, ptr %x, i64 {i}"))
        names.append(w.emit(f"trunc i32 {w.emit(f'bitcast float {number} to i32')} to i8"))
        known.round_byte(names[-1], number, "e4m3x2")
    w.store(word_type, known.pack(w, names, "i8", word_type), "%y")
    w.ret()
    triple, cpu, features = host_target()
    loaded = load_object(
        compile_to_object(module.text(), triple=triple, cpu=cpu, features=features), ["f"]
    )
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded.address("f"))
    bits = np.array([0x40000000 + (i << 24) for i in range(count)], np.uint32)
    found = np.zeros(count, np.uint8)
    run(bits.ctypes.data, found.ctypes.data)
    assert found.tolist() == [0x40 + i for i in range(count)]
