"""Calls: evaluation of the arguments and resolution of the callee."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from tilewright.errors import CompilationError, helped, with_help
from tilewright.frontend import remedies
from tilewright.frontend.binding import as_argument
from tilewright.frontend.errors import cause, located, source_of, unsupported
from tilewright.frontend.generator import ModuleGenerator
from tilewright.frontend.host_calls import call_host
from tilewright.frontend.python_builtins import PYTHON_BUILTINS, PythonBuiltin, items_of, plain
from tilewright.frontend.values import describe, is_number, lift
from tilewright.language.binding import BoundCallable, is_builtin, is_host_function
from tilewright.language.builtin_functions.debug import static_assert
from tilewright.language.builtin_functions.iteration import condition as tl_condition
from tilewright.language.builtin_functions.iteration import range as tl_range
from tilewright.language.builtin_functions.iteration import static_range
from tilewright.language.core import base_type, base_value, constexpr, tensor
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.definitions.callable import (
    BoundConstexprFunction,
    ConstexprFunction,
    JitCallable,
)
from tilewright.language.value_types.dtypes import dtype
from tilewright.language.value_types.values import unwrap_if_constexpr

_ITERATION = (tl_range, static_range, tl_condition)
_RANGE = PYTHON_BUILTINS["range"]
#: Modules whose functions are evaluated while compiling, on compile-time values.
_EVALUATED_MODULES = frozenset({"math", "cmath", "_operator", "operator"})
_LANGUAGE = "tilewright.language"


def call(g: ModuleGenerator, node: ast.Call) -> Any:
    """Evaluate a call."""
    return call_function(g, node, _called(g, node))


def _called(g: ModuleGenerator, node: ast.Call) -> Any:
    """Resolve the callee of a call.

    Raises:
        CompilationError: the value has no such method.
    """
    try:
        return g.evaluate(node.func)
    except CompilationError as error:
        if (
            isinstance(node.func, ast.Attribute)
            and isinstance(error.__cause__, AttributeError)
            and error.node is node.func
        ):
            remedy = remedies.of_method(g, node, node.func)
            if remedy:
                raise located(
                    g.frame, node.func, with_help(error.message, remedy), CompilationError
                ) from error.__cause__
        raise


def call_function(g: ModuleGenerator, node: ast.Call, fn: Any) -> Any:
    """Evaluate the call ``node``, whose callee was resolved to ``fn``.

    Raises:
        CompilationError: always at ``node`` or a node inside it.
    """
    try:
        return _call(g, node, fn)
    except CompilationError as error:
        if error.file is None:
            raise g.relocated(node, error) from cause(error)
        raise
    except Exception as error:
        remedy = remedies.of_call(g, node, fn, error)
        raise g.relocated(node, helped(error, remedy) if remedy else error) from cause(error)


def _call(g: ModuleGenerator, node: ast.Call, fn: Any) -> Any:
    if fn is static_assert:
        return _static_assert(g, node)
    args, kwargs = _arguments(g, node)
    g.locate(node)
    if fn.__class__ is type and fn in _ITERATION:
        raise _outside_loop(g, node, fn)
    saved, g.call_node = g.call_node, node
    result = invoke(g, fn, args, kwargs)
    g.call_node = saved
    return result


def _static_assert(g: ModuleGenerator, node: ast.Call) -> Any:
    """Evaluate a ``static_assert``; its message is evaluated only if the condition fails.

    Raises:
        CompileTimeAssertionFailure: the condition fails.
        TypeError: there are other arguments.
    """
    given: dict[str | None, ast.expr] = dict(zip(("cond", "msg"), node.args, strict=False))
    given.update((keyword.arg, keyword.value) for keyword in node.keywords)
    if (
        len(node.args) + len(node.keywords) != len(given)
        or "cond" not in given
        or not given.keys() <= {"cond", "msg"}
    ):
        raise TypeError("static_assert takes a condition and a message")
    condition = g.evaluate(given["cond"])
    g.locate(node)
    if isinstance(condition, base_value) and not isinstance(condition, constexpr):
        return static_assert(condition, _semantic=g.semantic)
    message: Any = constexpr("")
    if not (condition.value if type(condition) is constexpr else condition) and "msg" in given:
        try:
            message = g.evaluate(given["msg"])
        except CompilationError as error:
            message = constexpr(f"<the message cannot be evaluated: {error.message}>")
    return lift(static_assert(condition, message, _semantic=g.semantic))


def call_statement(g: ModuleGenerator, node: ast.Call) -> None:
    """Evaluate a call whose result is dropped.

    Raises:
        CompilationError: the function's result must be used.
    """
    fn = _called(g, node)
    target = (
        fn.fn
        if isinstance(fn, BoundCallable)
        else fn.__func__
        if isinstance(fn, BoundConstexprFunction)
        else fn
    )
    must_use = (
        getattr(target, "_must_use_result", None) if not isinstance(target, base_value) else None
    )
    if must_use:
        why = f" {must_use}" if isinstance(must_use, str) else ""
        message = with_help(
            f"the result of {_name_of(target)} is dropped", f"assign it: x = {source_of(node)}"
        )
        raise located(
            g.frame,
            node,
            message,
            CompilationError,
            f"The result of {source_of(node.func)} is not being used.{why}",
        )
    call_function(g, node, fn)


def _arguments(g: ModuleGenerator, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    for argument in node.args:
        if argument.__class__ is ast.Starred:
            args.extend(items_of(g.evaluate(argument.value)))
        else:
            args.append(g.evaluate(argument))
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise unsupported(
                g.frame, keyword.value, "** in a call is", "name each keyword argument"
            )
        kwargs[keyword.arg] = g.evaluate(keyword.value)
    return args, kwargs


def invoke(g: ModuleGenerator, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call any callable ``fn`` with values of a kernel.

    Raises:
        TypeError: it cannot be called, or not with these arguments.
    """
    stated = False
    while True:
        if isinstance(fn, BoundCallable):
            fn, args = fn.fn, [fn.receiver, *args]
        elif type(fn) is constexpr:
            fn, stated = fn.value, True
        elif (
            getattr(fn, "_is_aggregate", False)
            and not isinstance(fn, type)
            and hasattr(fn, "__call__")  # noqa: B004
        ):
            fn = fn.__call__
        else:
            break
    if isinstance(fn, JitCallable):
        if isinstance(fn, ConstexprFunction):
            return lift(_evaluate_constexpr(fn, args, kwargs, g))
        return g.call(fn, args, kwargs)
    if is_builtin(fn) or is_host_function(fn):
        return lift(call_host(g, fn, args, kwargs))
    if isinstance(fn, PythonBuiltin):
        return fn.implementation(g, args, kwargs)
    if isinstance(fn, BoundConstexprFunction):
        return lift(_evaluate_constexpr(fn, args, kwargs, g))
    if isinstance(fn, type):
        return _construct(g, fn, args, kwargs)
    if stated and isinstance(fn, FunctionType) and not (fn.__module__ or "").startswith(_LANGUAGE):
        # a function that the program declares constant: it receives the kernel's values unchanged,
        # and is not part of the kernel
        return lift(
            fn(*map(_as_it_is, args), **{name: _as_it_is(value) for name, value in kwargs.items()})
        )
    if isinstance(fn, BuiltinFunctionType | FunctionType | MethodType) or callable(fn):
        return _host_function(fn, args, kwargs)
    if isinstance(fn, dtype):
        return _conversion(g, fn, args, kwargs)
    raise TypeError(f"{describe(fn)} cannot be called")


def _conversion(
    g: ModuleGenerator, type_: dtype, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tensor:
    """Evaluate a conversion such as ``tl.float32(x)``, of a tensor or a number.

    Raises:
        TypeError: there is another number of arguments, or no such conversion.
    """
    if len(args) != 1 or kwargs:
        name = repr(type_).rpartition(".")[2]
        raise TypeError(
            with_help(
                f"{name} converts one value, and is given {len(args) + len(kwargs)}",
                f"convert with `.to(tl.{name})`",
            )
        )
    (value,) = args
    if isinstance(value, tensor):
        converted: tensor = g.semantic.convert(value, type_)
        return converted
    if is_number(value) and not type_.is_ptr():
        return g.semantic.full((), value, type_)
    return g.semantic.cast(g.semantic.to_tensor(value), type_)


def _as_it_is(value: Any) -> Any:
    """Return an argument for a host function.

    Types and values of the language are passed unchanged, other compile-time values as constants.
    """
    return value if isinstance(value, base_type) else as_argument(value)


def _evaluate_constexpr(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], g: ModuleGenerator
) -> Any:
    name = _name_of(fn)
    for value in (*args, *kwargs.values()):
        if (
            isinstance(value, base_value)
            and value.flatten()
            and not getattr(value, "_is_aggregate", False)
        ):
            message = (
                f"{name} runs at compile time: its arguments must be constexprs, not "
                f"{describe(value)}"
            )
            raise TypeError(
                with_help(message, "pass a constexpr, or decorate the function with @jit")
            )
    return fn(*args, _semantic=g.semantic, **kwargs)


def _construct(
    g: ModuleGenerator,
    cls: type,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Construct an instance of a class that kernels may instantiate."""
    if cls is constexpr:
        (value,) = args
        if g.semantic.options.named_values and isinstance(value, tensor):
            return value
        return constexpr(plain(value, "tl.constexpr()"))
    if cls is tl_tuple:
        return tl_tuple(items_of(args[0]))
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return tl_tuple(cls(*args, **kwargs))
    if issubclass(cls, base_type):
        values = [plain(value, cls.__name__) for value in args]
        return cls(*values, **{name: plain(value, cls.__name__) for name, value in kwargs.items()})
    if issubclass(cls, BaseException):
        raise TypeError("kernels raise no exceptions")
    raise TypeError(
        with_help(
            f"{cls.__name__} cannot be made in a kernel: it is a plain Python class",
            "make it an aggregate or a namedtuple",
        )
    )


def _host_function(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Evaluate a plain Python function at compile time.

    Allowed are functions of :mod:`math`, functions of the language, and methods of compile-time
    values.
    """
    owner = getattr(fn, "__self__", None)
    name = _name_of(fn)
    of_value = owner is not None and not isinstance(owner, ModuleType | base_value)
    if (
        of_value
        or getattr(fn, "__module__", None) in _EVALUATED_MODULES
        or isinstance(owner, constexpr)
    ):
        if (
            not of_value
            and fn is not getattr(math, name, None)
            and getattr(fn, "__module__", None) == "math"
        ):
            raise TypeError(f"{name} cannot be called from a kernel")
        try:
            values = [plain(value, f"{name}()") for value in args]
            named = {key: plain(value, f"{name}()") for key, value in kwargs.items()}
        except TypeError as error:
            raise TypeError(with_help(str(error), remedies.of_library(fn, name))) from None
        return lift(fn(*values, **named))
    if str(getattr(fn, "__module__", "")).startswith(_LANGUAGE):
        # A function of the language that describes, such as get_int_dtype.
        return lift(
            fn(
                *map(unwrap_if_constexpr, args),
                **{key: unwrap_if_constexpr(value) for key, value in kwargs.items()},
            )
        )
    if owner is builtins:
        raise TypeError(f"Python's {name}() is not available in a kernel")
    message = f"{name} is a plain Python function: a kernel cannot call it"
    own = remedies.of_library(fn, name)
    raise TypeError(
        with_help(
            message,
            own or "decorate it with @jit, or with @constexpr_function if it runs at compile time",
        )
    )


def _name_of(fn: Any) -> str:
    while isinstance(fn, BoundCallable | BoundConstexprFunction):
        fn = fn.fn if isinstance(fn, BoundCallable) else fn.__func__
    return getattr(fn, "__name__", None) or repr(fn)


def iterable(g: ModuleGenerator, node: ast.expr) -> Any:
    """Evaluate the iterable of a loop: a ``tl.range``, a ``static_range``, or any value.

    Python's ``range`` becomes a ``tl.range``.
    """
    if isinstance(node, ast.Call):
        fn = g.evaluate(node.func)
        if type(fn) is constexpr:
            fn = fn.value
        if fn is _RANGE or fn is tl_range or fn is static_range:
            args, kwargs = _arguments(g, node)
            g.locate(node)
            made = static_range if fn is static_range else tl_range
            try:
                return made(*args, **kwargs)
            except (TypeError, ValueError) as error:
                raise g.relocated(node, error) from cause(error)
        return call_function(g, node, fn)
    return g.evaluate(node)


def loop_condition(g: ModuleGenerator, node: ast.expr) -> Any:
    """Evaluate the test of a ``while`` loop, which may be a ``tl.condition``."""
    if isinstance(node, ast.Call):
        fn = g.evaluate(node.func)
        if fn is tl_condition:
            args, kwargs = _arguments(g, node)
            return tl_condition(*args, **kwargs)
        return call_function(g, node, fn)
    return g.evaluate(node)


def _outside_loop(g: ModuleGenerator, node: ast.Call, fn: Any) -> CompilationError:
    where = "`while`" if fn is tl_condition else "`for ... in`"
    return located(g.frame, node, f"tl.{fn.__name__} is only for {where}", CompilationError)
