"""Attributes of whatever a kernel has: modules, values of the language, and objects known while compiling."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tilewright.errors import TilewrightError, similar, with_help
from tilewright.frontend.values import SIZES_ARE_ARGUMENTS, describe, lift
from tilewright.language import libdevice
from tilewright.language.core import base_value, constexpr, tensor
from tilewright.language.semantic import Semantic


def attribute(semantic: Semantic, value: Any, name: str) -> Any:
    """``value.name``.

    Raises:
        AttributeError: there is none.
        NameError: a module's attribute that kernels may not read.
    """
    if isinstance(value, ModuleType):
        try:
            found = getattr(value, name)
        except AttributeError as error:
            if isinstance(error, TilewrightError):  # says more than that there is none
                raise
            message = f"module {value.__name__} has no attribute {name!r}"
            raise AttributeError(with_help(message, similar(name, dir(value)) or _elsewhere(value, name))) from None
        return lift(found)
    try:
        found = semantic.attribute(value, name)
    except AttributeError as error:
        raise AttributeError(_no_attribute(value, name, error)) from error
    return lift(found)


#: names of NumPy's and PyTorch's arrays -> what kernels say
_ELSEWHERE = {
    "astype": "convert with `.to(dtype)`",
    "float": "convert with `.to(tl.float32)`",
    "half": "convert with `.to(tl.float16)`",
    "int": "convert with `.to(tl.int32)`",
    "item": "a kernel has no values of Python: reduce to a scalar with tl.sum or tl.max, and go on with that",
    "size": "the number of elements is `.numel`",
    "mean": "divide a sum by a number: tl.sum(x, axis) / n",
    "stride": SIZES_ARE_ARGUMENTS,
    "unsqueeze": "add an axis with tl.expand_dims(x, axis), or x[:, None]",
    "fill_": "make a tile with tl.full(shape, value, dtype)",
}


def _elsewhere(module: ModuleType, name: str) -> str:
    """For a function that the language keeps in its device library."""
    if module.__name__ != "tilewright.language" or not callable(getattr(libdevice, name, None)):
        return ""
    return f"use tl.extra.libdevice.{name}"


def _no_attribute(value: Any, name: str, error: AttributeError) -> str:
    if isinstance(value, tensor):
        return with_help(f"a tensor of type {value.type} has no attribute {name!r}", _ELSEWHERE.get(name) or similar(name, dir(value)))
    if isinstance(value, base_value) and type(value) is not constexpr:
        return str(error)
    return f"{describe(value)} has no attribute {name!r}"
