"""Conversions by target instructions, where they produce the exact bits ``cast`` requires.

The shared lowering expands all others into integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tilewright.ir.types import BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F16, F32, FloatType, Type
from tilewright.llvm.emission.casts import rounded_upper_half
from tilewright.llvm.emission.writer import FunctionWriter, float_constant
from tilewright.passes.analysis.intervals import Limits
from tilewright.passes.math.float_formats import max_finite
from tilewright_amd.architectures import MFMA, Architecture
from tilewright_amd.codegen.kernel_state import kernel_state
from tilewright_amd.codegen.vectors import narrow_pair

#: An f32 NaN whose upper half is the quiet bf16 NaN.
_QUIET_NAN: Final = 0x7FC00000
#: Type whose values f32 represents exactly -> conversion to f32.
_SINGLE: Final[Mapping[Type, Callable[[FunctionWriter, str], str]]] = {
    F32: lambda w, operand: operand,
    F16: lambda w, operand: w.emit(f"fpext half {operand} to float"),
    BF16: lambda w, operand: of_upper_half(w, w.emit(f"zext i16 {operand} to i32")),
}


def machine_cast(
    w: FunctionWriter,
    row: Architecture,
    operand: str,
    source: Type,
    result: Type,
    rounding: str,
    *,
    limits: Limits,
) -> str | None:
    """See :meth:`tilewright.simt.target.capabilities.arithmetic.Arithmetic.cast`.

    ``limits`` bound an operand that is not NaN.
    """
    if source is F32 and result is BF16 and rounding == "rtne":
        return computed_upper_half(w, row, operand) if rounds_bf16(row) else _upper_half(w, operand)
    if source in _SINGLE and result in row.fp8 and rounding == "rtne":
        assert isinstance(result, FloatType)
        return _narrowed(w, row, _SINGLE[source](w, operand), result, limits)
    if source in row.fp8 and result in (F16, F32):
        assert isinstance(source, FloatType)
        single = _widened(w, operand, source)
        # f16 represents every fp8 number exactly
        return single if result is F32 else w.emit(f"fptrunc float {single} to half")
    if isinstance(source, FloatType) and source.bits == 8 and result in (F16, F32):
        half = _half(w, operand, source)
        return w.emit(f"fpext half {half} to float") if half is not None and result is F32 else half
    return None


def rounds_bf16(row: Architecture) -> bool:
    """Return whether the target has an instruction that rounds f32 to bf16."""
    return (row.matrix, row.generation) == (MFMA, 4)


def computed_upper_half(w: FunctionWriter, row: Architecture, operand: str) -> str:
    """Round the f32 result of arithmetic on bf16 numbers to bf16, to nearest even.

    A NaN result is an operand's NaN or the target's canonical NaN. Its lower half is zero, so
    rounding carries nothing into the upper half and preserves the NaN.
    """
    if rounds_bf16(row):
        return w.emit(f"bitcast bfloat {w.emit(f'fptrunc float {operand} to bfloat')} to i16")
    rounded = rounded_upper_half(w, w.emit(f"bitcast float {operand} to i32"))
    return w.emit(f"trunc i32 {w.emit(f'lshr i32 {rounded}, 16')} to i16")


def of_upper_half(w: FunctionWriter, bits: str) -> str:
    """Return the f32 number whose upper half is the lower half of ``bits``."""
    return w.emit(f"bitcast i32 {w.emit(f'shl i32 {bits}, 16')} to float")


def _upper_half(w: FunctionWriter, operand: str) -> str:
    """Round an f32 number to bf16, to nearest even; every NaN becomes the quiet NaN.

    The NaN passes through an empty inline assembly, which hides from LLVM that it is a constant.
    Otherwise LLVM would select between 16-bit halves of a constant, with a shift for each number,
    where ``v_perm_b32`` packs the upper halves of two registers. An assembly with an instruction
    would need an assembler.
    """
    bits = w.emit(f"bitcast float {operand} to i32")
    rounded = rounded_upper_half(w, bits)
    is_nan = w.emit(f"fcmp uno float {operand}, {operand}")
    nan = w.emit(f'call i32 asm "", "=s,0"(i32 {_QUIET_NAN}) memory(none)')
    chosen = w.emit(f"select i1 {is_nan}, i32 {nan}, i32 {rounded}")
    return w.emit(f"trunc i32 {w.emit(f'lshr i32 {chosen}, 16')} to i16")


def _narrowed(
    w: FunctionWriter, row: Architecture, operand: str, result: FloatType, limits: Limits
) -> str:
    """Convert an f32 number to fp8, rounded to nearest and saturated.

    The kernel's state records the rounded number, so that :mod:`.vectors` can convert elements in
    pairs.
    """
    kind = "fp8" if result.mantissa == 3 else "bf8"
    bound = max_finite(result)
    # the instruction turns values out of range into infinity or NaN
    clamped = (
        operand if -bound <= limits[0] and limits[1] <= bound else _clamped(w, row, operand, bound)
    )
    name = w.emit(f"trunc i32 {narrow_pair(w, kind, clamped, clamped)} to i8")
    kernel_state(w).narrowed[name] = clamped, kind
    return name


def _clamped(w: FunctionWriter, row: Architecture, operand: str, bound: float) -> str:
    """Clamp an f32 number to [-bound, bound]; a NaN stays NaN."""
    minimum, maximum = float_constant("float", -bound), float_constant("float", bound)
    if row.propagates_nan:
        raised = w.intrinsic("llvm.maximum", "float", [("float", operand), ("float", minimum)])
        return w.intrinsic("llvm.minimum", "float", [("float", raised), ("float", maximum)])
    clamped = w.call(
        "llvm.amdgcn.fmed3.f32",
        "float",
        [("float", operand), ("float", maximum), ("float", minimum)],
    )
    return w.emit(
        f"select i1 {w.emit(f'fcmp uno float {operand}, {operand}')}, float {operand}, "
        f"float {clamped}"
    )


def _widened(w: FunctionWriter, operand: str, source: FloatType) -> str:
    """Convert an fp8 number to f32."""
    word = w.emit(f"zext i8 {operand} to i32")
    return w.call(
        f"llvm.amdgcn.cvt.f32.{'fp8' if source.mantissa == 3 else 'bf8'}",
        "float",
        [("i32", word), ("i32", "0")],
    )


def _half(w: FunctionWriter, operand: str, source: Type) -> str | None:
    """Convert fp8 to f16 without a conversion instruction; None for unsupported fp8 types.

    The bits move to their f16 positions, and a multiplication corrects the difference of the
    exponent biases.
    """
    wide = w.emit(f"zext i8 {operand} to i16")
    if source is F8E5M2:
        return w.emit(f"bitcast i16 {w.emit(f'shl i16 {wide}, 8')} to half")
    if source not in (F8E4M3FN, F8E4M3FNUZ):
        return None
    sign = w.emit(f"shl i16 {w.emit(f'and i16 {wide}, 128')}, 8")
    low = w.emit(f"and i16 {wide}, 127")
    bits = w.emit(f"or disjoint i16 {w.emit(f'shl i16 {low}, 7')}, {sign}")
    scaled = w.emit(
        f"fmul half {w.emit(f'bitcast i16 {bits} to half')}, "
        f"{float_constant('half', 256.0 if source is F8E4M3FN else 128.0)}"
    )
    nan = w.emit(f"icmp eq i16 {low}, 127" if source is F8E4M3FN else f"icmp eq i16 {wide}, 128")
    return w.emit(f"select i1 {nan}, half {float_constant('half', float('nan'))}, half {scaled}")
