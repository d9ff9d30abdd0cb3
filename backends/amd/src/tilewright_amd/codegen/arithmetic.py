"""Elementwise operations through target intrinsics, within the allowed error.

With the option ``math`` at ``relaxed``, a function may have the error given in the column
``relaxed_ulp`` of :data:`tilewright.passes.math.math_library.MATH`. With ``strict``, the backend
uses the shared expansions wherever the target's instruction is less accurate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.types import BF16, F16, F32, F64, FloatType, Type
from tilewright.llvm.emission.float_remainder import float_remainder
from tilewright.llvm.emission.registers import constant, register_type
from tilewright.llvm.emission.writer import FunctionWriter, float_constant
from tilewright.passes.analysis.intervals import UNLIMITED, float_limits
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.arithmetic import Arithmetic
from tilewright_amd.architectures import Architecture
from tilewright_amd.codegen.casts import computed_upper_half, machine_cast, of_upper_half

Emitter = Callable[[FunctionWriter, list[str]], str]


def _unary(name: str) -> Emitter:
    def emit(w: FunctionWriter, operands: list[str]) -> str:
        return w.intrinsic(f"llvm.amdgcn.{name}", "float", [("float", operands[0])])

    return emit


def _exp(w: FunctionWriter, operands: list[str]) -> str:
    """Compute 2**(x * log2 e); rounding the factor costs accuracy in proportion to x."""
    return _unary("exp2")(
        w, [w.emit(f"fmul float {operands[0]}, {float_constant('float', 1.4426950408889634)}")]
    )


def _divide(w: FunctionWriter, operands: list[str]) -> str:
    """Divide by the reciprocal of the mantissa, so that the reciprocal is a normal number.

    The division is expanded here: LLVM may merge an inexact ``fdiv`` with an exact one and use the
    inexact result for both.
    """
    mantissas = [
        w.call("llvm.amdgcn.frexp.mant.f32", "float", [("float", operand)]) for operand in operands
    ]
    exponents = [
        w.call("llvm.amdgcn.frexp.exp.i32.f32", "i32", [("float", operand)]) for operand in operands
    ]
    quotient = w.emit(f"fmul float {mantissas[0]}, {_unary('rcp')(w, mantissas[1:])}")
    return w.call(
        "llvm.ldexp.f32.i32",
        "float",
        [("float", quotient), ("i32", w.emit(f"sub i32 {exponents[0]}, {exponents[1]}"))],
    )


def _log(w: FunctionWriter, operands: list[str]) -> str:
    """Compute log2 x times ln 2.

    LLVM scales subnormal operands, which the instruction flushes to zero.
    """
    return w.emit(
        f"fmul float {w.intrinsic('llvm.log2', 'float', [('float', operands[0])])}, "
        f"{float_constant('float', math.log(2))}"
    )


def _by_reciprocal(w: FunctionWriter, operands: list[str]) -> str:
    return w.emit(f"fmul float {operands[0]}, {_unary('rcp')(w, operands[1:])}")


#: Name -> f32 target function for ``math`` relaxed. Each instruction has 1 ULP. exp adds 1.173 |x|,
#: since it rounds the factor x * log2 e. A quotient has 2.5 ULP, and a logarithm 3.1, including the
#: rounding of the product. Results below the normal range may be zero.
RELAXED: dict[str, Emitter] = {
    "exp2": _unary("exp2"),
    "exp": _exp,
    "log": _log,
    "rsqrt": _unary("rsq"),
    "div": _divide,
}
#: Name -> f32 target function for operations marked ``approximate``: 2.5 ULP.
APPROXIMATE: dict[str, Emitter] = {"div": _divide, "sqrt": _unary("sqrt")}
#: Name -> f32 target function for ``math`` relaxed and operations marked ``fast``: 2.5 ULP where
#: the reciprocal is a normal number.
FAST: dict[str, Emitter] = {"div": _by_reciprocal}


#: bf16 operations computed in f32 -> LLVM's instructions. f32 has more than twice the precision of
#: bf16, so rounding the f32 result to bf16 yields the correctly rounded result.
_ROUNDED_ONCE: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul"}
#: Types for which this module expands sums with +0 itself instead of leaving them to LLVM.
_BESIDE_ZERO: Final = frozenset({F16, BF16, F32, F64})


def _beside_zero(name: str, operands: list[str], element: Type) -> tuple[str, bool] | None:
    """Match a sum of +0 and a possibly negated number; return the number and whether it is negated.

    Return None for any other operation. LLVM folds such a sum with -x to 0 - x, and folds that to
    -x, which is wrong when x is a zero.
    """
    zero, minus_zero, one, minus_one = (
        constant(element, value) for value in (0.0, -0.0, 1.0, -1.0)
    )
    if name == "add" and zero in operands:
        return operands[operands[0] == zero], False
    if name == "sub" and operands[0] == zero:
        return operands[1], True
    if name == "sub" and operands[1] == minus_zero:
        return operands[0], False
    if name == "fma" and operands[2] == zero:
        for factor in (one, minus_one):
            if factor in operands[:2]:
                return operands[operands[0] == factor], factor == minus_one
    return None


def _sum_with_zero(w: FunctionWriter, number: str, negated: bool, element: Type) -> str:
    """Emit 0 + x, or 0 - x if ``negated``."""
    type_, zero = register_type(element), constant(element, 0.0)
    if element is BF16:  # held in integer registers
        is_zero = w.emit(f"icmp eq i16 {w.emit(f'and i16 {number}, 32767')}, 0")
        other = w.emit(f"xor i16 {number}, -32768") if negated else number
    else:
        is_zero = w.emit(f"fcmp oeq {type_} {number}, {zero}")
        other = w.emit(f"fneg {type_} {number}") if negated else number
    return w.emit(f"select i1 {is_zero}, {type_} {zero}, {type_} {other}")


def _fma_in_single(w: FunctionWriter, row: Architecture, operands: list[str]) -> str:
    """Emit ``a * b + c`` of bf16 numbers, rounded to f32 and then to bf16.

    The result differs from the correctly rounded one only where the f32 result lies midway between
    two bf16 numbers; its error is at most 0.5 + 2**-16 ULP. Correct rounding needs f64 and the
    error of the sum: 24 instructions per element.
    """
    return computed_upper_half(
        w,
        row,
        w.intrinsic("llvm.fma", "float", [("float", single) for single in _singles(w, operands)]),
    )


def _singles(w: FunctionWriter, operands: list[str]) -> list[str]:
    return [of_upper_half(w, w.emit(f"zext i16 {operand} to i32")) for operand in operands]


class GcnArithmetic(Arithmetic):
    """Elementwise instructions; ``relaxed``: the option ``math``."""

    native_ldexp = True

    def __init__(self, row: Architecture, *, relaxed: bool) -> None:
        self._row, self._relaxed = row, relaxed
        self.native_exp = relaxed

    def operation(
        self,
        context: SimtContext,
        name: str,
        operands: list[str],
        element: Type,
        attributes: Mapping[str, Any],
    ) -> str | None:
        w = context.writer
        if element is F32:
            if attributes.get("approximate") and name in APPROXIMATE:
                return APPROXIMATE[name](w, operands)
            if self._relaxed and attributes.get("fast") and name in FAST:
                return FAST[name](w, operands)
            if self._relaxed and name in RELAXED and not attributes.get("exact"):
                return RELAXED[name](w, operands)
        if element in _BESIDE_ZERO and (term := _beside_zero(name, operands, element)):
            return _sum_with_zero(w, *term, element)
        if self._relaxed and element is BF16 and name == "fma":
            return _fma_in_single(w, self._row, operands)
        if element is BF16 and name in _ROUNDED_ONCE:
            return computed_upper_half(
                w,
                self._row,
                w.emit(f"{_ROUNDED_ONCE[name]} float {', '.join(_singles(w, operands))}"),
            )
        if name == "rem" and isinstance(element, FloatType):
            return float_remainder(w, operands[0], operands[1], element)
        if element is F16:
            if name == "fma":
                return w.intrinsic("llvm.fma", "half", [("half", operand) for operand in operands])
            if name in ("min", "max"):
                propagates = attributes.get("nan") == "propagate"
                return w.intrinsic(
                    f"llvm.{name}{'imum' if propagates else 'num'}",
                    "half",
                    [("half", operand) for operand in operands],
                )
        return None

    def cast(
        self, context: SimtContext, operand: str, source: Type, result: Type, rounding: str
    ) -> str | None:
        operation = context.operation
        limits = (
            float_limits(operation.x)
            if isinstance(operation, Cast) and isinstance(result, FloatType) and result.bits == 8
            else UNLIMITED
        )
        return machine_cast(
            context.writer, self._row, operand, source, result, rounding, limits=limits
        )
