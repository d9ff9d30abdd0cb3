"""Python builtins available in kernels, evaluated at compile time."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.errors import helped, with_help
from tilewright.frontend import breakpoints
from tilewright.frontend.attributes import attribute
from tilewright.frontend.generator import ModuleGenerator
from tilewright.frontend.values import SIZES_ARE_ARGUMENTS, describe, lift
from tilewright.language import math
from tilewright.language.builtin_functions import elementwise
from tilewright.language.builtin_functions.descriptors import (
    tensor_descriptor,
    tensor_descriptor_base,
)
from tilewright.language.core import base_value, constexpr, is_negative_zero, tensor
from tilewright.language.core import tuple as tl_tuple

Implementation = Callable[[ModuleGenerator, Sequence[Any], Mapping[str, Any]], Any]


def plain(value: Any, what: str) -> Any:
    """Return the Python value of a compile-time value.

    Raises:
        TypeError: it is computed at run time.
    """
    if type(value) is constexpr:
        return value.value
    if isinstance(value, tl_tuple):
        if value.flatten():
            raise TypeError(f"{what} takes values known at compile time, not {describe(value)}")
        return tuple(plain(item, what) for item in value.values)
    if isinstance(value, base_value):
        raise TypeError(f"{what} takes values known at compile time, not {describe(value)}")
    return value


def _len(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    (value,) = args
    if isinstance(value, tensor):
        if not value.extents:
            error = TypeError(f"{describe(value)} has no len(): it is a scalar")
            raise helped(error, SIZES_ARE_ARGUMENTS) if value.dtype.is_ptr() else error
        return constexpr(value.extents[0])
    if type(value) is constexpr:
        value = value.value
    try:
        return constexpr(len(value))
    except TypeError:
        raise TypeError(f"{describe(value)} has no len()") from None


def _evaluated(fn: Any) -> Implementation:
    """Wrap a builtin that works on plain Python values."""
    name = fn.__name__

    def implementation(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        what = f"{name}()"
        return constexpr(
            fn(
                *(plain(arg, what) for arg in args),
                **{key: plain(arg, what) for key, arg in kwargs.items()},
            )
        )

    return implementation


def _conversion(fn: Any, remedy: str) -> Implementation:
    name = fn.__name__

    def implementation(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if args and isinstance(args[0], tensor):
            raise TypeError(
                with_help(
                    f"{name}() takes a value known at compile time, not {describe(args[0])}", remedy
                )
            )
        return constexpr(fn(*(plain(arg, f"{name}()") for arg in args)))

    return implementation


def _extreme(fn: Any, remedy: str) -> Implementation:
    name = fn.__name__

    def implementation(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        values = list(args[0]) if len(args) == 1 and isinstance(args[0], tl_tuple) else list(args)
        if len(args) == 1 and isinstance(args[0], tensor) and args[0].extents:
            raise helped(
                TypeError(f"{name}() compares values, and is given one: {describe(args[0])}"),
                f"use tl.{name}(x, axis)",
            )
        if any(isinstance(value, tensor) for value in values):
            pairwise = elementwise.minimum if name == "min" else elementwise.maximum
            return functools.reduce(lambda a, b: pairwise(a, b, _semantic=g.semantic), values)
        numbers = [plain(value, f"{name}()") for value in values]
        for number in numbers:
            # Python's answer depends on the order of the operands there, a tensor's does not.
            if number != number:
                raise ValueError(f"{name}() of NaN is not defined at compile time; use {remedy}")
            if is_negative_zero(number):
                raise ValueError(f"{name}() of -0.0 is not defined at compile time; use {remedy}")
        return constexpr(fn(numbers))

    return implementation


def _isinstance(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    value, kinds = args
    choices = (
        tuple(_class(kind) for kind in kinds.values)
        if isinstance(kinds, tl_tuple)
        else _class(kinds)
    )
    if isinstance(value, choices):
        return constexpr(True)
    return constexpr(type(value) is constexpr and isinstance(value.value, choices))


def _class(kind: Any) -> Any:
    if type(kind) is constexpr:
        kind = kind.value
    return _CLASSES.get(kind, kind) if not isinstance(kind, base_value) else kind


def _getattr(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    value, name = args[0], plain(args[1], "getattr()")
    try:
        return attribute(g.semantic, value, name)
    except AttributeError:
        if len(args) > 2:
            return args[2]
        raise


def _hasattr(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        attribute(g.semantic, args[0], plain(args[1], "hasattr()"))
    except AttributeError:
        return constexpr(False)
    return constexpr(True)


def _print(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    from tilewright.language.builtin_functions.debug import device_print

    if not (args and type(args[0]) is constexpr and isinstance(args[0].value, str)):
        args = (constexpr(""), *args)
    return device_print(*args, _semantic=g.semantic, **kwargs)


def _list(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return tl_tuple([]) if not args else tl_tuple(items_of(args[0]))


def _abs(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    (value,) = args
    if isinstance(value, tensor):
        return math.abs(value, _semantic=g.semantic)
    return constexpr(abs(plain(value, "abs()")))


def _zip(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    strict = plain(kwargs.get("strict", False), "zip()")
    return tl_tuple(
        [tl_tuple(items) for items in zip(*(items_of(arg) for arg in args), strict=strict)]
    )


def _enumerate(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    start = plain(args[1] if len(args) > 1 else kwargs.get("start", 0), "enumerate()")
    return tl_tuple(
        [tl_tuple((constexpr(i), item)) for i, item in enumerate(items_of(args[0]), start)]
    )


def _reversed(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return tl_tuple(list(reversed(items_of(args[0]))))


def _type(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    raise TypeError(
        with_help(
            "type() is not supported in a kernel", "ask `x.dtype` or `x.type`, or use isinstance"
        )
    )


def _breakpoint(g: ModuleGenerator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if args or kwargs:
        raise TypeError("breakpoint() takes no arguments in a kernel")
    breakpoints.stop(g)
    return constexpr(None)


def items_of(value: Any) -> list[Any]:
    """Return the items of a tuple or compile-time sequence as values of a kernel.

    Raises:
        TypeError: it has none, or they are known only at run time.
    """
    if isinstance(value, tl_tuple):
        return list(value.values)
    inner = value.value if type(value) is constexpr else value
    if isinstance(inner, tuple | list | builtins.range | str):
        return [lift(item) for item in inner]
    start, end, step = (getattr(value, name, None) for name in ("start", "end", "step"))
    if all(type(part) is constexpr for part in (start, end, step)):
        items = builtins.range(start.value, end.value, step.value)  # type: ignore[union-attr]
        return [constexpr(i) for i in items]
    if all(part is not None for part in (start, end, step)):
        error = TypeError(
            "a range whose bounds are computed when the kernel runs has no items known at "
            "compile time"
        )
        raise helped(
            error,
            "loop over it with `for`, or take bounds that are known while compiling: parameters "
            "annotated tl.constexpr",
        )
    raise TypeError(f"{describe(value)} has no items known at compile time")


class PythonBuiltin:
    """A builtin of Python as the value of a name."""

    __slots__ = ("__name__", "implementation")

    def __init__(self, name: str, implementation: Implementation) -> None:
        self.__name__ = name
        self.implementation = implementation

    def __repr__(self) -> str:
        return f"<builtin {self.__name__}>"


PYTHON_BUILTINS: dict[str, Any] = {
    name: PythonBuiltin(name, implementation)
    for name, implementation in {
        "len": _len,
        "list": _list,
        "tuple": _list,
        "range": _evaluated(range),  # loops and comprehensions see it before this does
        "float": _conversion(float, "use `.to(tl.float32)`"),
        "int": _conversion(int, "use `.to(tl.int32)`"),
        "bool": _conversion(bool, "use `.to(tl.int1)`"),
        "str": _conversion(str, "print it with tl.device_print"),
        "isinstance": _isinstance,
        "getattr": _getattr,
        "hasattr": _hasattr,
        "print": _print,
        "min": _extreme(min, "tl.minimum"),
        "max": _extreme(max, "tl.maximum"),
        "abs": _abs,
        "any": _evaluated(any),
        "all": _evaluated(all),
        "zip": _zip,
        "enumerate": _enumerate,
        "reversed": _reversed,
        "type": _type,
        "breakpoint": _breakpoint,
    }.items()
}
#: Classes that a Python builtin stands for in ``isinstance``.
_CLASSES: dict[Any, Any] = {
    PYTHON_BUILTINS[name]: getattr(builtins, name)
    for name in ("list", "float", "int", "bool", "str", "range")
}
_CLASSES[PYTHON_BUILTINS["tuple"]] = (tuple, tl_tuple)
_CLASSES[tensor_descriptor] = tensor_descriptor_base  # one that the host made too

__all__ = ["PYTHON_BUILTINS", "PythonBuiltin", "items_of", "plain"]
