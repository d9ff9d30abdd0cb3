"""Statements: blocks, jumps, ``with``, assertions, and the statements that kernels do not have."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tilewright.errors import CompilationError, UnsupportedLanguageConstruct, with_help
from tilewright.frontend import assignments, remedies
from tilewright.frontend.analysis import Facts, Names
from tilewright.frontend.assignments import assign_target
from tilewright.frontend.branches import guarded, if_statement
from tilewright.frontend.calls import call_statement
from tilewright.frontend.errors import cause, located, source_of, unsupported
from tilewright.frontend.frame import (
    NORMAL,
    RETURN_FLAG,
    RETURN_VALUE,
    Completion,
    Undefined,
    break_flag,
    continue_flag,
)
from tilewright.frontend.generator import ModuleGenerator
from tilewright.frontend.loops import for_statement, while_statement
from tilewright.frontend.names import load_name
from tilewright.frontend.values import decayed_type, describe, describe_type
from tilewright.language.builtin_functions.debug import device_assert
from tilewright.language.core import constexpr
from tilewright.language.core import tuple as tl_tuple


def block(
    g: ModuleGenerator, statements: Sequence[ast.stmt], live: Names, follows: bool, start: int = 0
) -> Completion:
    """Visit the statements from ``start`` on.

    Args:
        live: names live after the block.
        follows: statements follow the block before the target of a jump is reached, so the jump's
            flag is needed.
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
                done, consumed = if_statement(
                    g,
                    node,  # type: ignore[arg-type]
                    facts[node].live_after,
                    None if last else rest,
                    live,
                    follows,
                )
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
            return guarded(g, node, done, rest, live, follows)
    return NORMAL


# -- other simple statements -----------------------------------------------------------------------


def _expression(g: ModuleGenerator, node: ast.Expr) -> None:
    value = node.value
    if isinstance(value, ast.Constant):
        return
    if isinstance(value, ast.Call):
        call_statement(g, value)
    else:
        g.evaluate(value)


def _assert(g: ModuleGenerator, node: ast.Assert) -> None:
    test = g.evaluate(node.test)
    message = g.evaluate(node.msg) if node.msg is not None else constexpr("")
    g.locate(node)
    device_assert(test, message, _semantic=g.semantic)


def _pass(g: ModuleGenerator, node: ast.stmt) -> None:
    """Visit a ``pass`` statement, which emits nothing."""


def _delete(g: ModuleGenerator, node: ast.Delete) -> None:
    for target in node.targets:
        if not isinstance(target, ast.Name):
            raise unsupported(
                g.frame, target, f"`del` of {source_of(target)} is", "delete names only"
            )
        load_name(g, target, target.id)
        g.scope[target.id] = Undefined(f"was deleted at line {node.lineno + g.frame.line_offset}")


# -- jumps and with --------------------------------------------------------------------------------


def _return(g: ModuleGenerator, node: ast.Return, facts: Facts, follows: bool) -> Completion:
    if g.semantic.options.plain_loops and g.frame.loops > g.frame.unrolled:
        message = "Cannot have `return` statements inside `while` or `for` statements in triton"
        raise located(
            g.frame,
            node,
            with_help(message, "compute a condition in the loop, and return after it"),
            UnsupportedLanguageConstruct,
        )
    value = constexpr(None) if node.value is None else g.evaluate(node.value)
    frame = g.frame
    if frame.returned:
        first, type_ = frame.returned[0]
        own = decayed_type(value)
        if own != type_ and not (isinstance(value, tl_tuple) or hasattr(type_, "types")):
            line = first.lineno + frame.line_offset
            message = (
                f"Inconsistent return types. Return type mismatch: {describe_type(own)} here, "
                f"and {describe_type(type_)} at line {line}"
            )
            raise located(
                frame,
                node,
                with_help(
                    message,
                    "every `return` of a function must return one type; convert with `.to(dtype)`",
                ),
                CompilationError,
            )
    else:
        frame.returned.append((node, decayed_type(value)))
    g.scope[RETURN_VALUE] = value
    g.scope[RETURN_FLAG] = _TRUE
    return Completion(False, _RETURNED)


def _break(g: ModuleGenerator, node: ast.stmt, facts: Facts, follows: bool) -> Completion:
    _refuse_in_plain_loops(g, node)
    flag = break_flag(g.frame.loops)
    g.scope[flag] = _TRUE
    return Completion(False, frozenset((flag,)))


def _refuse_in_plain_loops(g: ModuleGenerator, node: ast.stmt) -> None:
    if g.semantic.options.plain_loops:
        message = f"unsupported AST node type: {type(node).__name__}"
        raise located(
            g.frame,
            node,
            with_help(
                message, "put what follows under an `if`, or write a `while` with the condition"
            ),
            UnsupportedLanguageConstruct,
        )


def _continue(g: ModuleGenerator, node: ast.stmt, facts: Facts, follows: bool) -> Completion:
    _refuse_in_plain_loops(g, node)
    flag = continue_flag(g.frame.loops)
    g.scope[flag] = _TRUE
    return Completion(False, frozenset((flag,)))


def _with(g: ModuleGenerator, node: ast.With, facts: Facts, follows: bool) -> Completion:
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


def _no_such_statement(g: ModuleGenerator, node: ast.stmt) -> CompilationError:
    construct, alternative = _UNSUPPORTED.get(
        type(node), (f"the statement {type(node).__name__} is", "")
    )
    if isinstance(node, ast.Import | ast.ImportFrom):
        alternative = remedies.of_import(node) or alternative
    return unsupported(g.frame, node, construct, alternative)


_SIMPLE: dict[type[ast.stmt], Any] = {
    ast.Assign: assignments.assign,
    ast.AugAssign: assignments.augmented,
    ast.AnnAssign: assignments.annotated,
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
    ast.FunctionDef: (
        "nested function definitions are not allowed",
        "define the function at module level and decorate it with @jit",
    ),
    ast.AsyncFunctionDef: (
        "async functions are",
        "define a plain function at module level and decorate it with @jit",
    ),
    ast.ClassDef: ("class definitions are", "define an aggregate at module level"),
    ast.Try: (
        "try is",
        "kernels raise no exceptions: test the condition with `if`, or stop with tl.device_assert",
    ),
    ast.Raise: (
        "raise is",
        "use tl.static_assert at compile time, or tl.device_assert at run time",
    ),
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
