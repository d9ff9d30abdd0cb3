"""Conversions that the machine has, where they give the bits that the operation ``cast`` asks for; all others are integer arithmetic."""

from __future__ import annotations

from tilewright.ir.types import BF16, F16, F32, FloatType, Type
from tilewright.llvm.writer import FunctionWriter
from tilewright_amd.architectures import MFMA, Architecture


def machine_cast(w: FunctionWriter, row: Architecture, operand: str, source: Type, result: Type, rounding: str) -> str | None:
    """See :meth:`tilewright.simt.target.SimtTarget.cast`."""
    if source is F32 and result is BF16 and rounding == "rtne" and (row.matrix, row.generation) == (MFMA, 4):
        return w.emit(f"bitcast bfloat {w.emit(f'fptrunc float {operand} to bfloat')} to i16")
    if source in row.fp8 and result in (F16, F32):
        assert isinstance(source, FloatType)
        single = _widened(w, operand, source)
        # every fp8 number is one of f16
        return single if result is F32 else w.emit(f"fptrunc float {single} to half")
    return None


def _widened(w: FunctionWriter, operand: str, source: FloatType) -> str:
    """An fp8 number as f32: of the lowest byte of a word."""
    word = w.emit(f"zext i8 {operand} to i32")
    return w.call(f"llvm.amdgcn.cvt.f32.{'fp8' if source.mantissa == 3 else 'bf8'}", "float", [("i32", word), ("i32", "0")])
