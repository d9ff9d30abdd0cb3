"""Conversions by PTX instructions, where they produce exactly the bits that ``cast`` requires."""

from __future__ import annotations

from typing import Final

from tilewright.ir.float_to_int import conversion_type
from tilewright.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, F64, I1, IntType, Type
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_nvidia.codegen.inline_ptx import call_asm
from tilewright_nvidia.codegen.packed_registers import PackedRegisters

#: Pairs of fp8 numbers, as PTX names them.
_PAIRS: Final[dict[Type, str]] = {F8E4M3FN: "e4m3x2", F8E5M2: "e5m2x2"}


def machine_cast(
    words: PackedRegisters,
    w: FunctionWriter,
    capability: int,
    operand: str,
    source: Type,
    result: Type,
    rounding: str,
) -> str | None:
    """See :meth:`tilewright.simt.target.capabilities.arithmetic.Arithmetic.cast`."""
    if source in _FLOATS and isinstance(result, IntType) and result is not I1:
        return _to_integer(w, operand, source, result)
    if source is BF16 and result is F32:
        return words.single(w, operand)
    if source is F32 and result is BF16 and capability >= 80:
        return call_asm(
            w,
            f"cvt.{'rz' if rounding == 'rtz' else 'rn'}.bf16.f32 $0, $1;",
            ["i16"],
            [("float", operand)],
            effects=False,
        )[0]
    if source is F32 and result is F16 and rounding == "rtz":
        (bits,) = call_asm(
            w, "cvt.rz.f16.f32 $0, $1;", ["i16"], [("float", operand)], effects=False
        )
        return w.emit(f"bitcast i16 {bits} to half")
    if source is F16 and result is BF16 and capability >= 80:
        single = w.emit(f"fpext half {operand} to float")
        return machine_cast(words, w, capability, single, F32, BF16, rounding)
    if source is F8E5M2 and result in (F16, F32):
        # e5m2 encodings are the upper halves of f16 encodings
        bits = w.emit(f"shl i16 {w.emit(f'zext i8 {operand} to i16')}, 8")
        return _widened(w, w.emit(f"bitcast i16 {bits} to half"), result)
    if capability < 89:
        return None
    if source in _PAIRS and result is BF16 and capability >= 90:
        return words.widened(w, operand, _PAIRS[source], "i16")
    if source is F8E4M3FN and result in (F16, F32):
        return _widened(w, words.widened(w, operand, _PAIRS[source], "half"), result)
    if result in _PAIRS and source in (F16, F32) and rounding == "rtne":
        return _to_fp8(words, w, operand, source, result)
    return None


#: Float type -> its register type and its PTX name.
_FLOATS: Final[dict[Type, tuple[str, str]]] = {
    F16: ("i16", "f16"),
    F32: ("float", "f32"),
    F64: ("double", "f64"),
}


def _to_integer(w: FunctionWriter, operand: str, source: Type, result: IntType) -> str:
    """Convert to an integer by ``cvt.rzi``, which saturates.

    LLVM's own conversions are undefined out of range or take more instructions.
    """
    register, kind = _FLOATS[source]
    through = conversion_type(result)
    if source is F16:
        operand = w.emit(f"bitcast half {operand} to i16")
    text = f"cvt.rzi.{'s' if result.signed else 'u'}{through.bits}.{kind} $0, $1;"
    (whole,) = call_asm(w, text, [f"i{through.bits}"], [(register, operand)], effects=False)
    return (
        whole if through is result else w.emit(f"trunc i{through.bits} {whole} to i{result.bits}")
    )


def _widened(w: FunctionWriter, half: str, result: Type) -> str:
    return half if result is F16 else w.emit(f"fpext half {half} to float")


def _to_fp8(
    words: PackedRegisters, w: FunctionWriter, operand: str, source: Type, result: Type
) -> str:
    """Convert to fp8 by ``cvt.rn.satfinite``, which rounds a pair.

    A NaN loses its sign, as it does in bf16.
    """
    single = operand if source is F32 else w.emit(f"fpext half {operand} to float")
    (pair,) = call_asm(
        w,
        f"cvt.rn.satfinite.{_PAIRS[result]}.f32 $0, 0f00000000, $1;",
        ["i16"],
        [("float", single)],
        effects=False,
    )
    byte = w.emit(f"trunc i16 {pair} to i8")
    words.round_byte(byte, single, _PAIRS[result])
    return byte
