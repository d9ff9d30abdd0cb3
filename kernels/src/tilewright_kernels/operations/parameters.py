"""The parameters of an operation, by the annotations of its launch."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: An array of any framework.
Array = typing.NewType("Array", object)
#: A list of arrays.
Arrays = typing.NewType("Arrays", object)
#: A function of ``tilewright.jit`` that a kernel calls: each makes an operation of its own.
Function = typing.NewType("Function", object)
#: An element type: callers pass that of any framework or its name, launches get its name.
DType = typing.NewType("DType", object)
#: A list of integers.
Ints = typing.NewType("Ints", Sequence[int])
#: A list of floats.
Floats = typing.NewType("Floats", Sequence[float])

#: Annotation -> the type in schemas of ``torch.library``.
_SCHEMA_TYPES = {
    Array: "Tensor",
    Arrays: "Tensor[]",
    DType: "str",
    Ints: "SymInt[]",
    Floats: "float[]",
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
        kind: its type: :data:`Array`, :data:`Arrays`, :data:`Function`, :data:`DType`,
            :data:`Ints`, :data:`Floats`, ``int``, ``float``, ``bool`` or ``str``.
        is_optional: whether it may be None.
        default: its default; ``inspect.Parameter.empty`` where there is none.
        is_mutated: whether the operation changes its arrays.
    """

    name: str
    kind: Any
    is_optional: bool
    default: Any
    is_mutated: bool = False

    def schema(self, alias: str) -> str:
        """Return the parameter in a schema of ``torch.library``.

        ``alias`` is the letter of its memory where it is mutated.
        """
        kind = _SCHEMA_TYPES[self.kind]
        if self.is_mutated:
            kind = kind.replace("Tensor", f"Tensor({alias}!)")
        return f"{kind}{'?' if self.is_optional else ''} {self.name}"


def parameters_of(
    launch: Callable[..., None], results: tuple[str, ...], mutated: Sequence[str] = ()
) -> tuple[Parameter, ...]:
    """Return the parameters of a launch after the launcher and the results.

    Raises:
        TypeError: an annotation is missing, or is of no kind that there is; or the first
            parameters are not the launcher and the results; or ``mutated`` names no array.
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
        found.append(Parameter(each.name, kind, is_optional, each.default, each.name in mutated))
    arrays = {each.name for each in found if each.kind in (Array, Arrays)}
    for name in mutated:
        if name not in arrays:
            raise TypeError(f"{launch.__qualname__}: mutated names {name!r}, which is no array")
    return tuple(found)


def _kind(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [each for each in typing.get_args(annotation) if each is not type(None)]
        if len(inner) == 1 and len(typing.get_args(annotation)) == 2:
            return inner[0], True
    return annotation, False
