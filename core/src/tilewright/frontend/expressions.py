"""Expressions: constants, operators, comparisons, conditionals, attributes, subscripts, tuples, comprehensions, f-strings."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.errors import CompilationError, TilewrightError, helped, similar, with_help
from tilewright.frontend import remedies
from tilewright.frontend.branches import Branch, merge
from tilewright.frontend.calls import call
from tilewright.frontend.errors import located, unsupported
from tilewright.frontend.frame import NORMAL, Completion
from tilewright.frontend.python_builtins import items_of
from tilewright.frontend.values import describe, is_number, lift
from tilewright.language.callable import JitCallable
from tilewright.language.core import base_value, constexpr, tensor
from tilewright.language.core import slice as tl_slice
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.values import BINARY_OPERATORS, COMPARISONS, UNARY_OPERATORS

if TYPE_CHECKING:
    from tilewright.frontend.generator import Generator

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
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"} | {
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
_COMPARE: dict[type[ast.cmpop], str] = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_UNARY_SYMBOLS = {"neg": "-", "pos": "+", "invert": "~"}
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert", ast.Not: "not"}


def _constant(g: Generator, node: ast.Constant) -> Any:
    value = node.value
    if isinstance(value, complex | bytes):
        raise unsupported(g.frame, node, f"a constant of type {type(value).__name__} is")
    if value is ...:
        raise unsupported(g.frame, node, "`...` is", "write one `:` for each axis")
    return constexpr(value)


def _name(g: Generator, node: ast.Name) -> Any:
    return g.load_name(node, node.id)


# -- operators ----------------------------------------------------------------------------------------------------------------------------------------


def _binary(g: Generator, node: ast.BinOp) -> Any:
    return operate(g, node, type(node.op), g.evaluate(node.left), g.evaluate(node.right))


def operate(g: Generator, node: ast.AST, operator_type: type[ast.operator], lhs: Any, rhs: Any) -> Any:
    """``lhs operator rhs``: of compile-time values in Python, else by the language's rules."""
    name = _BINARY.get(operator_type)
    if name is None:
        raise unsupported(g.frame, node, "the operator `@` is", "use tl.dot")
    if type(lhs) is constexpr and type(rhs) is constexpr:
        return lift(BINARY_OPERATORS[name](lhs.value, rhs.value))
    g.locate(node)
    if name == "pow":
        raise TypeError(
            with_help(f"** works on values known at compile time, not on {describe(lhs)} and {describe(rhs)}", "multiply, or use tl.exp2 and tl.log2")
        )
    _require_values(lhs, rhs, _SYMBOLS[name])
    return g.semantic.binary(name, lhs, rhs)


def _require_values(lhs: Any, rhs: Any, symbol: str) -> None:
    for side in (lhs, rhs):
        if isinstance(side, ModuleType | JitCallable):
            raise TypeError(f"{symbol} does not work on {describe(lhs)} and {describe(rhs)}")


def _unary(g: Generator, node: ast.UnaryOp) -> Any:
    value = g.evaluate(node.operand)
    name = _UNARY[type(node.op)]
    if type(value) is constexpr:
        return constexpr(UNARY_OPERATORS[name](value.value))
    g.locate(node)
    if name == "not" and not isinstance(value, tensor) and isinstance(value, tl_tuple):
        return constexpr(len(value) == 0)
    if isinstance(value, tl_tuple):
        raise unsupported(g.frame, node, f"the operator `{_UNARY_SYMBOLS[name]}` of a tuple is", "apply it to each item")
    return g.semantic.unary(name, value)


def _boolean(g: Generator, node: ast.BoolOp) -> Any:
    """``and`` and ``or``.

    Operands are looked at in order. What is known at compile time and decides is the result, also after tensors; what does not decide drops out. Tensors
    are all evaluated, and combined.
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


def _compare(g: Generator, node: ast.Compare) -> Any:
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


def _compare_pair(g: Generator, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> Any:
    name = _COMPARE.get(type(op))
    if name is not None:
        if type(left) is constexpr and type(right) is constexpr:
            return constexpr(COMPARISONS[name](left.value, right.value))
        g.locate(node)
        if isinstance(left, tl_tuple) and isinstance(right, tl_tuple) and name in ("eq", "ne"):
            same = _same_items(g, left, right)
            return same if name == "eq" else constexpr(not same.value) if type(same) is constexpr else g.semantic.unary("not", same)
        return g.semantic.compare(name, left, right)
    if isinstance(op, ast.Is | ast.IsNot):
        same = _unwrapped(left) is _unwrapped(right)
        return constexpr(same if isinstance(op, ast.Is) else not same)
    if isinstance(left, tensor):
        raise TypeError(with_help(f"`in` works on values known at compile time, not on {describe(left)}", "compare with each and combine with `|`"))
    items = [_unwrapped(item) for item in items_of(right)]
    if any(isinstance(item, base_value) for item in items):
        raise TypeError("`in` looks through values known at compile time, and some of these are computed at run time")
    found = any(bool(_unwrapped(left) == item) for item in items)
    return constexpr(found if isinstance(op, ast.In) else not found)


def _same_items(g: Generator, left: tl_tuple, right: tl_tuple) -> Any:
    """Whether two tuples have equal items: known at compile time where they differ in length or in constants, else an int1.

    Raises:
        TypeError: an item is a block.
    """
    result: Any = constexpr(len(left) == len(right))
    for a, b in zip(left.values, right.values, strict=False):
        if a is b:
            continue
        if isinstance(a, tl_tuple) and isinstance(b, tl_tuple):
            one = _same_items(g, a, b)
        elif (isinstance(a, tensor) and (isinstance(b, tensor) or is_number(b))) or (isinstance(b, tensor) and is_number(a)):
            for side in (a, b):
                if isinstance(side, tensor) and side.extents:
                    raise TypeError(with_help(f"== of tuples compares scalars, not {describe(side)}", "compare the items one by one"))
            one = g.semantic.compare("eq", a, b)
        else:
            one = constexpr(type(a) is constexpr and type(b) is constexpr and bool(a.value == b.value))
        if type(one) is constexpr:
            if not one.value:
                return one
        else:
            result = one if type(result) is constexpr and result.value else result if type(result) is constexpr else g.semantic.and_(result, one)
    return result


def _unwrapped(value: Any) -> Any:
    return value.value if type(value) is constexpr else value


# -- conditional expressions --------------------------------------------------------------------------------------------------------------------------


def _conditional(g: Generator, node: ast.IfExp) -> Any:
    test = g.condition(node.test)
    if isinstance(test, bool):
        return g.evaluate(node.body if test else node.orelse)
    then, other = Branch(), Branch()
    for branch, side in ((then, node.body), (other, node.orelse)):
        branch.visit(g, g.scope, lambda branch=branch, side=side: _evaluate_into(g, branch, side))  # type: ignore[misc]
    merge(g, node, test, then, other, None, False)
    return g.scope.pop("?expression")


def _evaluate_into(g: Generator, branch: Branch, node: ast.expr) -> Completion:
    branch.value = g.evaluate(node)
    return NORMAL


def _walrus(g: Generator, node: ast.NamedExpr) -> Any:
    g.assign_target(node.target, g.evaluate(node.value))
    return g.scope[node.target.id]


# -- parts of values ----------------------------------------------------------------------------------------------------------------------------------


def _attribute(g: Generator, node: ast.Attribute) -> Any:
    value = g.evaluate(node.value)
    g.locate(node)
    return attribute(g, value, node.attr)


def attribute(g: Generator, value: Any, name: str) -> Any:
    """``value.name``.

    Raises:
        AttributeError: there is none.
        NameError: a module's attribute that kernels may not read.
    """
    if isinstance(value, ModuleType):
        try:
            found = getattr(value, name)
        except AttributeError as error:
            if isinstance(error, TilewrightError):  # says more than that there is none
                raise
            message = f"module {value.__name__} has no attribute {name!r}"
            raise AttributeError(with_help(message, similar(name, dir(value)))) from None
        return lift(found)
    try:
        found = g.semantic.attribute(value, name)
    except AttributeError as error:
        raise AttributeError(_no_attribute(value, name, error)) from error
    return lift(found)


def _no_attribute(value: Any, name: str, error: AttributeError) -> str:
    if isinstance(value, tensor):
        return with_help(f"a tensor of type {value.type} has no attribute {name!r}", similar(name, dir(value)))
    if isinstance(value, base_value) and type(value) is not constexpr:
        return str(error)
    return f"{describe(value)} has no attribute {name!r}"


def _subscript(g: Generator, node: ast.Subscript) -> Any:
    value = g.evaluate(node.value)
    index = g.evaluate(node.slice)
    g.locate(node)
    if isinstance(value, tensor):
        try:
            return g.semantic.subscript(value, index)
        except ValueError as error:
            raise helped(error, remedies.of_index(node, value, index)) from None
    if type(value) is constexpr:
        return lift(value.value[_python_index(index)])
    if isinstance(value, tl_tuple):
        if isinstance(index, tensor):
            raise TypeError(with_help(f"a tuple is indexed by a value known at compile time, not by {describe(index)}", "unroll with tl.static_range"))
        return value[index]
    if isinstance(value, JitCallable):
        remedy = f"call it: {value.__name__}(...); kernels are launched from the host"
        raise located(g.frame, node, with_help(f"{value.__name__}[...] cannot be launched from a kernel", remedy), CompilationError)
    method = getattr(value, "__getitem__", None)
    if method is None:
        raise TypeError(f"{describe(value)} cannot be indexed")
    return lift(g.invoke(method, [index], {}))


def _python_index(index: Any) -> Any:
    if isinstance(index, tl_slice):
        return index.to_python()
    if isinstance(index, tl_tuple):
        return tuple(_python_index(item) for item in index.values)
    if isinstance(index, tensor):
        raise TypeError(f"a value known at compile time is indexed by one, not by {describe(index)}")
    return _unwrapped(index)


def _slice(g: Generator, node: ast.Slice) -> Any:
    parts = []
    for part in (node.lower, node.upper, node.step):
        value = constexpr(None) if part is None else g.evaluate(part)
        if isinstance(value, tensor):
            raise TypeError(f"a slice has bounds known at compile time, not {describe(value)}")
        parts.append(value)
    return tl_slice(*parts)


# -- tuples and text ----------------------------------------------------------------------------------------------------------------------------------


def _tuple(g: Generator, node: ast.Tuple | ast.List) -> Any:
    items: list[Any] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            items.extend(items_of(g.evaluate(element.value)))
        else:
            items.append(g.evaluate(element))
    return tl_tuple(items)


def _comprehension(g: Generator, node: ast.ListComp | ast.GeneratorExp) -> Any:
    outer = g.scope
    g.scope = dict(outer)
    found: list[Any] = []

    def generate(level: int) -> None:
        if level == len(node.generators):
            found.append(g.evaluate(node.elt))
            return
        generator = node.generators[level]
        if generator.is_async:
            raise unsupported(g.frame, node, "async is")
        for item in items_of(g.iterable(generator.iter)):
            g.assign_target(generator.target, item, plain=False)
            tests = (g.condition(test) for test in generator.ifs)
            if all(_known(g, node, test) for test in tests):
                generate(level + 1)

    generate(0)
    g.scope = outer
    return tl_tuple(found)


def _known(g: Generator, node: ast.AST, test: Any) -> bool:
    if not isinstance(test, bool):
        raise located(g.frame, node, "the condition of a comprehension must be known at compile time", CompilationError)
    return test


def _f_string(g: Generator, node: ast.JoinedStr) -> Any:
    parts = []
    for piece in node.values:
        if isinstance(piece, ast.Constant):
            parts.append(str(piece.value))
            continue
        assert isinstance(piece, ast.FormattedValue)
        value = g.evaluate(piece.value)
        if isinstance(value, base_value) and type(value) is not constexpr and value.flatten():
            message = f"an f-string takes values known at compile time, not {describe(value)}"
            raise located(g.frame, piece.value, with_help(message, "print run-time values with tl.device_print"), CompilationError)
        plain = _unwrapped(value)
        if piece.conversion >= 0:
            plain = _CONVERSIONS[chr(piece.conversion)](plain)
        specification = g.evaluate(piece.format_spec).value if piece.format_spec is not None else ""
        parts.append(format(plain, specification))
    return constexpr("".join(parts))


_CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


def _no_such_expression(construct: str, alternative: str) -> Any:
    def refuse(g: Generator, node: ast.expr) -> Any:
        raise unsupported(g.frame, node, construct, alternative)

    return refuse


EXPRESSIONS: dict[type[ast.expr], Any] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.Call: call,
    ast.IfExp: _conditional,
    ast.NamedExpr: _walrus,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.JoinedStr: _f_string,
    ast.Lambda: _no_such_expression("lambda is", "define a function at module level and decorate it with @jit"),
    ast.Dict: _no_such_expression("a dict is", "use a tuple, a namedtuple or an aggregate"),
    ast.Set: _no_such_expression("a set is", "use a tuple"),
    ast.DictComp: _no_such_expression("a dict comprehension is", "use a tuple"),
    ast.SetComp: _no_such_expression("a set comprehension is", "use a tuple"),
    ast.Starred: _no_such_expression("a starred expression here is", "unpack in a call, a tuple or an assignment"),
    ast.Yield: _no_such_expression("yield is", "return a tuple"),
    ast.YieldFrom: _no_such_expression("yield from is", "return a tuple"),
    ast.Await: _no_such_expression("await is", "call the function"),
}

__all__ = ["EXPRESSIONS", "attribute", "operate"]
