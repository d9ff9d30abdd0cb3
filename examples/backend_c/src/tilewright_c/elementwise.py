"""Operations that work element by element: a row each, the C expression of one element of the result.

In an expression ``{a}``, ``{b}``, ``{c}`` are the operands as numbers, ``{x}``, ``{y}``, ``{z}`` the same as they are kept, ``{bits}`` is the operand's width,
``{unsigned}`` is its C type without a sign, and ``{f}`` is the letter at the end of the name of a function of ``float``.

What C leaves undefined is defined here, so that no kernel ends the process: dividing by zero gives zero, and shifts take the low bits of the count. Signed
arithmetic wraps around because the compiler is told so (``-fwrapv``).
"""

from __future__ import annotations

from tilewright.errors import LoweringError
from tilewright.ir import Operation
from tilewright.ir.types import F64, I1, FloatType, IntType, PointerType, Type, bit_width, byte_size, element_type
from tilewright_c.c_types import RAW, bits, kept, kind, literal, number

#: operation -> (kinds of the first operand, expression) of each row; see ``c_types.kind``
EXPRESSIONS: dict[str, dict[str, str]] = {
    "add": {"iuf": "{a} + {b}"},
    "sub": {"iuf": "{a} - {b}"},
    "mul": {"iuf": "{a} * {b}"},
    "div": {"i": "{b} == 0 ? 0 : {b} == -1 ? -{a} : {a} / {b}", "u": "{b} == 0 ? 0 : {a} / {b}", "f": "{a} / {b}"},
    "rem": {"i": "{b} == 0 || {b} == -1 ? 0 : {a} % {b}", "u": "{b} == 0 ? 0 : {a} % {b}", "f": "fmod{f}({a}, {b})"},
    "neg": {"iuf": "-{a}"},
    "abs": {"i": "{a} < 0 ? -{a} : {a}", "u": "{a}", "f": "fabs{f}({a})"},
    "and": {"iu": "{a} & {b}"},
    "or": {"iu": "{a} | {b}"},
    "xor": {"iu": "{a} ^ {b}"},
    "shl": {"iu": "({unsigned}){a} << ({b} & {bits} - 1)"},
    "shr": {"iu": "{a} >> ({b} & {bits} - 1)"},
    "mulhi": {"i": "(__int128){a} * {b} >> {bits}", "u": "(unsigned __int128){a} * {b} >> {bits}"},
    "clz": {"iu": "{a} ? __builtin_clzll(({unsigned}){a}) - 64 + {bits} : {bits}"},
    "popcount": {"iu": "__builtin_popcountll(({unsigned}){a})"},
    "min": {"iu": "{a} < {b} ? {a} : {b}", "f": "{nan} != {nan} || {a} < {b} ? {a} : {b}"},
    "max": {"iu": "{a} > {b} ? {a} : {b}", "f": "{nan} != {nan} || {a} > {b} ? {a} : {b}"},
    "cmp": {"iufp": "{a} {predicate} {b}"},
    "floor": {"f": "floor{f}({a})"},
    "ceil": {"f": "ceil{f}({a})"},
    "round_even": {"f": "rint{f}({a})"},
    "trunc": {"f": "trunc{f}({a})"},
    "copysign": {"f": "copysign{f}({a}, {b})"},
    "sqrt": {"f": "sqrt{f}({a})"},
    "rsqrt": {"f": "1 / sqrt({a})"},
    "ldexp": {"f": "ldexp{f}({a}, {b})"},
    **{name: {"f": name + "({a})"} for name in ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf")},
}

#: Results that are kept values as they are, not numbers to be rounded.
KEPT_EXPRESSIONS: dict[str, str] = {"select": "{x} ? {y} : {z}", "addptr": "{x} + (int64_t){y} * {stride}"}

_PREDICATES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED = {1: "_Bool", 8: "uint8_t", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}


def elementwise(operation: Operation, read: list[str]) -> str:
    """One element of the result, as it is kept. ``read`` has the operands' elements, as they are kept.

    Raises:
        LoweringError: there is no row for the operation and its type.
    """
    name, result = operation.name, element_type(operation.result.type)
    match name:
        case "constant":
            return literal(operation.attribute("value"), result)
        case "cast":
            return cast(read[0], element_type(operation.operands[0].type), result, operation.attribute("rounding") == "rtz")
        case "fma":
            operands = ", ".join(number(text, result) for text in read)
            return bits(f"odd_fma({operands})", result) if str(result) in RAW else f"fma{_suffix(result)}({operands})"
    first = element_type(operation.operands[0].type)
    fields = dict(zip("xyz", read, strict=False))
    fields |= dict(zip("abc", (number(text, value.type) for text, value in zip(read, operation.operands, strict=True)), strict=False))
    if name in KEPT_EXPRESSIONS:
        stride = byte_size(first.pointee) if isinstance(first, PointerType) else 0
        return KEPT_EXPRESSIONS[name].format(**fields, stride=stride)
    for kinds, expression in EXPRESSIONS.get(name, {}).items():
        if kind(first) in kinds:
            fields |= {"bits": str(bit_width(first)), "unsigned": _UNSIGNED[bit_width(first)], "f": _suffix(first)}
            if name in ("min", "max"):  # the operand that is given up where it is NaN, or the one that wins
                fields["nan"] = fields["a" if operation.attribute("nan") == "propagate" else "b"]
            if name == "cmp":
                fields["predicate"] = _PREDICATES[operation.attribute("predicate")]
            return bits(expression.format(**fields), result)
    raise LoweringError(f"the C backend does not lower {name} of {first} (at {operation.location}); run this kernel on another backend")


def cast(text: str, source: Type, result: Type, toward_zero: bool) -> str:
    """A kept value of one number type as one of another."""
    if source is result:
        return text
    value = number(text, source)
    if result is I1:
        return f"{value} != 0"
    if isinstance(result, IntType):
        return f"truncate_{result}({value})" if isinstance(source, FloatType) else f"({kept(result)}){value}"
    if isinstance(source, IntType) and source.bits == 64 and str(result) in RAW:
        value = f"odd_{source}({value})"
    if toward_zero:
        return f"to_{result}_toward_zero({value})"
    return bits(f"({kept(result)}){value}" if str(result) not in RAW else value, result)


def _suffix(type_: Type) -> str:
    return "" if type_ is F64 else "f"
