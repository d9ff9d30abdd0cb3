"""Types of elements: their names in every framework, accumulators, extremes."""

from __future__ import annotations

from typing import Any, NamedTuple

import tilewright.language as tl


class Accumulator(NamedTuple):
    """The type in which elements of another are added up."""

    name: str
    dtype: Any


def name_of(dtype: Any) -> str:
    """Return the name of a type of elements: ``float32`` of ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def is_floating(dtype: Any) -> bool:
    """Return whether elements are floats."""
    return name_of(dtype).startswith(("float", "bfloat"))


def accumulator_type(dtype: Any) -> Accumulator:
    """Return the type in which elements are added up."""
    name = name_of(dtype)
    if name == "float64":
        return Accumulator("float64", tl.float64)
    if is_floating(dtype):
        return Accumulator("float32", tl.float32)
    return Accumulator("int64", tl.int64)


def compared_type(dtype: Any) -> Any:
    """Return the type in which elements are compared, which has all of their values."""
    name = name_of(dtype)
    if is_floating(dtype):
        return accumulator_type(dtype).dtype
    if name in ("int64", "uint64", "uint32"):
        return getattr(tl, name)
    return tl.int32


def lowest(dtype: Any) -> float | int:
    """Return what no element is below: minus infinity, or the lowest integer."""
    name = name_of(dtype)
    if is_floating(dtype):
        return -float("inf")
    if name.startswith(("uint", "bool")):
        return 0
    return -(1 << int(name.removeprefix("int")) - 1)


def highest(dtype: Any) -> float | int:
    """Return what no element is above: infinity, or the highest integer."""
    name = name_of(dtype)
    if is_floating(dtype):
        return float("inf")
    if name == "bool":
        return 1
    if name.startswith("uint"):
        return (1 << int(name.removeprefix("uint"))) - 1
    return (1 << int(name.removeprefix("int")) - 1) - 1
