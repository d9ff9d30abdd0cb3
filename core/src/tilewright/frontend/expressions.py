"""Expressions: constants, names, attributes, subscripts, tuples, and the table of all kinds.

Conditionals, comprehensions and f-strings are here, too.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

from tilewright.errors import CompilationError, helped, with_help
from tilewright.frontend import operators, remedies
from tilewright.frontend.assignments import assign_target
from tilewright.frontend.attributes import attribute
from tilewright.frontend.branches import Branch, merge
from tilewright.frontend.calls import call, invoke, iterable
from tilewright.frontend.errors import located, unsupported
from tilewright.frontend.frame import NORMAL, Completion
from tilewright.frontend.generator import Expression, ModuleGenerator
from tilewright.frontend.names import load_name
from tilewright.frontend.python_builtins import items_of
from tilewright.frontend.values import describe, lift, unwrapped
from tilewright.language.core import base_value, constexpr, tensor
from tilewright.language.core import slice as tl_slice
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.definitions.callable import JitCallable


def _constant(g: ModuleGenerator, node: ast.Constant) -> Any:
    value = node.value
    if isinstance(value, complex | bytes):
        raise unsupported(g.frame, node, f"a constant of type {type(value).__name__} is")
    if value is ...:
        raise unsupported(g.frame, node, "`...` is", "write one `:` for each axis")
    return constexpr(value)


def _name(g: ModuleGenerator, node: ast.Name) -> Any:
    return load_name(g, node, node.id)


# -- conditional expressions -----------------------------------------------------------------------


def _conditional(g: ModuleGenerator, node: ast.IfExp) -> Any:
    test = g.condition(node.test)
    if isinstance(test, bool):
        return g.evaluate(node.body if test else node.orelse)
    then, other = Branch(), Branch()
    for branch, side in ((then, node.body), (other, node.orelse)):
        branch.visit(g, g.scope, functools.partial(_evaluate_into, g, branch, side))
    merge(g, node, test, then, other, None, False)
    return g.scope.pop("?expression")


def _evaluate_into(g: ModuleGenerator, branch: Branch, node: ast.expr) -> Completion:
    branch.value = g.evaluate(node)
    return NORMAL


def _walrus(g: ModuleGenerator, node: ast.NamedExpr) -> Any:
    assign_target(g, node.target, g.evaluate(node.value))
    return g.scope[node.target.id]


# -- parts of values -------------------------------------------------------------------------------


def _attribute(g: ModuleGenerator, node: ast.Attribute) -> Any:
    value = g.evaluate(node.value)
    g.locate(node)
    return attribute(g.semantic, value, node.attr)


def _subscript(g: ModuleGenerator, node: ast.Subscript) -> Any:
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
            raise TypeError(
                with_help(
                    "a tuple is indexed by a value known at compile time, not by "
                    f"{describe(index)}",
                    "unroll with tl.static_range",
                )
            )
        return value[index]
    if isinstance(value, JitCallable):
        remedy = f"call it: {value.__name__}(...); kernels are launched from the host"
        raise located(
            g.frame,
            node,
            with_help(f"{value.__name__}[...] cannot be launched from a kernel", remedy),
            CompilationError,
        )
    method = getattr(value, "__getitem__", None)
    if method is None:
        raise TypeError(f"{describe(value)} cannot be indexed")
    return lift(invoke(g, method, [index], {}))


def _python_index(index: Any) -> Any:
    if isinstance(index, tl_slice):
        return index.to_python()
    if isinstance(index, tl_tuple):
        return tuple(_python_index(item) for item in index.values)
    if isinstance(index, tensor):
        raise TypeError(
            f"a value known at compile time is indexed by one, not by {describe(index)}"
        )
    return unwrapped(index)


def _slice(g: ModuleGenerator, node: ast.Slice) -> Any:
    parts = []
    for part in (node.lower, node.upper, node.step):
        value = constexpr(None) if part is None else g.evaluate(part)
        if isinstance(value, tensor):
            raise TypeError(f"a slice has bounds known at compile time, not {describe(value)}")
        parts.append(value)
    return tl_slice(*parts)


# -- tuples and text -------------------------------------------------------------------------------


def _tuple(g: ModuleGenerator, node: ast.Tuple | ast.List) -> Any:
    items: list[Any] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            items.extend(items_of(g.evaluate(element.value)))
        else:
            items.append(g.evaluate(element))
    return tl_tuple(items)


def _comprehension(g: ModuleGenerator, node: ast.ListComp | ast.GeneratorExp) -> Any:
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
        for item in items_of(iterable(g, generator.iter)):
            assign_target(g, generator.target, item, plain=False)
            tests = (g.condition(test) for test in generator.ifs)
            if all(_known(g, node, test) for test in tests):
                generate(level + 1)

    generate(0)
    g.scope = outer
    return tl_tuple(found)


def _known(g: ModuleGenerator, node: ast.AST, test: Any) -> bool:
    if not isinstance(test, bool):
        raise located(
            g.frame,
            node,
            "the condition of a comprehension must be known at compile time",
            CompilationError,
        )
    return test


def _f_string(g: ModuleGenerator, node: ast.JoinedStr) -> Any:
    parts = []
    for piece in node.values:
        if isinstance(piece, ast.Constant):
            parts.append(str(piece.value))
            continue
        assert isinstance(piece, ast.FormattedValue)
        value = g.evaluate(piece.value)
        if isinstance(value, base_value) and type(value) is not constexpr and value.flatten():
            message = f"an f-string takes values known at compile time, not {describe(value)}"
            raise located(
                g.frame,
                piece.value,
                with_help(message, "print run-time values with tl.device_print"),
                CompilationError,
            )
        plain = unwrapped(value)
        if piece.conversion >= 0:
            plain = _CONVERSIONS[chr(piece.conversion)](plain)
        specification = g.evaluate(piece.format_spec).value if piece.format_spec is not None else ""
        parts.append(format(plain, specification))
    return constexpr("".join(parts))


_CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


def _no_such_expression(construct: str, alternative: str) -> Any:
    def refuse(g: ModuleGenerator, node: ast.expr) -> Any:
        raise unsupported(g.frame, node, construct, alternative)

    return refuse


EXPRESSIONS: dict[type[ast.expr], Expression] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.BinOp: operators.binary,
    ast.UnaryOp: operators.unary,
    ast.BoolOp: operators.boolean,
    ast.Compare: operators.compare,
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
    ast.Lambda: _no_such_expression(
        "lambda is", "define a function at module level and decorate it with @jit"
    ),
    ast.Dict: _no_such_expression("a dict is", "use a tuple, a namedtuple or an aggregate"),
    ast.Set: _no_such_expression("a set is", "use a tuple"),
    ast.DictComp: _no_such_expression("a dict comprehension is", "use a tuple"),
    ast.SetComp: _no_such_expression("a set comprehension is", "use a tuple"),
    ast.Starred: _no_such_expression(
        "a starred expression here is", "unpack in a call, a tuple or an assignment"
    ),
    ast.Yield: _no_such_expression("yield is", "return a tuple"),
    ast.YieldFrom: _no_such_expression("yield from is", "return a tuple"),
    ast.Await: _no_such_expression("await is", "call the function"),
}
