"""The parameters of an operation, by the annotations of its launch."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: An array of any framework.
Array = typing.NewType("Array", object)
#: A function of ``tilewright.jit`` that a kernel calls: each makes an operation of its own.
Function = typing.NewType("Function", object)

#: Annotation -> the type in schemas of ``torch.library``.
_SCHEMA_TYPES = {
    Array: "Tensor",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operation.

    Attributes:
        name: its name.
        kind: its type: :data:`Array`, :data:`Function`, ``int``, ``float``, ``bool`` or ``str``.
        is_optional: whether it may be None.
        default: its default; ``inspect.Parameter.empty`` where there is none.
    """

    name: str
    kind: Any
    is_optional: bool
    default: Any

    @property
    def schema(self) -> str:
        """The parameter in a schema of ``torch.library``."""
        return f"{_SCHEMA_TYPES[self.kind]}{'?' if self.is_optional else ''} {self.name}"


def parameters_of(launch: Callable[..., None], results: tuple[str, ...]) -> tuple[Parameter, ...]:
    """Return the parameters of a launch after the launcher and the results.

    Raises:
        TypeError: an annotation is missing, or is of no kind that there is; or the first
            parameters are not the launcher and the results.
    """
    hints = typing.get_type_hints(launch)
    given = list(inspect.signature(launch).parameters.values())
    head = tuple(each.name for each in given[1 : 1 + len(results)])
    if head != results:
        raise TypeError(f"{launch.__qualname__}: takes {head} where the results are {results}")
    found = []
    for each in given[1 + len(results) :]:
        kind, is_optional = _kind(hints.get(each.name))
        if kind is not Function and kind not in _SCHEMA_TYPES:
            raise TypeError(f"{launch.__qualname__}: {each.name} has no annotation of a known kind")
        found.append(Parameter(each.name, kind, is_optional, each.default))
    return tuple(found)


def _kind(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [each for each in typing.get_args(annotation) if each is not type(None)]
        if len(inner) == 1 and len(typing.get_args(annotation)) == 2:
            return inner[0], True
    return annotation, False
