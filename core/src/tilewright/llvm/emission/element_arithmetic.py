"""Emitters of arithmetic and comparisons on LLVM scalars and vectors.

Formats that LLVM does not compute in as we need it (bf16, fp8, and fused operations of f16) are
widened, computed and rounded back.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Operation
from tilewright.ir.types import BF16, F16, F32, F64, I1, I64, FloatType, IntType, Type
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.element_context import ElementContext, Emitter
from tilewright.llvm.emission.registers import constant, register_type, vector_type
from tilewright.llvm.emission.writer import vector


def compute_type(element: Type) -> Type:
    """The type that arithmetic on ``element`` is done in."""
    if isinstance(element, FloatType) and (element is BF16 or element.is_fp8):
        return F32
    return element


def widened(
    context: ElementContext,
    operands: list[str],
    element: Type,
    width: int,
    compute: Callable[[list[str], str, Type], str],
    through: Type | None = None,
) -> str:
    """Run ``compute(operands, LLVM type, element)`` in a type that can, and convert back."""
    inner = through or compute_type(element)
    if inner is element:
        return compute(operands, vector_type(element, width), element)
    wide = [emit_cast(context, operand, element, inner, width) for operand in operands]
    return emit_cast(
        context, compute(wide, vector_type(inner, width), inner), inner, element, width
    )


def binary_arithmetic(int_op: str, float_op: str) -> Emitter:
    def emit(
        context: ElementContext,
        operation: Operation,
        operands: list[str],
        width: int,
        element: Type,
    ) -> str:
        if isinstance(element, IntType):
            return context.writer.emit(
                f"{int_op} {vector_type(element, width)} {operands[0]}, {operands[1]}"
            )
        return widened(
            context,
            operands,
            element,
            width,
            lambda ops, type_, _: context.writer.emit(
                f"{float_op}{context.contract} {type_} {ops[0]}, {ops[1]}"
            ),
        )

    return emit


def shift(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    """Emit a shift whose amount may exceed the width: all bits but the sign are shifted out.

    Targets whose own shifts do that need no further instruction, for LLVM matches this form.
    """
    assert isinstance(element, IntType)
    w, type_, (a, b) = context.writer, vector_type(element, width), operands
    if element is I1:
        kept = w.emit(f"xor {type_} {b}, {constant(I1, True, width)}")
        return w.emit(f"and {type_} {a}, {kept}")
    how = "shl" if operation.name == "shl" else "ashr" if element.signed else "lshr"
    known = _constant_operand(b)
    if known is not None and 0 <= known < element.bits:
        return w.emit(f"{how} {type_} {a}, {b}")
    if how == "ashr":
        most = constant(element, element.bits - 1, width)
        bounded = w.intrinsic("llvm.umin", type_, [(type_, b), (type_, most)])
        return w.emit(f"ashr {type_} {a}, {bounded}")
    inside = w.emit(f"icmp ult {type_} {b}, {constant(element, element.bits, width)}")
    shifted = w.emit(f"{how} {type_} {a}, {b}")
    return w.emit(
        f"select {vector('i1', width)} {inside}, {type_} {shifted}, {type_} "
        f"{constant(element, 0, width)}"
    )


def _is_constant(operand: str) -> bool:
    return not operand.startswith("%")


def _constant_operand(operand: str) -> int | None:
    text = operand
    if text.startswith("splat ("):
        text = text[:-1].rsplit(" ", 1)[1]
    try:
        return int(text)
    except ValueError:
        return None


def guarded_divisor(context: ElementContext, a: str, b: str, width: int, element: IntType) -> str:
    """Return ``b``, or 1 where dividing by ``b`` would trap: for 0, and -1 under the minimum.

    The quotient of the most negative integer by -1 wraps around to itself.
    """
    known = _constant_operand(b)
    if known not in (None, 0, -1):
        return b
    writer, type_, mask = context.writer, vector_type(element, width), vector("i1", width)
    bad = writer.emit(f"icmp eq {type_} {b}, {constant(element, 0, width)}")
    if element.signed:
        lowest = writer.emit(f"icmp eq {type_} {a}, {constant(element, element.minimum, width)}")
        minus = writer.emit(f"icmp eq {type_} {b}, {constant(element, -1, width)}")
        overflow = writer.emit(f"and {mask} {lowest}, {minus}")
        bad = writer.emit(f"or {mask} {bad}, {overflow}")
    return writer.emit(f"select {mask} {bad}, {type_} {constant(element, 1, width)}, {type_} {b}")


def int_divide(context: ElementContext, a: str, b: str, width: int, element: IntType) -> str:
    """The quotient truncated towards zero.

    Vectors of up to 32 bits are divided as doubles: both operands are exact there, and a quotient
    that is no integer is further from the next one than rounding can move it.
    """
    writer, type_ = context.writer, vector_type(element, width)
    signed = "s" if element.signed else "u"
    b = guarded_divisor(context, a, b, width, element)
    if not width or element.bits == 64 or _is_constant(b):
        return writer.emit(f"{signed}div {type_} {a}, {b}")
    double = vector("double", width)
    x, y = (writer.emit(f"{signed}itofp {type_} {operand} to {double}") for operand in (a, b))
    quotient = writer.emit(f"fdiv {double} {x}, {y}")
    wide = vector("i32", width)
    result = writer.emit(f"fpto{signed}i {double} {quotient} to {wide}")
    return result if element.bits == 32 else writer.emit(f"trunc {wide} {result} to {type_}")


def divide(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    if isinstance(element, IntType):
        return int_divide(context, operands[0], operands[1], width, element)
    return widened(
        context,
        operands,
        element,
        width,
        lambda ops, type_, _: context.writer.emit(f"fdiv {type_} {ops[0]}, {ops[1]}"),
    )


def remainder(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    writer = context.writer
    if not isinstance(element, IntType):
        # LLVM widens half itself, and calls fmod an element: exact
        return widened(
            context,
            operands,
            element,
            width,
            lambda ops, type_, _: writer.emit(f"frem {type_} {ops[0]}, {ops[1]}"),
        )
    a, b = operands
    type_ = vector_type(element, width)
    b = guarded_divisor(context, a, b, width, element)
    if not width or element.bits == 64 or _is_constant(b):
        return writer.emit(f"{'s' if element.signed else 'u'}rem {type_} {a}, {b}")
    quotient = int_divide(context, a, b, width, element)
    multiple = writer.emit(f"mul {type_} {quotient}, {b}")
    return writer.emit(f"sub {type_} {a}, {multiple}")


def negate(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    writer, type_ = context.writer, vector_type(element, width)
    if isinstance(element, IntType):
        return writer.emit(f"sub {type_} {constant(element, 0, width)}, {operands[0]}")
    assert isinstance(element, FloatType)
    if register_type(element) in ("half", "float", "double"):
        return writer.emit(f"fneg {type_} {operands[0]}")
    if not element.has_negative_zero:
        # the encoding of -0 is the NaN: zero and NaN stay
        return widened(
            context,
            operands,
            element,
            width,
            lambda ops, inner, _: writer.emit(f"fneg {inner} {ops[0]}"),
        )
    return writer.emit(
        f"xor {type_} {operands[0]}, {_bits(element, 1 << (element.bits - 1), width)}"
    )


def _bits(element: FloatType, bits: int, width: int) -> str:
    type_ = register_type(element)
    return f"splat ({type_} {bits})" if width else str(bits)


def absolute(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    writer, type_ = context.writer, vector_type(element, width)
    if isinstance(element, IntType):
        return (
            writer.intrinsic("llvm.abs", type_, [(type_, operands[0]), ("i1", "false")])
            if element.signed
            else operands[0]
        )
    assert isinstance(element, FloatType)
    if register_type(element) in ("half", "float", "double"):
        return writer.intrinsic("llvm.fabs", type_, [(type_, operands[0])])
    if not element.has_negative_zero:
        return widened(
            context,
            operands,
            element,
            width,
            lambda ops, inner, _: writer.intrinsic("llvm.fabs", inner, [(inner, ops[0])]),
        )
    return writer.emit(
        f"and {type_} {operands[0]}, {_bits(element, (1 << (element.bits - 1)) - 1, width)}"
    )


def multiply_high(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    assert isinstance(element, IntType)
    writer, type_, wide = (
        context.writer,
        vector_type(element, width),
        vector(f"i{2 * element.bits}", width),
    )
    extend = "sext" if element.signed else "zext"
    a, b = (writer.emit(f"{extend} {type_} {operand} to {wide}") for operand in operands)
    doubled = writer.emit(f"mul {wide} {a}, {b}")
    shift = f"splat (i{2 * element.bits} {element.bits})" if width else str(element.bits)
    high = writer.emit(f"lshr {wide} {doubled}, {shift}")
    return writer.emit(f"trunc {wide} {high} to {type_}")


def extreme(
    context: ElementContext, name: str, a: str, b: str, width: int, element: Type, nan: str
) -> str:
    """``min`` or ``max`` with the NaN rule ``ignore`` or ``propagate``."""
    writer = context.writer
    if isinstance(element, IntType):
        type_ = vector_type(element, width)
        if element is I1:
            return writer.emit(f"{'and' if name == 'min' else 'or'} {type_} {a}, {b}")
        return writer.intrinsic(
            f"llvm.{'s' if element.signed else 'u'}{name}", type_, [(type_, a), (type_, b)]
        )
    intrinsic = f"llvm.{name}{'imum' if nan == 'propagate' else 'num'}"

    def compute(operands: list[str], type_: str, inner: Type) -> str:
        own = context.machine_operation(name, operands, width, inner, {"nan": nan})
        return (
            own
            if own is not None
            else writer.intrinsic(intrinsic, type_, [(type_, operand) for operand in operands])
        )

    return widened(context, [a, b], element, width, compute, F32 if element is F16 else None)


_INT_PREDICATES = {
    "eq": ("eq", "eq"),
    "ne": ("ne", "ne"),
    "lt": ("slt", "ult"),
    "le": ("sle", "ule"),
    "gt": ("sgt", "ugt"),
    "ge": ("sge", "uge"),
}
_FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def compare(
    context: ElementContext, predicate: str, a: str, b: str, width: int, element: Type
) -> str:
    """An i1 (or a vector of them)."""
    writer = context.writer
    if isinstance(element, FloatType):
        inner = compute_type(element)
        if inner is not element:
            a, b = (emit_cast(context, operand, element, inner, width) for operand in (a, b))
        return writer.emit(
            f"fcmp {_FLOAT_PREDICATES[predicate]} {vector_type(inner, width)} {a}, {b}"
        )
    unsigned = not (isinstance(element, IntType) and element.signed)
    return writer.emit(
        f"icmp {_INT_PREDICATES[predicate][unsigned]} {vector_type(element, width)} {a}, {b}"
    )


def fused_multiply_add(
    context: ElementContext, operation: Operation, operands: list[str], width: int, element: Type
) -> str:
    def compute(ops: list[str], type_: str, _: Type) -> str:
        if element is BF16:
            return _multiply_add_to_odd(context, ops, type_, width)
        return context.writer.intrinsic("llvm.fma", type_, [(type_, operand) for operand in ops])

    # a multiplication of two narrow numbers is exact in f64
    return widened(
        context,
        operands,
        element,
        width,
        compute,
        F64 if isinstance(element, FloatType) and element.bits < 32 else None,
    )


def _multiply_add_to_odd(
    context: ElementContext, operands: list[str], type_: str, width: int
) -> str:
    """Compute ``a * b + c`` of bf16 numbers in f64, rounded to odd.

    The last bit is set where the result is not exact, so that the rounding to bf16 is the only one.

    bf16 has the range of f32: a term far below the last bit of f64 may decide what looks like a tie
    of bf16 there (rounding to odd after Boldo and Melquiond, "Emulation of a FMA …", IEEE
    Transactions on Computers 57, 2008; the error of the sum after Knuth).
    """
    w, integer = context.writer, vector("i64", width)
    a, b, c = operands
    rounded = w.emit(f"fmul {type_} {a}, {b}")
    total = w.emit(f"fadd {type_} {rounded}, {c}")
    part = w.emit(f"fsub {type_} {total}, {rounded}")
    first = w.emit(f"fsub {type_} {rounded}, {w.emit(f'fsub {type_} {total}, {part}')}")
    error = w.emit(f"fadd {type_} {first}, {w.emit(f'fsub {type_} {c}, {part}')}")
    zero, none, one, back = (
        constant(F64, 0.0, width),
        constant(I64, 0, width),
        constant(I64, 1, width),
        constant(I64, -1, width),
    )
    bits = w.emit(f"bitcast {type_} {total} to {integer}")
    even = w.emit(f"icmp eq {integer} {w.emit(f'and {integer} {bits}, {one}')}, {none}")
    flags = vector("i1", width)
    moved = w.emit(f"and {flags} {even}, {w.emit(f'fcmp one {type_} {error}, {zero}')}")
    # of the two numbers around the exact one, the odd one lies on the error's side: away from zero
    # where the signs agree
    differ = w.emit(
        f"xor {flags} {w.emit(f'fcmp ogt {type_} {error}, {zero}')}, "
        f"{w.emit(f'fcmp ogt {type_} {total}, {zero}')}"
    )
    step = w.emit(f"select {flags} {differ}, {integer} {back}, {integer} {one}")
    odd = w.emit(
        f"select {flags} {moved}, {integer} {w.emit(f'add {integer} {bits}, {step}')}, "
        f"{integer} {bits}"
    )
    return w.emit(f"bitcast {integer} {odd} to {type_}")
