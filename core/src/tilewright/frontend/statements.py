"""Statements: blocks of them, assignments, jumps, ``with``, assertions, and the constructs of Python that kernels do not have."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.errors import CompilationError, UnsupportedLanguageConstruct, with_help
from tilewright.frontend import remedies
from tilewright.frontend.analysis import Facts, Names
from tilewright.frontend.branches import guarded, if_statement
from tilewright.frontend.errors import cause, located, unsupported
from tilewright.frontend.frame import NORMAL, RETURN_FLAG, RETURN_VALUE, Completion, Undefined, break_flag, continue_flag
from tilewright.frontend.loops import for_statement, while_statement
from tilewright.frontend.values import decay, decayed_type, describe, describe_type, name_values
from tilewright.language.core import constexpr, tensor
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.debug import device_assert

if TYPE_CHECKING:
    from tilewright.frontend.generator import Generator


def block(g: Generator, statements: Sequence[ast.stmt], live: Names, follows: bool, start: int = 0) -> Completion:
    """Visit the statements from ``start`` on.

    Args:
        live: names live after the block.
        follows: statements follow the block before the target of a jump is reached, so that someone will ask for its flag.
    """
    facts = g.frame.analysis.facts
    count = len(statements)
    for index in range(start, count):
        node = statements[index]
        kind = type(node)
        last = index + 1 == count
        consumed = False
        try:
            simple = _SIMPLE.get(kind)
            if simple is not None:
                simple(g, node)
                continue

            def rest(following: int = index + 1) -> Completion:
                return block(g, statements, live, follows, following)

            if kind is ast.If:
                done, consumed = if_statement(g, node, facts[node].live_after, None if last else rest, live, follows)  # type: ignore[arg-type]
            else:
                compound = _COMPOUND.get(kind)
                if compound is None:
                    raise _no_such_statement(g, node)
                done = compound(g, node, facts[node], follows or not last)
        except CompilationError as error:
            if error.file is None:
                raise g.relocated(node, error) from cause(error)
            raise
        except Exception as error:
            raise g.relocated(node, error) from cause(error)
        if consumed or last or not done.falls:
            return done
        if done.jumps:
            after = guarded(g, node, done, rest, live, follows)
            return Completion(after.falls, after.jumps | done.jumps)
    return NORMAL


# -- assignments --------------------------------------------------------------------------------------------------------------------------------------


def _assign(g: Generator, node: ast.Assign) -> None:
    value = g.evaluate(node.value)
    g.locate(node)
    for target in node.targets:
        g.assign_target(target, value)


def assign_target(g: Generator, target: ast.expr, value: Any, plain: bool = True) -> None:
    """Bind ``value`` to a target: a name, or names in tuples, one of which may be starred.

    ``plain`` assignments turn compile-time numbers into tensors; loop variables and ``tl.constexpr`` ones keep them.
    """
    if isinstance(target, ast.Name):
        name = target.id
        if plain and name in g.frame.declared:
            _refuse_reassignment(g, target, name)
        if plain and name not in g.frame.constants:
            value = decay(g, value)
            name_values(value, name)
        elif plain:
            value = _constant(g, target, name, value)
        g.scope[name] = value
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(g, target, value, plain)
    elif isinstance(target, ast.Subscript):
        remedy = remedies.of_assignment(target, g.evaluate(target.value))
        raise located(g.frame, target, with_help("__setitem__ is not supported", remedy), CompilationError)
    elif isinstance(target, ast.Attribute):
        _set_field(g, target, value)
    else:
        raise unsupported(g.frame, target, f"assignment to {type(target).__name__} is")


def _set_field(g: Generator, target: ast.Attribute, value: Any) -> None:
    """``self.field = value`` in the ``__init__`` of an aggregate."""
    instance = g.evaluate(target.value)
    if not getattr(instance, "_is_aggregate", False):
        remedy = "values cannot be changed in place; assign to a variable"
        raise located(g.frame, target, with_help(f"assignment to the attribute {target.attr!r} is not supported", remedy), CompilationError)
    if g.builder.region is not g.frame.region:
        remedy = "assign to a variable there, and to the field after it"
        raise located(g.frame, target, with_help(f"field {target.attr!r} cannot be set inside a conditional or a loop", remedy), CompilationError)
    setattr(instance, target.attr, value)


def _unpack(g: Generator, target: ast.Tuple | ast.List, value: Any, plain: bool) -> None:
    if type(value) is constexpr and isinstance(value.value, tuple | list):
        value = tl_tuple(value.value)
    if not isinstance(value, tl_tuple):
        raise located(g.frame, target, f"cannot unpack non-iterable value into {len(target.elts)} names: it is {describe(value)}", CompilationError)
    items, names = value.values, target.elts
    starred = next((i for i, name in enumerate(names) if isinstance(name, ast.Starred)), None)
    if starred is None:
        if len(items) != len(names):
            problem = "too many" if len(items) > len(names) else "not enough"
            raise located(g.frame, target, f"{problem} values to unpack (expected {len(names)}, got {len(items)})", CompilationError)
        for name, item in zip(names, items, strict=True):
            assign_target(g, name, item, plain)
        return
    after = len(names) - starred - 1
    if len(items) < len(names) - 1:
        raise located(g.frame, target, f"not enough values to unpack (expected {len(names) - 1} or more, got {len(items)})", CompilationError)
    middle = items[starred : len(items) - after]
    for name, item in zip(names[:starred], items[:starred], strict=True):
        assign_target(g, name, item, plain)
    star = names[starred]
    assert isinstance(star, ast.Starred)
    assign_target(g, star.value, tl_tuple(middle), plain)
    for name, item in zip(names[starred + 1 :], items[len(items) - after :], strict=True):
        assign_target(g, name, item, plain)


def _augmented(g: Generator, node: ast.AugAssign) -> None:
    if isinstance(node.target, ast.Name):
        old = g.load_name(node.target, node.target.id)
    elif isinstance(node.target, ast.Attribute):
        old = g.attribute(g.evaluate(node.target.value), node.target.attr)
    else:
        old = constexpr(None)
        assign_target(g, node.target, old)
    value = g.evaluate(node.value)
    assign_target(g, node.target, g.operate(node, type(node.op), old, value))


def _annotated(g: Generator, node: ast.AnnAssign) -> None:
    is_constant = g.is_constexpr_annotation(node.annotation)
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
    # An unrolled loop comes by the same declaration again; that is no second one.
    if frame.declared.get(name) is not node:
        _refuse_reassignment(g, node, name)
    frame.declared[name] = node
    g.scope[name] = _constant(g, node.value, name, g.evaluate(node.value))


def _refuse_reassignment(g: Generator, node: ast.AST, name: str) -> None:
    """Refuse another assignment to a name declared ``name: tl.constexpr = value``, where it has a value."""
    previous = g.scope.get(name)
    if previous is not None and type(previous) is not Undefined:
        remedy = "give the constant another name, or drop the annotation to make it a variable"
        raise located(g.frame, node, with_help(f"{name} is already defined. constexpr cannot be reassigned.", remedy), CompilationError)


def _constant(g: Generator, node: ast.AST, name: str, value: Any) -> Any:
    """``value`` as the value of a name declared ``tl.constexpr``.

    Raises:
        CompilationError: it is computed at run time, and the language is not one where that is allowed.
    """
    is_computed = isinstance(value, tensor) or (isinstance(value, tl_tuple) and value.flatten())
    if is_computed and not g.semantic.options.named_values:
        message = with_help(
            f"{name} is declared tl.constexpr, but its value is computed at run time: it is {describe(value)}",
            "drop the annotation, or compute it from constexprs only",
        )
        raise located(g.frame, node, message, CompilationError)
    return value


# -- other simple statements --------------------------------------------------------------------------------------------------------------------------


def _expression(g: Generator, node: ast.Expr) -> None:
    value = node.value
    if isinstance(value, ast.Constant):
        return
    if isinstance(value, ast.Call):
        g.call_statement(value)
    else:
        g.evaluate(value)


def _assert(g: Generator, node: ast.Assert) -> None:
    test = g.evaluate(node.test)
    message = g.evaluate(node.msg) if node.msg is not None else constexpr("")
    g.locate(node)
    device_assert(test, message, _semantic=g.semantic)


def _pass(g: Generator, node: ast.stmt) -> None:
    """Nothing."""


def _delete(g: Generator, node: ast.Delete) -> None:
    for target in node.targets:
        if not isinstance(target, ast.Name):
            raise unsupported(g.frame, target, f"`del` of {ast.unparse(target)} is", "delete names only")
        g.load_name(target, target.id)
        g.scope[target.id] = Undefined(f"was deleted at line {node.lineno + g.frame.line_offset}")


# -- jumps and with -----------------------------------------------------------------------------------------------------------------------------------


def _return(g: Generator, node: ast.Return, facts: Facts, follows: bool) -> Completion:
    if g.semantic.options.plain_loops and g.frame.loops > g.frame.unrolled:
        message = "Cannot have `return` statements inside `while` or `for` statements"
        raise located(g.frame, node, with_help(message, "compute a condition in the loop, and return after it"), UnsupportedLanguageConstruct)
    value = constexpr(None) if node.value is None else g.evaluate(node.value)
    frame = g.frame
    if frame.returned:
        first, type_ = frame.returned[0]
        own = decayed_type(value)
        if own != type_ and not (isinstance(value, tl_tuple) or hasattr(type_, "types")):
            line = first.lineno + frame.line_offset
            message = f"Inconsistent return types. Return type mismatch: {describe_type(own)} here, and {describe_type(type_)} at line {line}"
            raise located(frame, node, with_help(message, "every `return` of a function gives one type; convert with `.to(dtype)`"), CompilationError)
    else:
        frame.returned.append((node, decayed_type(value)))
    g.scope[RETURN_VALUE] = value
    g.scope[RETURN_FLAG] = _TRUE
    return Completion(False, _RETURNED)


def _break(g: Generator, node: ast.stmt, facts: Facts, follows: bool) -> Completion:
    _refuse_in_plain_loops(g, node)
    flag = break_flag(g.frame.loops)
    g.scope[flag] = _TRUE
    return Completion(False, frozenset((flag,)))


def _refuse_in_plain_loops(g: Generator, node: ast.stmt) -> None:
    if g.semantic.options.plain_loops:
        message = f"unsupported AST node type: {type(node).__name__}"
        raise located(g.frame, node, with_help(message, "put what follows under an `if`, or write a `while` with the condition"), UnsupportedLanguageConstruct)


def _continue(g: Generator, node: ast.stmt, facts: Facts, follows: bool) -> Completion:
    _refuse_in_plain_loops(g, node)
    flag = continue_flag(g.frame.loops)
    g.scope[flag] = _TRUE
    return Completion(False, frozenset((flag,)))


def _with(g: Generator, node: ast.With, facts: Facts, follows: bool) -> Completion:
    managers = []
    for item in node.items:
        manager = g.evaluate(item.context_expr)
        if not (hasattr(manager, "__enter__") and hasattr(manager, "__exit__")):
            message = f"{describe(manager)} is no context manager of the language"
            raise located(g.frame, item.context_expr, message, CompilationError)
        entered = manager.__enter__()
        managers.append(manager)
        if item.optional_vars is not None:
            assign_target(g, item.optional_vars, entered)
    done = block(g, node.body, facts.live_after, follows)
    for manager in reversed(managers):
        manager.__exit__(None, None, None)
    return done


_TRUE = constexpr(True)
_RETURNED = frozenset({RETURN_FLAG})


def _no_such_statement(g: Generator, node: ast.stmt) -> CompilationError:
    construct, alternative = _UNSUPPORTED.get(type(node), (f"the statement {type(node).__name__} is", ""))
    return unsupported(g.frame, node, construct, alternative)


_SIMPLE: dict[type[ast.stmt], Any] = {
    ast.Assign: _assign,
    ast.AugAssign: _augmented,
    ast.AnnAssign: _annotated,
    ast.Expr: _expression,
    ast.Assert: _assert,
    ast.Pass: _pass,
    ast.Delete: _delete,
}
_COMPOUND: dict[type[ast.stmt], Any] = {
    ast.For: for_statement,
    ast.While: while_statement,
    ast.Return: _return,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.With: _with,
}
_UNSUPPORTED: dict[type[ast.stmt], tuple[str, str]] = {
    ast.FunctionDef: ("nested function definitions are not allowed", "define the function at module level and decorate it with @jit"),
    ast.AsyncFunctionDef: ("async functions are", "define a plain function at module level and decorate it with @jit"),
    ast.ClassDef: ("class definitions are", "define an aggregate at module level"),
    ast.Try: ("try is", "kernels raise no exceptions: test the condition with `if`, or stop with tl.device_assert"),
    ast.Raise: ("raise is", "use tl.static_assert at compile time, or tl.device_assert at run time"),
    ast.Import: ("import is", "import at module level"),
    ast.ImportFrom: ("import is", "import at module level"),
    ast.Global: ("global is", "pass the value as an argument; kernels cannot change globals"),
    ast.Nonlocal: ("nonlocal is", "return the value to the caller"),
    ast.Match: ("match is", "use if and elif"),
    ast.AsyncFor: ("async for is", "use for"),
    ast.AsyncWith: ("async with is", "use with"),
}
if hasattr(ast, "TryStar"):
    _UNSUPPORTED[ast.TryStar] = _UNSUPPORTED[ast.Try]
