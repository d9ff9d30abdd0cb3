"""Expressions of a command line: numbers, names, arithmetic, comparisons, and calls.

They have Python's syntax, and nothing else of Python.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

#: Bits of the largest integer that there may be.
_BITS: Final = 4096
_BINARY: Final[dict[type[ast.AST], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNARY: Final[dict[type[ast.AST], Callable[[Any], Any]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}


def evaluate(
    text: str, names: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    """Evaluate an expression to a number, a truth value, None, or a tuple of those.

    A name alone has whatever value it stands for.

    Raises:
        SyntaxError: it is none, or has what these expressions do not.
        NameError: it has a name that means nothing.
        ArithmeticError, TypeError, ValueError: it has no value.
    """
    return _value(ast.parse(text.strip(), mode="eval").body, names, functions)


def _value(
    node: ast.expr, names: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    def value(inner: ast.expr) -> Any:
        return _value(inner, names, functions)

    match node:
        case ast.Constant(value=int() | float() | None as constant):
            return constant
        case ast.Name(id=name):
            if name not in names:
                raise NameError(f"{name!r} is not known")
            return names[name]
        case ast.Tuple(elts=items):
            return tuple(map(value, items))
        case ast.UnaryOp(op=op, operand=operand):
            return _UNARY[type(op)](_number(value(operand)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _combined(op, _number(value(left)), _number(value(right)))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _BINARY:
            return _BINARY[type(op)](_number(value(left)), _number(value(right)))
        case ast.IfExp(test=test, body=body, orelse=other):
            return value(body if value(test) else other)
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in functions:
            return functions[name](*(_number(value(argument)) for argument in given))
    raise SyntaxError(
        f"{ast.unparse(node)!r} is not allowed: there are numbers, names, arithmetic, and "
        f"{', '.join(functions)}"
    )


def _number(value: Any) -> int | float:
    """Check that a value is a number; objects with operators of their own are not."""
    if not isinstance(value, int | float):
        raise TypeError(f"{type(value).__name__} is no number")
    return value


def _combined(op: ast.operator, left: int | float, right: int | float) -> Any:
    """The value of an operator, unless the number would be too large to be made."""
    if isinstance(left, int) and isinstance(right, int):
        bits = max(1, left.bit_length())
        if isinstance(op, ast.Pow) and right > 0:
            bits *= right
        elif isinstance(op, ast.LShift) and right > 0:
            bits += right
        elif isinstance(op, ast.Mult):
            bits += right.bit_length()
        if bits > _BITS:
            raise OverflowError(f"a number of more than {_BITS} bits")
    found = _BINARY[type(op)](left, right)
    if isinstance(found, complex):
        raise ArithmeticError("a power that is no real number")
    return found
