"""Calls of host functions: plain Python that runs while a kernel is compiled.

Methods of aggregates and builtins may be host functions.

A host function may assign to the fields of the aggregates that it is given. Aggregates are values,
so it works on copies; a call that assigned fields then assigns the variables that hold the
instances, as ``pair = changed`` does: branches merge them, and loops carry them.
"""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any

from tilewright.errors import CompilationError, with_help
from tilewright.frontend.frame import is_hidden
from tilewright.frontend.generator import ModuleGenerator
from tilewright.language.binding import asked_for, is_builtin, is_host_function
from tilewright.language.core import apply_builtin, constexpr, dtype, tensor
from tilewright.language.definitions.aggregate import aggregate_value
from tilewright.language.definitions.open_copies import (
    OpenCopies,
    classes_of,
    holds_aggregate,
    replaced,
)

#: Classes of most arguments, none of which holds an aggregate.
_PLAIN = frozenset((tensor, constexpr, dtype, int, float, bool, str, type(None)))


def call_host(g: ModuleGenerator, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a host function with values of a kernel.

    Raises:
        TypeError: it assigns to a field of a global.
    """
    if (
        is_builtin(fn)
        and _PLAIN.issuperset(map(type, args))
        and _PLAIN.issuperset(map(type, kwargs.values()))
    ):
        return apply_builtin(fn, args, kwargs, g.semantic)
    if isinstance(fn, MethodType) and isinstance(fn.__self__, aggregate_value):
        fn, args = fn.__func__, [fn.__self__, *args]
    if isinstance(fn, type) or not any(map(holds_aggregate, (*args, *kwargs.values()))):
        return _called(g, fn, args, kwargs)
    copies = OpenCopies(g.semantic)
    given, named = (
        [copies.of(value) for value in args],
        {name: copies.of(value) for name, value in kwargs.items()},
    )
    result = _called(g, fn, given, named)
    for original, copy in copies.close():
        _assign(g, original, copy)
    return copies.settled(result)


def _called(g: ModuleGenerator, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return (
        apply_builtin(fn, args, kwargs, g.semantic)
        if is_builtin(fn)
        else fn(*args, **kwargs, **asked_for(fn, g.semantic))
    )


def _assign(g: ModuleGenerator, original: aggregate_value, copy: aggregate_value) -> None:
    """Assign a changed copy to the variables that hold the original."""
    frame = g.frame
    if any(
        value is original
        for names in (frame.nonlocals, frame.namespace)
        for value in names.values()
    ):
        message = f"a method assigns to a field of a global {type(original).__name__}"
        raise TypeError(with_help(message, "assign the instance to a variable of the kernel first"))
    for name, value in g.scope.items():
        if not is_hidden(name):
            g.scope[name] = replaced(value, original, copy)


def names_assigned_by_calls(g: ModuleGenerator, nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return the variables of the current scope that calls within ``nodes`` may assign."""
    found: set[str] = set()
    if _PLAIN.issuperset(map(type, g.scope.values())):
        return frozenset()
    held = frozenset(name for name, value in g.scope.items() if holds_aggregate(value))
    for node in nodes if held else ():
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            operands = [call.func, *call.args, *(keyword.value for keyword in call.keywords)]
            names = held.intersection(map(_root, operands))
            if not names <= found and _may_assign(
                _callee(g, call.func), classes_of(g.scope[name] for name in names)
            ):
                found |= names
    return frozenset(found)


def _root(node: ast.expr) -> str | None:
    """Return the variable that an attribute or subscript expression is rooted in."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _callee(g: ModuleGenerator, node: ast.expr) -> Any:
    """Resolve the callee of a call in a loop's body; None where it is unknown before the loop."""
    if any(
        not isinstance(inner, ast.Attribute | ast.Subscript | ast.Constant | ast.Name | ast.Load)
        for inner in ast.walk(node)
    ):
        return None
    try:
        return g.evaluate(node)
    except CompilationError:
        return None  # reported when the call itself is visited


def _may_assign(fn: Any, classes: frozenset[type]) -> bool:
    """Return whether a host function may assign to fields of its arguments.

    The arguments hold aggregates of ``classes``.
    """
    if not (is_host_function(fn) or (is_builtin(fn) and not isinstance(fn, type))):
        return False
    function = getattr(fn, "__func__", fn)
    return isinstance(function, FunctionType) and _function_assigns(function, classes, set())


def _function_assigns(
    function: FunctionType, classes: frozenset[type], seen: set[CodeType]
) -> bool:
    plain = inspect.unwrap(function)
    return isinstance(plain, FunctionType) and _code_assigns(
        plain.__code__, plain.__globals__, classes, seen
    )


def _code_assigns(
    code: CodeType, namespace: Mapping[str, Any], classes: frozenset[type], seen: set[CodeType]
) -> bool:
    """Return whether code, or a function that it contains or names, assigns to an attribute.

    Names are looked up among the methods of ``classes`` and the functions of its module.
    """
    if code in seen:
        return False
    seen.add(code)
    if "setattr" in code.co_names or any(
        instruction.opname == "STORE_ATTR" for instruction in dis.get_instructions(code)
    ):
        return True
    if any(
        isinstance(inner, CodeType) and _code_assigns(inner, namespace, classes, seen)
        for inner in code.co_consts
    ):
        return True
    for name in code.co_names:
        for member in (*(getattr(owner, name, None) for owner in classes), namespace.get(name)):
            function = getattr(member, "__func__", member)
            if isinstance(function, FunctionType) and _function_assigns(function, classes, seen):
                return True
    return False
