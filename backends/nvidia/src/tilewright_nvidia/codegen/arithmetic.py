"""Elementwise operations through PTX instructions, within the allowed error.

With the option ``math`` at ``relaxed``, a function may have the error given in the column
``relaxed_ulp`` of :data:`tilewright.passes.math.math_library.MATH`. With ``strict``, the backend
uses the shared expansions wherever the target's instruction is less accurate.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir.types import BF16, F16, F32, FloatType, IntType, Type
from tilewright.llvm.emission.float_remainder import float_remainder
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_nvidia.codegen.inline_ptx import call_asm

Emitter = Callable[[FunctionWriter, list[str]], str]


def _wide_shift(w: FunctionWriter, name: str, operands: list[str], element: IntType) -> str:
    """Shift a 64-bit integer by a 32-bit amount, clamped first.

    PTX clamps amounts beyond the width, but LLVM would drop the amount's upper half.
    """
    bounded = w.intrinsic("llvm.umin", "i64", [("i64", operands[1]), ("i64", "64")])
    amount = w.emit(f"trunc i64 {bounded} to i32")
    text = "shl.b64" if name == "shl" else "shr.s64" if element.signed else "shr.u64"
    return call_asm(
        w, f"{text} $0, $1, $2;", ["i64"], [("i64", operands[0]), ("i32", amount)], effects=False
    )[0]


def _unary(text: str) -> Emitter:
    def emit(w: FunctionWriter, operands: list[str]) -> str:
        return call_asm(w, f"{text} $0, $1;", ["float"], [("float", operands[0])], effects=False)[0]

    return emit


def _exp(w: FunctionWriter, operands: list[str]) -> str:
    """Compute 2**(x * log2 e); rounding the factor costs accuracy in proportion to x."""
    log2e = struct.unpack("<I", struct.pack("<f", 1.4426950408889634))[0]
    product = call_asm(
        w, f"mul.f32 $0, $1, 0f{log2e:08X};", ["float"], [("float", operands[0])], effects=False
    )
    return _unary("ex2.approx.ftz.f32")(w, product)


def _binary(text: str) -> Emitter:
    def emit(w: FunctionWriter, operands: list[str]) -> str:
        return call_asm(
            w,
            f"{text} $0, $1, $2;",
            ["float"],
            [("float", name) for name in operands],
            effects=False,
        )[0]

    return emit


_divide = _binary("div.full.f32")


#: Name -> f32 PTX function for ``math`` relaxed. By the PTX ISA their relative errors are 2**-22.5
#: (ex2: 2.9 ULP) and 2**-22.9 (rsqrt: 2.2 ULP). The division has 2 ULP (0 for divisors from 2**126
#: on). exp has 2.9 + 1.173 |x|, since it rounds the factor x * log2 e.
RELAXED: dict[str, Emitter] = {
    "exp2": _unary("ex2.approx.ftz.f32"),
    "exp": _exp,
    "rsqrt": _unary("rsqrt.approx.f32"),
    "div": _divide,
}
#: Name -> f32 PTX function for operations marked ``approximate``: 2 ULP.
APPROXIMATE: dict[str, Emitter] = {"div": _divide, "sqrt": _unary("sqrt.approx.f32")}
#: Name -> f32 PTX function for ``math`` relaxed and operations marked ``fast``: 2 ULP for divisors
#: from 2**-126 to 2**126, 0 beyond.
FAST: dict[str, Emitter] = {"div": _binary("div.approx.f32")}


def element_operation(
    w: FunctionWriter,
    capability: int,
    relaxed: bool,
    name: str,
    operands: list[str],
    element: Type,
    attributes: Mapping[str, Any],
) -> str | None:
    """See :meth:`tilewright.simt.target.capabilities.arithmetic.Arithmetic.operation`."""
    if element is F32:
        if attributes.get("approximate") and name in APPROXIMATE:
            return APPROXIMATE[name](w, operands)
        if relaxed and attributes.get("fast") and name in FAST:
            return FAST[name](w, operands)
        if relaxed and name in RELAXED and not attributes.get("exact"):
            return RELAXED[name](w, operands)
    if name == "rem" and isinstance(element, FloatType):
        return float_remainder(w, operands[0], operands[1], element)
    if (
        name in ("shl", "shr")
        and isinstance(element, IntType)
        and element.bits == 64
        and operands[1].startswith("%")
    ):
        return _wide_shift(w, name, operands, element)
    if name == "fma":
        return _fused(w, capability, operands, element)
    if name in ("min", "max"):
        return _extreme(
            w, capability, name, operands, element, attributes.get("nan") == "propagate"
        )
    return None


def _fused(w: FunctionWriter, capability: int, operands: list[str], element: Type) -> str | None:
    if element is F16:
        return w.intrinsic("llvm.fma", "half", [("half", name) for name in operands])
    if element is BF16 and capability >= 80:
        return call_asm(
            w,
            "fma.rn.bf16 $0, $1, $2, $3;",
            ["i16"],
            [("i16", name) for name in operands],
            effects=False,
        )[0]
    return None


def _extreme(
    w: FunctionWriter,
    capability: int,
    name: str,
    operands: list[str],
    element: Type,
    propagate: bool,
) -> str | None:
    if capability < 80 or element not in (F16, BF16):
        return None
    if element is F16:
        return w.intrinsic(
            f"llvm.{name}{'imum' if propagate else 'num'}",
            "half",
            [("half", operand) for operand in operands],
        )
    suffix = ".NaN" if propagate else ""
    return call_asm(
        w,
        f"{name}{suffix}.bf16 $0, $1, $2;",
        ["i16"],
        [("i16", operand) for operand in operands],
        effects=False,
    )[0]
