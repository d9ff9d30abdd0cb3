"""Operators: arithmetic, comparisons, ``and``, ``or`` and ``not``.

Python evaluates those on values known at compile time; the others follow the language's rules.
"""

from __future__ import annotations

import ast
from types import ModuleType
from typing import Any

from tilewright.errors import with_help
from tilewright.frontend.errors import unsupported
from tilewright.frontend.generator import ModuleGenerator
from tilewright.frontend.python_builtins import items_of
from tilewright.frontend.values import describe, is_number, lift, unwrapped
from tilewright.language.core import base_value, constexpr, tensor
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.definitions.callable import JitCallable
from tilewright.language.value_types.values import BINARY_OPERATORS, COMPARISONS, UNARY_OPERATORS

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
}
_SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
} | {
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_UNARY_SYMBOLS = {"neg": "-", "pos": "+", "invert": "~", "not": "not"}
_UNARY: dict[type[ast.unaryop], str] = {
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Invert: "invert",
    ast.Not: "not",
}


def binary(g: ModuleGenerator, node: ast.BinOp) -> Any:
    """Evaluate ``left operator right``."""
    return operate(g, node, type(node.op), g.evaluate(node.left), g.evaluate(node.right))


def operate(
    g: ModuleGenerator, node: ast.AST, operator_type: type[ast.operator], lhs: Any, rhs: Any
) -> Any:
    """Evaluate ``lhs operator rhs``: in Python at compile time, else by the language's rules."""
    name = _BINARY.get(operator_type)
    if name is None:
        raise unsupported(g.frame, node, "the operator `@` is", "use tl.dot")
    if type(lhs) is constexpr and type(rhs) is constexpr:
        return lift(BINARY_OPERATORS[name](lhs.value, rhs.value))
    g.locate(node)
    if name == "pow":
        raise TypeError(
            with_help(
                f"** works on values known at compile time, not on {describe(lhs)} and "
                f"{describe(rhs)}",
                "multiply, or use tl.exp2 and tl.log2",
            )
        )
    _require_values(lhs, rhs, _SYMBOLS[name])
    return g.semantic.binary(name, lhs, rhs)


def _require_values(lhs: Any, rhs: Any, symbol: str) -> None:
    for side in (lhs, rhs):
        if isinstance(side, ModuleType | JitCallable):
            raise TypeError(f"{symbol} does not work on {describe(lhs)} and {describe(rhs)}")


def unary(g: ModuleGenerator, node: ast.UnaryOp) -> Any:
    """Evaluate a unary operator: ``-x``, ``+x``, ``~x`` or ``not x``."""
    value = g.evaluate(node.operand)
    name = _UNARY[type(node.op)]
    if type(value) is constexpr:
        return constexpr(UNARY_OPERATORS[name](value.value))
    g.locate(node)
    if isinstance(value, tl_tuple):
        remedy = "compare its length: `len(x) == 0`" if name == "not" else "apply it to each item"
        raise unsupported(
            g.frame, node, f"the operator `{_UNARY_SYMBOLS[name]}` of a tuple is", remedy
        )
    return g.semantic.unary(name, value)


def boolean(g: ModuleGenerator, node: ast.BoolOp) -> Any:
    """Evaluate ``and`` and ``or``.

    Operands are looked at in order. What is known at compile time and decides is the result, also
    after tensors; what does not decide drops out. Tensors are all evaluated, and combined.
    """
    name = "and" if isinstance(node.op, ast.And) else "or"
    decisive = name == "or"
    tensors: list[tensor] = []
    value: Any = None
    for operand in node.values:
        value = g.evaluate(operand)
        if isinstance(value, tensor):
            tensors.append(value)
        elif bool(value.value if type(value) is constexpr else value) is decisive:
            return value
    if not tensors:
        return value
    g.locate(node)
    result = tensors[0]
    for following in tensors[1:]:
        result = g.semantic.logical(name, result, following)
    return result


def compare(g: ModuleGenerator, node: ast.Compare) -> Any:
    """Evaluate a chain of comparisons, ``is`` and ``in`` included.

    The chain stops at the first comparison that is known to fail.
    """
    left = g.evaluate(node.left)
    result: Any = None
    for position, (op, comparator) in enumerate(zip(node.ops, node.comparators, strict=True)):
        right = g.evaluate(comparator)
        one = _compare_pair(g, node, op, left, right)
        if position == 0:
            result = one
        elif not isinstance(result, tensor) or (type(one) is constexpr and not one.value):
            # What came before holds, or the chain would have ended.
            result = one
        elif type(one) is not constexpr:
            result = g.semantic.and_(result, one)
        if type(result) is constexpr and not result.value:
            return result
        left = right
    return result


def _compare_pair(g: ModuleGenerator, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> Any:
    name = _COMPARE.get(type(op))
    if name is not None:
        if type(left) is constexpr and type(right) is constexpr:
            return constexpr(COMPARISONS[name](left.value, right.value))
        g.locate(node)
        if isinstance(left, tl_tuple) and isinstance(right, tl_tuple) and name in ("eq", "ne"):
            same = _same_items(g, left, right)
            return (
                same
                if name == "eq"
                else constexpr(not same.value)
                if type(same) is constexpr
                else g.semantic.unary("not", same)
            )
        return g.semantic.compare(name, left, right)
    if isinstance(op, ast.Is | ast.IsNot):
        same = unwrapped(left) is unwrapped(right)
        return constexpr(same if isinstance(op, ast.Is) else not same)
    if isinstance(left, tensor):
        raise TypeError(
            with_help(
                f"`in` works on values known at compile time, not on {describe(left)}",
                "compare with each and combine with `|`",
            )
        )
    items = [unwrapped(item) for item in items_of(right)]
    if any(isinstance(item, base_value) for item in items):
        raise TypeError(
            "`in` looks through values known at compile time, and some of these are computed "
            "at run time"
        )
    found = any(bool(unwrapped(left) == item) for item in items)
    return constexpr(found if isinstance(op, ast.In) else not found)


def _same_items(g: ModuleGenerator, left: tl_tuple, right: tl_tuple) -> Any:
    """Return whether two tuples have equal items, as a bool or an int1.

    The result is known at compile time where they differ in length or in constants.

    Raises:
        TypeError: an item is a block.
    """
    result: Any = constexpr(len(left) == len(right))
    for a, b in zip(left.values, right.values, strict=False):
        if a is b:
            continue
        if isinstance(a, tl_tuple) and isinstance(b, tl_tuple):
            one = _same_items(g, a, b)
        elif (isinstance(a, tensor) and (isinstance(b, tensor) or is_number(b))) or (
            isinstance(b, tensor) and is_number(a)
        ):
            for side in (a, b):
                if isinstance(side, tensor) and side.extents:
                    raise TypeError(
                        with_help(
                            f"== of tuples compares scalars, not {describe(side)}",
                            "compare the items one by one",
                        )
                    )
            one = g.semantic.compare("eq", a, b)
        else:
            one = constexpr(
                type(a) is constexpr and type(b) is constexpr and bool(a.value == b.value)
            )
        if type(one) is constexpr:
            if not one.value:
                return one
        else:
            result = (
                one
                if type(result) is constexpr and result.value
                else result
                if type(result) is constexpr
                else g.semantic.and_(result, one)
            )
    return result
