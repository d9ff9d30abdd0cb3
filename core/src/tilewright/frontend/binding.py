"""Bind the arguments of a call to the parameters of a function of the language, as Python does."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.errors import similar, with_help
from tilewright.frontend.values import lift
from tilewright.language.core import base_value, constexpr
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.definitions.callable import JitCallable


def bind(fn: JitCallable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Bind arguments to parameter names as Python does.

    Raises:
        TypeError: they do not fit the parameters.
    """
    params = fn.params
    bound: dict[str, Any] = {}
    given = len(args)
    position = 0
    for parameter in params:
        name = parameter.name
        if parameter.variadic:
            bound[name] = tl_tuple([as_argument(value) for value in args[position:]])
            position = given
            continue
        if position < given and not parameter.keyword_only:
            if name in kwargs:
                raise TypeError(f"{fn.__name__}() got multiple values for argument {name!r}")
            bound[name] = as_argument(args[position])
            position += 1
        elif name in kwargs:
            bound[name] = as_argument(kwargs[name])
        elif parameter.has_default:
            bound[name] = as_argument(parameter.default)
        else:
            missing = [
                p.name
                for p in params
                if not p.has_default
                and not p.variadic
                and p.name not in bound
                and p.name not in kwargs
            ]
            message = (
                f"{fn.__name__}() is missing {_plural('argument', missing)}: "
                f"{', '.join(map(repr, missing))}"
            )
            meant = (
                similar(keyword, missing, shortened=True)
                for keyword in kwargs
                if keyword not in fn.arg_names
            )
            raise TypeError(with_help(message, next(filter(None, meant), "")))
    if position < given:
        takes = sum(not parameter.keyword_only for parameter in params)
        raise TypeError(
            f"{fn.__name__}() takes {takes} positional "
            f"{'argument' if takes == 1 else 'arguments'}, not {given}"
        )
    for name in kwargs:
        if name not in bound or any(
            parameter.variadic and parameter.name == name for parameter in params
        ):
            message = (
                f"{fn.__name__}() has no parameter {name!r}; its parameters are "
                f"{', '.join(fn.arg_names)}"
            )
            raise TypeError(
                with_help(
                    message,
                    similar(
                        name,
                        (other for other in fn.arg_names if other not in kwargs),
                        shortened=True,
                    ),
                )
            )
    return bound


def as_argument(value: Any) -> Any:
    """Convert an argument or default to a value of the language.

    Raises:
        TypeError: there is none: the default of a parameter that has none.
    """
    if isinstance(value, base_value):
        return value
    if value is inspect.Parameter.empty:
        raise TypeError("an argument is missing")
    lifted = lift(value)
    return lifted if isinstance(lifted, base_value) else constexpr(lifted)


def _plural(word: str, items: Sequence[object]) -> str:
    return word if len(items) == 1 else f"{word}s"
