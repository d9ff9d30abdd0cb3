"""Operations that work element by element: a row each, the C expression of one element of the
result.

In an expression ``{a}``, ``{b}``, ``{c}`` are the operands, ``{bits}`` is the first one's width,
``{unsigned}`` its C type without a sign, ``{f}`` the letter at the end of the name of its
functions.

What C leaves undefined is written as Tile IR defines it: a division by zero, a shift by too many
bits, a cast of a number that is out of range. Signed arithmetic wraps around because the compiler
is told so (``-fwrapv``).
"""

from __future__ import annotations

from tilewright.ir import Operation
from tilewright.ir.float_to_int import conversion_type, integer_of_nan
from tilewright.ir.types import (
    F64,
    I1,
    FloatType,
    IntType,
    PointerType,
    Type,
    bit_width,
    byte_size,
    element_type,
)
from tilewright_c.c_types import kept, kind, literal

#: operation -> the expression for each kind of the first operand; see ``c_types.kind``
EXPRESSIONS: dict[str, dict[str, str]] = {
    "add": {"iuf": "{a} + {b}"},
    "sub": {"iuf": "{a} - {b}"},
    "mul": {"iuf": "{a} * {b}"},
    "div": {
        "i": "{b} == 0 ? {a} : {b} == -1 ? -({unsigned}){a} : {a} / {b}",
        "u": "{b} == 0 ? {a} : {a} / {b}",
        "f": "{a} / {b}",
    },
    "rem": {
        "i": "{b} == 0 || {b} == -1 ? 0 : {a} % {b}",
        "u": "{b} == 0 ? 0 : {a} % {b}",
        "f": "fmod{f}({a}, {b})",
    },
    "and": {"iu": "{a} & {b}"},
    "or": {"iu": "{a} | {b}"},
    "xor": {"iu": "{a} ^ {b}"},
    "shl": {"iu": "({unsigned}){b} < {bits} ? ({unsigned}){a} << {b} : 0"},
    "shr": {
        "i": "({unsigned}){b} < {bits} ? {a} >> {b} : -({a} < 0)",
        "u": "({unsigned}){b} < {bits} ? {a} >> {b} : 0",
    },
    "fma": {"f": "fma{f}({a}, {b}, {c})"},
    "sqrt": {"f": "sqrt{f}({a})"},
    "cmp": {"iufp": "{a} {predicate} {b}"},
    "select": {"u": "{a} ? {b} : {c}"},
    "addptr": {"p": "{a} + (int64_t){b} * {size}"},
}

_PREDICATES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def elementwise(operation: Operation, read: list[str]) -> str:
    """One element of the result; ``read`` has the operands' elements."""
    first = element_type(operation.operands[0].type)
    if operation.name == "cast":
        return cast(
            read[0],
            first,
            element_type(operation.result.type),
            operation.attribute("rounding") == "rtz",
        )
    fields = dict(zip("abc", read, strict=False)) | {"f": "" if first is F64 else "f"}
    if isinstance(first, PointerType):
        fields["size"] = str(byte_size(first.pointee))
    else:
        fields |= {"bits": str(bit_width(first)), "unsigned": f"uint{max(8, bit_width(first))}_t"}
    if operation.name == "cmp":
        fields["predicate"] = _PREDICATES[operation.attribute("predicate")]
    return next(
        expression
        for kinds, expression in EXPRESSIONS[operation.name].items()
        if kind(first) in kinds
    ).format(**fields)


def cast(text: str, source: Type, result: Type, toward_zero: bool) -> str:
    """A value of one number type as one of another."""
    if result is I1:
        return f"{text} != 0"
    if isinstance(result, IntType) and isinstance(source, FloatType):
        saturated = conversion_type(result)
        nan = literal(integer_of_nan(source, saturated), saturated)
        return f"({kept(result)})truncate_{saturated}({text}, {nan})"
    return f"to_{result}_toward_zero({text})" if toward_zero else f"({kept(result)}){text}"
