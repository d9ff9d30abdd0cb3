"""Assignments to names, to tuples of names, and to fields of an aggregate under construction.

Assignments to names may be annotated or augmented.
"""

from __future__ import annotations

import ast
from typing import Any

from tilewright.errors import CompilationError, with_help
from tilewright.frontend import remedies
from tilewright.frontend.attributes import attribute
from tilewright.frontend.errors import located, unsupported
from tilewright.frontend.frame import Undefined
from tilewright.frontend.generator import ModuleGenerator
from tilewright.frontend.names import load_name
from tilewright.frontend.operators import operate
from tilewright.frontend.values import decay, describe, name_values
from tilewright.language.core import constexpr, tensor
from tilewright.language.core import tuple as tl_tuple


def assign(g: ModuleGenerator, node: ast.Assign) -> None:
    """Lower ``targets = value``."""
    value = g.evaluate(node.value)
    g.locate(node)
    for target in node.targets:
        assign_target(g, target, value)


def assign_target(g: ModuleGenerator, target: ast.expr, value: Any, plain: bool = True) -> None:
    """Bind ``value`` to a target: a name, or names in tuples, one of which may be starred.

    ``plain`` assignments turn compile-time numbers into tensors; loop variables and
    ``tl.constexpr`` ones keep them.
    """
    if isinstance(target, ast.Name):
        name = target.id
        if plain and name not in g.frame.constants:
            value = decay(g.semantic, value)
            name_values(value, name)
        elif plain:
            value = _constant(g, target, name, value)
        g.scope[name] = value
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(g, target, value, plain)
    elif isinstance(target, ast.Subscript):
        remedy = remedies.of_assignment(target, g.evaluate(target.value))
        raise located(
            g.frame, target, with_help("__setitem__ is not supported", remedy), CompilationError
        )
    elif isinstance(target, ast.Attribute):
        _set_field(g, target, value)
    else:
        raise unsupported(g.frame, target, f"assignment to {type(target).__name__} is")


def _set_field(g: ModuleGenerator, target: ast.Attribute, value: Any) -> None:
    """Lower ``self.field = value`` in the ``__init__`` of an aggregate."""
    instance = g.evaluate(target.value)
    if not getattr(instance, "_is_aggregate", False):
        remedy = "values cannot be changed in place; assign to a variable"
        raise located(
            g.frame,
            target,
            with_help(f"assignment to the attribute {target.attr!r} is not supported", remedy),
            CompilationError,
        )
    if g.builder.region is not g.frame.region:
        remedy = "assign to a variable there, and to the field after it"
        raise located(
            g.frame,
            target,
            with_help(
                f"field {target.attr!r} cannot be set inside a conditional or a loop", remedy
            ),
            CompilationError,
        )
    setattr(instance, target.attr, value)


def _unpack(g: ModuleGenerator, target: ast.Tuple | ast.List, value: Any, plain: bool) -> None:
    if type(value) is constexpr and isinstance(value.value, tuple | list):
        value = tl_tuple(value.value)
    if not isinstance(value, tl_tuple):
        raise located(
            g.frame,
            target,
            f"cannot unpack non-iterable value into {len(target.elts)} names: it is "
            f"{describe(value)}",
            CompilationError,
        )
    items, names = value.values, target.elts
    starred = next((i for i, name in enumerate(names) if isinstance(name, ast.Starred)), None)
    if starred is None:
        if len(items) != len(names):
            problem = "too many" if len(items) > len(names) else "not enough"
            raise located(
                g.frame,
                target,
                f"{problem} values to unpack (expected {len(names)}, got {len(items)})",
                CompilationError,
            )
        for name, item in zip(names, items, strict=True):
            assign_target(g, name, item, plain)
        return
    after = len(names) - starred - 1
    if len(items) < len(names) - 1:
        raise located(
            g.frame,
            target,
            f"not enough values to unpack (expected {len(names) - 1} or more, got {len(items)})",
            CompilationError,
        )
    middle = items[starred : len(items) - after]
    for name, item in zip(names[:starred], items[:starred], strict=True):
        assign_target(g, name, item, plain)
    star = names[starred]
    assert isinstance(star, ast.Starred)
    assign_target(g, star.value, tl_tuple(middle), plain)
    for name, item in zip(names[starred + 1 :], items[len(items) - after :], strict=True):
        assign_target(g, name, item, plain)


def augmented(g: ModuleGenerator, node: ast.AugAssign) -> None:
    """Lower the augmented assignment ``target operator= value``."""
    if isinstance(node.target, ast.Name):
        old = load_name(g, node.target, node.target.id)
    elif isinstance(node.target, ast.Attribute):
        old = attribute(g.semantic, g.evaluate(node.target.value), node.target.attr)
    else:
        old = constexpr(None)
        assign_target(g, node.target, old)
    value = g.evaluate(node.value)
    assign_target(g, node.target, operate(g, node, type(node.op), old, value))


def annotated(g: ModuleGenerator, node: ast.AnnAssign) -> None:
    """Lower ``target: annotation = value``; a ``tl.constexpr`` annotation declares a constant."""
    is_constant = _is_constexpr(g, node.annotation)
    if not is_constant:
        if node.value is not None:
            assign_target(g, node.target, g.evaluate(node.value))
        return
    if not isinstance(node.target, ast.Name):
        raise unsupported(g.frame, node.target, "a constexpr annotation of anything but a name is")
    name = node.target.id
    frame = g.frame
    if node.value is None:
        frame.constants.add(name)
        return
    # An unrolled loop visits the same declaration again; that is not a redeclaration.
    if frame.declared.get(name) is not node:
        _refuse_reassignment(g, node, name)
    frame.declared[name] = node
    g.scope[name] = _constant(g, node.value, name, g.evaluate(node.value))


def _is_constexpr(g: ModuleGenerator, annotation: ast.expr) -> bool:
    """Return whether an annotation is ``tl.constexpr``, as an object or as text."""
    if isinstance(annotation, ast.Constant):
        return (
            isinstance(annotation.value, str) and annotation.value.rpartition(".")[2] == "constexpr"
        )
    if not isinstance(annotation, ast.Name | ast.Attribute):
        return False
    try:
        return g.evaluate(annotation) is constexpr
    except CompilationError:
        return False  # an annotation for people and type checkers


def _refuse_reassignment(g: ModuleGenerator, node: ast.AST, name: str) -> None:
    """Refuse ``name: tl.constexpr = value`` where the name has a value.

    A plain assignment makes a variable of any name.
    """
    previous = g.scope.get(name)
    if previous is not None and type(previous) is not Undefined:
        remedy = "give the constant another name, or drop the annotation to make it a variable"
        raise located(
            g.frame,
            node,
            with_help(f"{name} is already defined. constexpr cannot be reassigned.", remedy),
            CompilationError,
        )


def _constant(g: ModuleGenerator, node: ast.AST, name: str, value: Any) -> Any:
    """Return ``value`` as the value of a name declared ``tl.constexpr``.

    Raises:
        CompilationError: it is computed at run time, and the language is not one where that is
            allowed.
    """
    is_computed = isinstance(value, tensor) or (isinstance(value, tl_tuple) and value.flatten())
    if is_computed and not g.semantic.options.named_values:
        message = with_help(
            f"{name} is declared tl.constexpr, but its value is computed at run time: it is "
            f"{describe(value)}",
            "drop the annotation, or compute it from constexprs only",
        )
        raise located(g.frame, node, message, CompilationError)
    return value
