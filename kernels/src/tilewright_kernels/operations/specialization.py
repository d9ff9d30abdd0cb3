"""Functions of an operation with some of their arguments given."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def without_parameters(
    function: Callable[..., Any], given: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a function without the parameters in ``given``, which it takes by position."""
    signature = inspect.signature(function)
    names = list(signature.parameters)
    inserted = [(at, given[name]) for at, name in enumerate(names) if name in given]

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        every = list(arguments)
        for position, value in inserted:
            every.insert(position, value)
        return function(*every)

    called.__signature__ = signature.replace(
        parameters=[each for name, each in signature.parameters.items() if name not in given]
    )
    return called
