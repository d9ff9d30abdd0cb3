"""Attribute access in kernels: on modules, values of the language and compile-time objects."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tilewright.errors import TilewrightError, similar, with_help
from tilewright.frontend.values import SIZES_ARE_ARGUMENTS, describe, lift
from tilewright.language import libdevice
from tilewright.language.core import base_value, constexpr, tensor
from tilewright.language.semantic import Semantic


def attribute(semantic: Semantic, value: Any, name: str) -> Any:
    """Evaluate the attribute access ``value.name``.

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
            raise AttributeError(
                with_help(message, _elsewhere(value, name) or similar(name, dir(value)))
            ) from None
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
    "item": (
        "a kernel has no values of Python: reduce to a scalar with tl.sum or tl.max, and go "
        "on with that"
    ),
    "size": "the number of elements is `.numel`",
    "mean": "divide a sum by a number: tl.sum(x, axis) / n",
    "stride": SIZES_ARE_ARGUMENTS,
    "unsqueeze": "add an axis with tl.expand_dims(x, axis), or x[:, None]",
    "fill_": "make a tile with tl.full(shape, value, dtype)",
}


_LANGUAGE = "tilewright.language"
_OF_THE_LANGUAGE = (_LANGUAGE, f"{_LANGUAGE}.math")
#: names of NumPy's and PyTorch's functions -> what kernels say
_SAID_OTHERWISE = {
    "all": "no element is zero: tl.min((x != 0).to(tl.int32), axis) != 0",
    "any": "some element is not zero: tl.max((x != 0).to(tl.int32), axis) != 0",
    "argsort": (
        "sort keys that hold their positions in the low bits: tl.sort(key * N + "
        "tl.arange(0, N)) % N"
    ),
    "concat": "put tiles together with tl.cat(a, b, can_reorder=True), or tl.join",
    "concatenate": "put tiles together with tl.cat(a, b, can_reorder=True), or tl.join",
    "einsum": "multiply tiles with tl.dot, or broadcast and tl.sum",
    "empty": "a tile has a value: tl.full(shape, 0, dtype)",
    "linspace": "scale a range: start + tl.arange(0, N) * step",
    "matmul": "use tl.dot",
    "mean": "divide a sum by a number: tl.sum(x, axis) / n",
    "norm": "take the root of a sum: tl.sqrt(tl.sum(x * x, axis))",
    "ones": "use tl.full(shape, 1, dtype)",
    "prod": "reduce with a function of the language that multiplies: tl.reduce(x, axis, multiply)",
    "roll": (
        "load from shifted offsets, or pick elements: tl.gather(x, (tl.arange(0, N) + shift) "
        "% N, axis=0)"
    ),
    "stack": "use tl.join(a, b), which makes the last axis",
    "std": "take the root of the variance, by tl.sum of x and of x * x",
    "var": "take tl.sum of x and of x * x",
}


def _elsewhere(module: ModuleType, name: str) -> str:
    """Return the remedy for a NumPy or PyTorch function that the language spells differently."""
    if module.__name__ not in _OF_THE_LANGUAGE:
        return ""
    if name in _SAID_OTHERWISE:
        return _SAID_OTHERWISE[name]
    if module.__name__ != _LANGUAGE and callable(getattr(sys.modules[_LANGUAGE], name, None)):
        return f"use tl.{name}"
    return f"use tl.extra.libdevice.{name}" if callable(getattr(libdevice, name, None)) else ""


def _no_attribute(value: Any, name: str, error: AttributeError) -> str:
    if isinstance(value, tensor):
        return with_help(
            f"a tensor of type {value.type} has no attribute {name!r}",
            _ELSEWHERE.get(name) or similar(name, dir(value)),
        )
    if isinstance(value, base_value) and type(value) is not constexpr:
        return str(error)
    return f"{describe(value)} has no attribute {name!r}"
