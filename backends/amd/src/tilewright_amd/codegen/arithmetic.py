"""Elementwise operations in machine instructions, within the error that the operation allows.

With the option ``math`` at ``relaxed`` a function may have the error of the column ``relaxed_ulp`` of :data:`tilewright.passes.math.math_library.MATH`; with
``strict`` the shared functions are used wherever the machine's are not as good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from tilewright.ir.types import BF16, F16, F32, F64, FloatType, Type
from tilewright.llvm.emission.float_remainder import float_remainder
from tilewright.llvm.emission.registers import constant, register_type
from tilewright.llvm.emission.writer import FunctionWriter, float_constant
from tilewright_amd.architectures import Architecture
from tilewright_amd.codegen.casts import computed_upper_half, of_upper_half

Emitter = Callable[[FunctionWriter, list[str]], str]


def _unary(name: str) -> Emitter:
    def emit(w: FunctionWriter, operands: list[str]) -> str:
        return w.intrinsic(f"llvm.amdgcn.{name}", "float", [("float", operands[0])])

    return emit


def _exp(w: FunctionWriter, operands: list[str]) -> str:
    """2**(x * log2 e): the product is rounded, which costs accuracy in proportion to x."""
    return _unary("exp2")(w, [w.emit(f"fmul float {operands[0]}, {float_constant('float', 1.4426950408889634)}")])


def _divide(w: FunctionWriter, operands: list[str]) -> str:
    """By the reciprocal, of mantissas, so that it is a normal number. It is written out: an ``fdiv`` that may be less exact is taken for one beside it that
    may not."""
    mantissas = [w.call("llvm.amdgcn.frexp.mant.f32", "float", [("float", operand)]) for operand in operands]
    exponents = [w.call("llvm.amdgcn.frexp.exp.i32.f32", "i32", [("float", operand)]) for operand in operands]
    quotient = w.emit(f"fmul float {mantissas[0]}, {_unary('rcp')(w, mantissas[1:])}")
    return w.call("llvm.ldexp.f32.i32", "float", [("float", quotient), ("i32", w.emit(f"sub i32 {exponents[0]}, {exponents[1]}"))])


def _log(w: FunctionWriter, operands: list[str]) -> str:
    """log2 x times ln 2; LLVM scales subnormal operands, which the instruction takes for zeros."""
    return w.emit(f"fmul float {w.intrinsic('llvm.log2', 'float', [('float', operands[0])])}, {float_constant('float', math.log(2))}")


def _by_reciprocal(w: FunctionWriter, operands: list[str]) -> str:
    return w.emit(f"fmul float {operands[0]}, {_unary('rcp')(w, operands[1:])}")


#: name -> the machine's f32 function, where ``math`` is relaxed. Each instruction has 1 ULP; exp adds 1.173 |x| by the rounding of its product; a quotient has
#: 2.5, a logarithm 3.1: the rounding of its product beside. Results below the normal numbers may be zero.
RELAXED: dict[str, Emitter] = {"exp2": _unary("exp2"), "exp": _exp, "log": _log, "rsqrt": _unary("rsq"), "div": _divide}
#: name -> the machine's f32 function, where the operation says ``approximate``: 2.5 ULP.
APPROXIMATE: dict[str, Emitter] = {"div": _divide, "sqrt": _unary("sqrt")}
#: name -> the machine's f32 function, where ``math`` is relaxed and the operation says ``fast``: 2.5 ULP where the reciprocal is a normal number.
FAST: dict[str, Emitter] = {"div": _by_reciprocal}


#: Operations on bf16 numbers that f32 arithmetic computes: what it rounds to has more than twice the bits, and is rounded again as if it were exact.
_ROUNDED_ONCE: Final = frozenset({"add", "sub", "mul"})
#: Types of which sums with +0 are not left to the code generator.
_BESIDE_ZERO: Final = frozenset({F16, BF16, F32, F64})


def _beside_zero(name: str, operands: list[str], element: Type) -> tuple[str, bool] | None:
    """Of a sum of +0 and a number, which may be negated: the number, and whether it is. None for anything else.

    The code generator makes 0 - x of such sums where the number is -x, and takes that for -x, also where x is a zero.
    """
    zero, minus_zero, one, minus_one = (constant(element, value) for value in (0.0, -0.0, 1.0, -1.0))
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
    """0 + x, or 0 - x if it is ``negated``."""
    type_, zero = register_type(element), constant(element, 0.0)
    if element is BF16:  # in registers for integers
        is_zero = w.emit(f"icmp eq i16 {w.emit(f'and i16 {number}, 32767')}, 0")
        other = w.emit(f"xor i16 {number}, -32768") if negated else number
    else:
        is_zero = w.emit(f"fcmp oeq {type_} {number}, {zero}")
        other = w.emit(f"fneg {type_} {number}") if negated else number
    return w.emit(f"select i1 {is_zero}, {type_} {zero}, {type_} {other}")


def _fma_in_single(w: FunctionWriter, row: Architecture, operands: list[str]) -> str:
    """``a * b + c`` of bf16 numbers, rounded to f32 and then to bf16.

    The result differs from the one that is rounded once where f32 rounds to the middle of two bf16 numbers: it is off by at most 0.5 + 2**-16 ULP. Rounding
    once takes f64 and the error of the sum, 24 instructions a number.
    """
    return computed_upper_half(w, row, w.intrinsic("llvm.fma", "float", [("float", single) for single in _singles(w, operands)]))


def _singles(w: FunctionWriter, operands: list[str]) -> list[str]:
    return [of_upper_half(w, w.emit(f"zext i16 {operand} to i32")) for operand in operands]


def element_operation(
    w: FunctionWriter, row: Architecture, relaxed: bool, name: str, operands: list[str], element: Type, attributes: Mapping[str, Any]
) -> str | None:
    """See :meth:`tilewright.simt.target.simt_target.SimtTarget.element_operation`."""
    if element is F32:
        if attributes.get("approximate") and name in APPROXIMATE:
            return APPROXIMATE[name](w, operands)
        if relaxed and attributes.get("fast") and name in FAST:
            return FAST[name](w, operands)
        if relaxed and name in RELAXED and not attributes.get("exact"):
            return RELAXED[name](w, operands)
    if element in _BESIDE_ZERO and (term := _beside_zero(name, operands, element)):
        return _sum_with_zero(w, *term, element)
    if relaxed and element is BF16 and name == "fma":
        return _fma_in_single(w, row, operands)
    if element is BF16 and name in _ROUNDED_ONCE:
        return computed_upper_half(w, row, w.emit(f"f{name} float {', '.join(_singles(w, operands))}"))
    if name == "rem" and isinstance(element, FloatType):
        return float_remainder(w, operands[0], operands[1], element)
    if element is F16:
        if name == "fma":
            return w.intrinsic("llvm.fma", "half", [("half", operand) for operand in operands])
        if name in ("min", "max"):
            propagates = attributes.get("nan") == "propagate"
            return w.intrinsic(f"llvm.{name}{'imum' if propagates else 'num'}", "half", [("half", operand) for operand in operands])
    return None
