"""AST visitor that lowers a function to Tile IR, and calls between functions.

Nodes are dispatched by their type through the tables of ``expressions`` and ``statements``, which
the generator is given. A call to another function of the language is inlined: its tree is visited
at the current insertion point with the argument values as its variables, so it is specialised on
their types and constexprs by nature.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tilewright import ir
from tilewright.errors import CompilationError, with_help
from tilewright.frontend import errors
from tilewright.frontend.analysis import NONE, Names
from tilewright.frontend.binding import bind
from tilewright.frontend.callees.differentiable_calls import call_custom, differentiable_call
from tilewright.frontend.callees.separate_functions import call_noinline
from tilewright.frontend.frame import RETURN_VALUE, Completion, FunctionFrame, Scope, Undefined
from tilewright.frontend.values import (
    describe,
    describe_type,
    unflatten,
)
from tilewright.language.binding import is_builtin
from tilewright.language.core import base_type, constexpr, constexpr_type, tensor
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.definitions.callable import ConstexprFunction, JitCallable
from tilewright.language.definitions.custom_derivative import CustomDerivative, DifferentiableCall
from tilewright.language.semantic import Options, Semantic
from tilewright.recursion import SPLIT

#: Calls nested deeper than this are a recursion that does not end.
MAX_DEPTH = 100

_CONDITIONS = (bool, int, type(None))

#: Evaluates an expression of one kind, at the current insertion point.
Expression = Callable[["ModuleGenerator", Any], Any]


class BlockVisitor(Protocol):
    """Visits the statements of a block."""

    def __call__(
        self, g: ModuleGenerator, statements: Sequence[ast.stmt], live: Names, follows: bool
    ) -> Completion:
        """Visit them at the current insertion point, in the current scope.

        Args:
            live: names live after the block.
            follows: statements follow the block before the target of a jump is reached, so the
                jump's flag is needed.
        """
        ...


class ModuleGenerator:
    """Generator of one Tile IR module.

    It holds what visiting needs and knows no kind of expression or statement itself: those are
    functions of a generator and a node, and come with it.

    Attributes:
        module: what is generated.
        semantic: the language's operations, at the current insertion point.
        frame: the function being visited; ``scope`` its variables now.
        call_node: the call being evaluated.
        callees: functions compiled on their own, with the types of their results, by
            specialization key; None while one is being compiled.
    """

    __slots__ = (
        "_block",
        "_expressions",
        "builder",
        "call_node",
        "callees",
        "frame",
        "module",
        "scope",
        "semantic",
    )

    frame: FunctionFrame
    scope: Scope

    def __init__(
        self,
        options: Options,
        expressions: Mapping[type[ast.expr], Expression],
        block: BlockVisitor,
    ) -> None:
        """Begin an empty module, given the visitors of expressions and statements."""
        self._expressions, self._block = expressions, block
        self.module = ir.Module()
        self.builder = ir.Builder()
        self.semantic = Semantic(self.builder, options, self)
        self.scope = {}
        self.call_node: ast.AST | None = None
        self.callees: dict[Any, tuple[ir.Function, base_type] | None] = {}

    # -- visiting ----------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr) -> Any:
        """Evaluate an expression.

        Raises:
            CompilationError: with the place of the innermost node that is wrong.
        """
        visit = self._expressions.get(node.__class__)
        if visit is None:
            raise errors.unsupported(self.frame, node, f"{type(node).__name__} is")
        try:
            return visit(self, node)
        except CompilationError as error:
            if error.file is None:
                raise self.relocated(node, error) from errors.cause(error)
            raise
        except Exception as error:
            raise self.relocated(node, error) from errors.cause(error)

    def block(self, body: Sequence[ast.stmt], live: Names, follows: bool) -> Completion:
        """Visit statements: see :class:`BlockVisitor`."""
        return self._block(self, body, live, follows)

    def locate(self, node: ast.AST) -> None:
        """Set the location of the operations that follow to that of ``node``."""
        frame = self.frame
        self.builder.location = ir.Location(
            frame.file,
            node.lineno + frame.line_offset,  # type: ignore[attr-defined]
            node.col_offset + frame.indent,  # type: ignore[attr-defined]
            frame.name,
            frame.site,
        )

    def relocated(self, node: ast.AST, error: Exception) -> CompilationError:
        """Relocate ``error`` to ``node`` of the function being visited."""
        if isinstance(error, RecursionError):
            return errors.located(self.frame, node, _TOO_NESTED, CompilationError)
        return errors.relocated(self.frame, node, error)

    def enter(self, region: ir.Region) -> tuple[Scope, Any]:
        """Move the insertion point into ``region``; return the state for :meth:`leave`."""
        builder = self.builder
        saved = self.scope, (builder.region, builder.before)
        builder.region, builder.before = region, None
        return saved

    def leave(self, scope: Scope, saved: Any) -> None:
        """Restore the insertion point and scope saved by :meth:`enter`."""
        self.scope = scope
        self.builder.region, self.builder.before = saved

    # -- conditions --------------------------------------------------------------------------------

    def condition(self, node: ast.expr) -> Any:
        """Evaluate the test of an ``if``: a compile-time bool, or a scalar tensor of int1."""
        return self.truth(node, self.evaluate(node))

    def truth(self, node: ast.expr, value: Any) -> Any:
        """Convert ``value`` to a condition: see :meth:`condition`."""
        if type(value) is constexpr:
            inner = value.value
            if type(inner) in _CONDITIONS:
                return bool(inner)
        elif isinstance(value, tensor):
            self.locate(node)
            if value.extents and value.numel.value == 1:
                line, _ = errors.position(self.frame, node)
                message = (
                    f"a condition of type {value.type} is used as a scalar; take its element "
                    "with `.item()` or reduce it"
                )
                warnings.warn_explicit(message, UserWarning, self.frame.file, line)
                value = self.semantic.scalar_of(value)
            try:
                return self.semantic.truth(value)
            except Exception as error:
                raise self.relocated(node, error) from errors.cause(error)
        message = (
            "a condition is a scalar tensor, or a constexpr of type bool, int or NoneType, not "
            f"{describe(value)}"
        )
        raise errors.located(
            self.frame,
            node,
            with_help(message, "compare it with something, or test it with `is not None`"),
            CompilationError,
        )

    def known_test(self, node: ast.expr, assigned: frozenset[str]) -> bool | None:
        """Return the outcome of a compile-time test that reads no name of ``assigned``, else None.

        Emits nothing.
        """
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            known = self.known_test(node.operand, assigned)
            return None if known is None else not known
        if isinstance(node, ast.BoolOp):
            decisive = isinstance(node.op, ast.Or)
            certain = True
            for part in node.values:
                outcome = self.known_test(part, assigned)
                if outcome is decisive:
                    return decisive
                certain = certain and outcome is not None
            return not decisive if certain else None
        for inner in ast.walk(node):
            kind = inner.__class__
            if kind is ast.Name:
                value = self.scope.get(inner.id)  # type: ignore[attr-defined]
                if inner.id in assigned or type(value) is Undefined:  # type: ignore[attr-defined]
                    return None
            elif kind in (ast.NamedExpr, ast.Lambda, ast.ListComp, ast.GeneratorExp):
                return None
        builder = self.builder
        saved, scope = (builder.region, builder.before, builder.location), self.scope
        builder.region, builder.before, self.scope = ir.Region(), None, dict(scope)
        try:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call):
                    fn = self.evaluate(inner.func)
                    if is_builtin(fn) or (
                        isinstance(fn, JitCallable) and not isinstance(fn, ConstexprFunction)
                    ):
                        return None
            value = self.evaluate(node)
            if type(value) is constexpr and type(value.value) in _CONDITIONS:
                return bool(value.value)
            return None
        except CompilationError:
            return None  # reported when the statement itself is visited
        finally:
            for operation in builder.region:
                operation.erase()
            builder.region, builder.before, builder.location = saved
            self.scope = scope

    # -- functions of the language -----------------------------------------------------------------

    def call(
        self, fn: JitCallable | constexpr, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Inline ``fn(*args, **kwargs)`` here, or emit a call if ``fn`` is ``noinline``.

        Raises:
            TypeError: the arguments do not fit the parameters.
            CompilationError: an error inside ``fn``, with the chain of calls.
        """
        callee: JitCallable = fn.value if isinstance(fn, constexpr) else fn
        scope = bind(callee, args, kwargs)
        if self.semantic.options.differentiated:
            if isinstance(callee, CustomDerivative):
                return call_custom(self, callee, scope)
        elif callee.noinline:
            return call_noinline(self, callee, scope)
        return self._visit(self._frame(callee), scope)

    def differentiable_call(self, call: DifferentiableCall) -> Any:
        """Emit a call of a function that has a derivative of its own."""
        return differentiable_call(self, call)

    #: the name that builtins written for Triton know
    call_JitFunction = call  # noqa: N815

    def region(
        self, fn: JitCallable, argument_types: Sequence[base_type]
    ) -> tuple[ir.Region, list[base_type]]:
        """Build a region with ``fn`` inlined on its arguments; also return the yielded types.

        Raises:
            TypeError: ``fn`` returns no value, or is no function of the language.
        """
        if not isinstance(fn, JitCallable) or isinstance(fn, ConstexprFunction):
            message = f"a function of the language is expected here, not {describe(fn)}"
            raise TypeError(
                with_help(message, "define it at module level and decorate it with @jit")
            )
        region = ir.Region([flat for type_ in argument_types for flat in type_.flatten()])
        location = self.builder.location
        outer, saved = self.enter(region)
        result = self.call(fn, unflatten(argument_types, region.arguments), {})
        found = result.values if isinstance(result, tl_tuple) else [result]
        if type(result) is constexpr and result.value is None:
            raise TypeError(f"{fn.__name__} must return a value here")
        tensors = [self.semantic.to_tensor(value) for value in found]
        self.builder.location = location
        self.builder.yield_([value.handle for value in tensors])
        self.leave(outer, saved)
        return region, [value.type for value in tensors]

    def _frame(self, fn: JitCallable) -> FunctionFrame:
        frame = FunctionFrame(fn, self.frame, self.call_node, self.builder.location)
        if frame.depth > MAX_DEPTH:
            raise errors.located(
                self.frame, self.call_node or frame.analysis.tree, _TOO_DEEP, CompilationError
            )
        return frame

    def _visit(self, frame: FunctionFrame, scope: Scope) -> Any:
        """Visit a function's body with the given variables, and return its value."""
        builder = self.builder
        outer = getattr(self, "frame", None), self.scope, self.call_node, builder.location
        self.frame, self.scope, self.call_node = frame, scope, None
        frame.region = builder.region
        done = self.block(frame.analysis.body, NONE, False)
        value = self._returned(frame, done)
        self.frame, self.scope, self.call_node, builder.location = outer  # type: ignore[assignment]
        return value

    def _returned(self, frame: FunctionFrame, done: Completion) -> Any:
        if not done.falls:
            return self.scope[RETURN_VALUE]
        for node, type_ in frame.returned:
            if not (isinstance(type_, constexpr_type) and type_.value is None) and done.jumps:
                line, _ = errors.position(frame, node)
                message = (
                    f"{frame.name} returns a value of type {describe_type(type_)} here, but "
                    "may also end without a return; its value is undefined then"
                )
                warnings.warn_explicit(message, UserWarning, frame.file, line)
                return self.scope[RETURN_VALUE]
        return constexpr(None)

    def visit_separate(self, fn: JitCallable, scope: Scope) -> Any:
        """Visit the body of a function that is compiled on its own; return its value."""
        frame = self._frame(fn)
        frame.separate, frame.site = True, None
        return self._visit(frame, scope)

    # -- the kernel --------------------------------------------------------------------------------

    def kernel(self, fn: JitCallable, function: ir.Function, scope: Scope) -> None:
        """Visit a kernel's body into ``function``, whose arguments ``scope`` holds.

        Raises:
            CompilationError: the kernel returns a value, or breaks any other rule.
        """
        self.module.add(function)
        self.builder.region, self.builder.before = function.body, None
        frame = FunctionFrame(fn)
        frame.own_lines = self.semantic.options.named_values
        self._visit(frame, scope)
        for node, type_ in frame.returned:
            if not (isinstance(type_, constexpr_type) and type_.value is None):
                message = with_help(
                    f"a kernel returns nothing, but this returns {describe_type(type_)}",
                    "write the value to memory with tl.store",
                )
                raise errors.located(frame, node, message, CompilationError)
        self.builder.location = function.location
        self.builder.return_([])


_TOO_DEEP = with_help(
    f"calls are nested deeper than {MAX_DEPTH}: this recursion does not end at compile time",
    "recursion must be on a tl.constexpr that reaches its base case",
)


_TOO_NESTED = with_help("the source is nested too deeply here to be compiled", SPLIT)
