"""Elementwise operations on LLVM scalars and vectors: one emitter an operation.

An emitter takes the operands in register form, all of one width (0 for scalars), and returns the
name of the result.
"""

from __future__ import annotations

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation
from tilewright.ir.types import F32, I32, I64, FloatType, PointerType, Type, element_type
from tilewright.llvm.emission.casts import emit_bitcast, emit_cast
from tilewright.llvm.emission.element_arithmetic import (
    absolute,
    binary_arithmetic,
    compare,
    divide,
    extreme,
    fused_multiply_add,
    multiply_high,
    negate,
    remainder,
    shift,
)
from tilewright.llvm.emission.element_context import ElementContext, Emitter
from tilewright.llvm.emission.registers import constant, storage_type, vector_type
from tilewright.llvm.emission.scalar_regions import run_function
from tilewright.llvm.emission.writer import vector


def emit_operation(
    context: ElementContext, operation: Operation, operands: list[str], width: int
) -> str:
    """The result of an elementwise operation on operands of ``width`` lanes."""
    emitter = EMITTERS.get(operation.name)
    if emitter is None:
        raise LoweringError(
            f"operation {operation.name} is not known elementwise, at {operation.location}"
        )
    element = element_type(operation.results[0].type)
    own = context.machine_operation(operation.name, operands, width, element, operation.attributes)
    return own if own is not None else emitter(context, operation, operands, width, element)


def _bitwise(name: str) -> Emitter:
    def emit(
        context: ElementContext,
        operation: Operation,
        operands: list[str],
        width: int,
        element: Type,
    ) -> str:
        return context.writer.emit(
            f"{name} {vector_type(element, width)} {operands[0]}, {operands[1]}"
        )

    return emit


def _extreme(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    return extreme(
        context,
        operation.name,
        operands[0],
        operands[1],
        width,
        element,
        operation.attribute("nan"),
    )


def _compare(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    return compare(
        context,
        operation.attribute("predicate"),
        operands[0],
        operands[1],
        width,
        element_type(operation.operands[0].type),
    )


def _select(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    type_ = vector_type(element, width)
    return context.writer.emit(
        f"select {vector('i1', width)} {operands[0]}, {type_} {operands[1]}, {type_} {operands[2]}"
    )


def _cast(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    return emit_cast(
        context,
        operands[0],
        element_type(operation.operands[0].type),
        element,
        width,
        operation.attribute("rounding"),
    )


def _bitcast(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    return emit_bitcast(
        context, operands[0], element_type(operation.operands[0].type), element, width
    )


def _move_pointer(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    return move_pointer(
        context,
        operands[0],
        width,
        operands[1],
        width,
        element_type(operation.operands[1].type),
        element,
    )


def move_pointer(
    context: ElementContext,
    pointer: str,
    pointer_width: int,
    offset: str,
    width: int,
    offset_type: Type,
    element: Type,
) -> str:
    """Compute ``pointer + offset`` in elements.

    A scalar pointer may meet a vector of offsets: a gather then has it as its base register.
    """
    assert isinstance(element, PointerType)
    offset = emit_cast(context, offset, offset_type, I64, width)
    return context.writer.emit(
        f"getelementptr {storage_type(element.pointee)}, {vector('ptr', pointer_width)} {pointer}, "
        f"{vector('i64', width)} {offset}"
    )


def _library(name: str) -> Emitter:
    def emit(
        context: ElementContext,
        operation: Operation,
        operands: list[str],
        width: int,
        element: Type,
    ) -> str:
        return library_function(context, name, operands, width, element)

    return emit


def library_function(
    context: ElementContext, name: str, operands: list[str], width: int, element: Type
) -> str:
    """A mathematical function of the shared library, on chunks."""
    from tilewright.llvm.emission.guarded_math import call_guarded
    from tilewright.passes.math.math_library import MATH, math_function

    assert isinstance(element, FloatType)
    row = MATH.get((name, element))
    if row is not None and row.fast_limit is not None:
        return call_guarded(context, name, operands[0], width, element, row.fast_limit)
    function = math_function(
        name,
        element,
        native_ldexp=context.native_ldexp,
        native_exp=context.native_exp and element is F32,
    )
    if function is None:
        raise LoweringError(f"there is no {name} of {element}")
    return run_function(context, function, operands, width)


def _intrinsic(name: str) -> Emitter:
    def emit(
        context: ElementContext,
        operation: Operation,
        operands: list[str],
        width: int,
        element: Type,
    ) -> str:
        type_ = vector_type(element, width)
        return context.writer.intrinsic(name, type_, [(type_, operand) for operand in operands])

    return emit


def _rsqrt(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    type_ = vector_type(element, width)
    root = context.writer.intrinsic("llvm.sqrt", type_, [(type_, operands[0])])
    return context.writer.emit(f"fdiv {type_} {constant(element, 1.0, width)}, {root}")


def _ldexp(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    from tilewright.passes.math.math_library import math_function

    if not context.native_ldexp:
        assert isinstance(element, FloatType)
        return run_function(context, math_function("ldexp", element), operands, width)
    type_, exponent = vector_type(element, width), vector_type(I32, width)
    return context.writer.intrinsic(
        "llvm.ldexp", type_, [(type_, operands[0]), (exponent, operands[1])], [type_, exponent]
    )


def _count_leading_zeros(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    type_ = vector_type(element, width)
    return context.writer.intrinsic("llvm.ctlz", type_, [(type_, operands[0]), ("i1", "false")])


def _hint(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    return operands[0]


EMITTERS: dict[str, Emitter] = {
    "add": binary_arithmetic("add", "fadd"),
    "sub": binary_arithmetic("sub", "fsub"),
    "mul": binary_arithmetic("mul", "fmul"),
    "div": divide,
    "rem": remainder,
    "neg": negate,
    "abs": absolute,
    "and": _bitwise("and"),
    "or": _bitwise("or"),
    "xor": _bitwise("xor"),
    "shl": shift,
    "shr": shift,
    "mulhi": multiply_high,
    "min": _extreme,
    "max": _extreme,
    "cmp": _compare,
    "select": _select,
    "fma": fused_multiply_add,
    "cast": _cast,
    "bitcast": _bitcast,
    "addptr": _move_pointer,
    **{
        name: _library(name) for name in ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf")
    },
    "sqrt": _intrinsic("llvm.sqrt"),
    "rsqrt": _rsqrt,
    "floor": _intrinsic("llvm.floor"),
    "ceil": _intrinsic("llvm.ceil"),
    "round_even": _intrinsic("llvm.roundeven"),
    "trunc": _intrinsic("llvm.trunc"),
    "copysign": _intrinsic("llvm.copysign"),
    "ldexp": _ldexp,
    "clz": _count_leading_zeros,
    "popcount": _intrinsic("llvm.ctpop"),
    "hint": _hint,
}
