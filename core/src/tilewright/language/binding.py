"""Markers of Python functions as part of the language, and bindings of functions to values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.errors import HostCallError

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__tilewright_builtin__"


def builtin(fn: F) -> F:
    """Make ``fn`` callable from kernels.

    The compiler calls it while it builds the kernel, passing ``_semantic``.

    ``fn`` must take a keyword ``_semantic``; with a keyword ``_generator`` it gets what runs
    functions of the language, by ``_generator.call(fn, args, kwargs)``. Arguments arrive as
    tensors, constexprs, tuples or plain Python values. Called from ordinary Python it raises
    HostCallError, because there is no kernel under construction.

        @builtin
        def twice(x, _semantic=None):
            return _semantic.binary("add", x, x)
    """
    if not _takes(fn, "_semantic"):
        raise TypeError(f"builtin {fn.__name__} must take a keyword parameter _semantic")
    name, limit, with_generator = fn.__name__, _positional_limit(fn), _takes(fn, "_generator")

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if len(args) > limit:
            raise TypeError(
                f"{name}() takes {limit} positional {'argument' if limit == 1 else 'arguments'} at "
                f"most, not {len(args)}"
            )
        if kwargs.get("_semantic") is None:
            raise HostCallError(
                f"{name} can be called only inside a kernel. Did you forget to add @jit? "
                "(`_semantic` must be provided outside of kernels.)"
            )
        if with_generator and kwargs.get("_generator") is None:
            kwargs["_generator"] = kwargs["_semantic"].generator
        return fn(*args, **kwargs)

    setattr(wrapper, _MARK, True)
    return wrapper  # type: ignore[return-value]


def _takes(fn: Callable[..., Any], parameter: str) -> bool:
    code = getattr(fn, "__code__", None)
    if code is None:
        return parameter in inspect.signature(fn).parameters
    # Reading the code object is a tenth of the cost of a signature, and importing the language
    # decorates two hundred functions.
    return parameter in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _positional_limit(fn: Callable[..., Any]) -> float:
    """Return the number of positional arguments, without ``_semantic`` and ``_generator``."""
    code = getattr(fn, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        return float("inf")
    positional = code.co_varnames[: code.co_argcount]
    return code.co_argcount - ("_semantic" in positional) - ("_generator" in positional)


def extern(fn: F) -> F:
    """Mark a builtin that stands for a target's library function; the same as :func:`builtin`."""
    return builtin(fn)


def is_builtin(fn: Any) -> bool:
    """Return whether the compiler calls ``fn`` with ``_semantic=`` instead of compiling its source.

    It does for builtins and aggregate classes.
    """
    return getattr(fn, _MARK, False) is True


def mark_builtin(target: Any) -> Any:
    """Mark a class whose constructor takes ``_semantic``."""
    setattr(target, _MARK, True)
    return target


_HOST = "__tilewright_host_function__"


def mark_host_function(fn: Any) -> None:
    """Let kernels call a plain Python function, such as an aggregate's method, at build time."""
    setattr(fn, _HOST, True)


def is_host_function(fn: Any) -> bool:
    """Return whether ``fn`` is a plain function, or a method, that kernels may call."""
    return getattr(fn, _HOST, False) is True


def asked_for(fn: Any, semantic: Any) -> dict[str, Any]:
    """Return ``_semantic`` and ``_generator``, where a plain function has such parameters."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return {"_semantic": semantic} if is_builtin(fn) else {}
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found = {"_semantic": semantic} if "_semantic" in names or is_builtin(fn) else {}
    if "_generator" in names:
        found["_generator"] = None if semantic is None else semantic.generator
    return found


def must_use_result(x: Any, s: Any = True) -> Any:
    """Decorate a kernel-language function, so that it is an error to ignore its result.

    Args:
        x: the function, or the message if the decorator has an argument.
        s: a message that states the reason, or True for a default message.

    Returns:
        The function, or a decorator.

    Example:
        @tw.must_use_result
        @tw.jit
        def doubled(x):
            return x * 2
    """
    if isinstance(x, str):
        return lambda fn: must_use_result(fn, x)
    x._must_use_result = s
    return x


class BoundCallable:
    """A function written in the language with its first argument: what ``x.sum`` is in a kernel.

    The compiler calls ``fn`` with ``receiver`` before the other arguments.
    """

    __slots__ = ("fn", "receiver")

    def __init__(self, fn: Any, receiver: Any) -> None:
        self.fn = fn
        self.receiver = receiver

    def __repr__(self) -> str:
        return f"<{getattr(self.fn, '__name__', self.fn)} of {self.receiver}>"


class Member:
    """A function written in the language as a member of a class of values."""

    __slots__ = ("fn",)

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __get__(self, instance: Any, owner: type) -> Any:
        return self.fn if instance is None else BoundCallable(self.fn, instance)
