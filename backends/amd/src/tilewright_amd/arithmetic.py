"""Elementwise operations that the machine computes itself, within the error that the operation allows.

With the option ``math`` at ``relaxed`` a function may have the error of the column ``relaxed_ulp`` of :data:`tilewright.passes.math_library.MATH`; with
``strict`` the shared functions are used wherever the machine's are not as good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir.types import F16, F32, F64, FloatType, Type
from tilewright.llvm.remainder import float_remainder
from tilewright.llvm.writer import FunctionWriter, float_constant

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


#: name -> the machine's f32 function, where ``math`` is relaxed. Each instruction has 1 ULP; exp adds 1.173 |x| by the rounding of its product; a quotient has
#: 2.5. Results below the normal numbers may be zero.
RELAXED: dict[str, Emitter] = {"exp2": _unary("exp2"), "exp": _exp, "rsqrt": _unary("rsq"), "div": _divide}
#: name -> the machine's f32 function, where the operation says ``approximate``: 2.5 ULP.
APPROXIMATE: dict[str, Emitter] = {"div": _divide, "sqrt": _unary("sqrt")}


_TYPES: dict[Type, str] = {F16: "half", F32: "float", F64: "double"}


def element_operation(w: FunctionWriter, relaxed: bool, name: str, operands: list[str], element: Type, attributes: Mapping[str, Any]) -> str | None:
    """See :meth:`tilewright.simt.target.SimtTarget.element_operation`."""
    if element is F32:
        if attributes.get("approximate") and name in APPROXIMATE:
            return APPROXIMATE[name](w, operands)
        if relaxed and name in RELAXED and not attributes.get("exact"):
            return RELAXED[name](w, operands)
    if name == "sub" and (type_ := _TYPES.get(element)) and operands[0] == float_constant(type_, 0.0):
        # the code generator takes 0 - x for -x, also where x is a zero
        zero = w.emit(f"fcmp oeq {type_} {operands[1]}, {operands[0]}")
        return w.emit(f"select i1 {zero}, {type_} {operands[0]}, {type_} {w.emit(f'fneg {type_} {operands[1]}')}")
    if name == "rem" and isinstance(element, FloatType):
        return float_remainder(w, operands[0], operands[1], element)
    if element is F16:
        if name == "fma":
            return w.intrinsic("llvm.fma", "half", [("half", operand) for operand in operands])
        if name in ("min", "max"):
            propagates = attributes.get("nan") == "propagate"
            return w.intrinsic(f"llvm.{name}{'imum' if propagates else 'num'}", "half", [("half", operand) for operand in operands])
    return None
