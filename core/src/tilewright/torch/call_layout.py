"""The arguments of an operator: tensors, integers and floats as lists, and a text for the rest.

Operators of ``torch.library`` have fixed types, and kernels have not: an argument may be a tensor
in one call and a number in another. The text is a list of (name, kind, value): values of tensors
and numbers are in the lists, and those of constants are in the text.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from tilewright.errors import LaunchError


class PackedCall(NamedTuple):
    """The arguments of a call, as an operator takes them.

    Attributes:
        tensors: tensors, in the order of the text.
        integers: integers, which may be symbolic.
        floats: floats.
        text: the layout, and the constants.
    """

    tensors: list[torch.Tensor]
    integers: list[Any]
    floats: list[float]
    text: str

    def named(self) -> dict[str, Any]:
        """Return the arguments by name."""
        return unpack(*self)


class BackwardCall(NamedTuple):
    """The arguments of a backward pass, as its operator takes them.

    Attributes:
        tensors, integers, floats, text: the call of the forward pass.
        saved: the outputs that were kept.
        cotangents: those of the outputs ``given``.
        given: outputs that have a cotangent.
        wanted: inputs whose gradients are wanted.
    """

    tensors: list[torch.Tensor]
    integers: list[Any]
    floats: list[float]
    text: str
    saved: list[torch.Tensor]
    cotangents: list[torch.Tensor]
    given: list[str]
    wanted: list[str]

    @property
    def call(self) -> PackedCall:
        """The call of the forward pass."""
        return PackedCall(*self[:4])


def pack(named: Mapping[str, Any], constants: Container[str]) -> PackedCall:
    """Pack arguments by name. ``torch.compile`` traces this function.

    Args:
        constants: names whose values are constants of the graph, numbers too.

    Raises:
        LaunchError: an argument is neither a tensor, a number, a text nor a tuple of such.
    """
    tensors: list[torch.Tensor] = []
    integers: list[Any] = []
    floats: list[float] = []
    layout: list[str] = []
    for name, value in named.items():
        text = "None"
        if isinstance(value, torch.Tensor):
            kind = "tensor"
            tensors.append(value)
        elif value is None or isinstance(value, bool | str):
            kind, text = "constant", repr(value)
        elif isinstance(value, float):
            if name in constants:  # as a text, for infinities are no literals
                kind, text = "constant float", repr(str(value))
            else:  # perhaps symbolic in a graph, and then without a text
                kind = "float"
                floats.append(value)
        elif isinstance(value, int | torch.SymInt):
            if name in constants:
                kind, text = "constant", str(int(value))
            else:
                kind = "integer"
                integers.append(value)
        elif isinstance(value, tuple) and all(isinstance(item, int | str) for item in value):
            kind, text = "constant", repr(value)
        else:
            raise LaunchError(
                f"argument {name!r} is a {type(value).__name__}: an operator takes tensors, "
                "numbers, texts and tuples of integers and texts; give other constants to "
                "tilewright.torch.function itself"
            )
        layout.append("(" + repr(name) + ", " + repr(kind) + ", " + text + "),")
    return PackedCall(tensors, integers, floats, "[" + "".join(layout) + "]")


@functools.lru_cache(maxsize=4096)
def _layout(text: str) -> tuple[tuple[str, str, Any], ...]:
    return tuple(ast.literal_eval(text))


def unpack(
    tensors: Iterable[Any], integers: Iterable[Any], floats: Iterable[float], text: str
) -> dict[str, Any]:
    """Return the arguments of a packed call, by name."""
    values = {"tensor": iter(tensors), "integer": iter(integers), "float": iter(floats)}
    named: dict[str, Any] = {}
    for name, kind, constant in _layout(text):
        if kind == "constant":
            named[name] = constant
        elif kind == "constant float":
            named[name] = float(constant)
        else:
            named[name] = next(values[kind])
    return named


def with_tensors(text: str, names: Iterable[str]) -> str:
    """Return the text of a call that has tensors of some names after its others."""
    return text[:-1] + "".join(f"({name!r}, 'tensor', None)," for name in names) + "]"


def tensor_names(text: str) -> list[str]:
    """Return the arguments that are tensors, in order."""
    return [name for name, kind, _ in _layout(text) if kind == "tensor"]
