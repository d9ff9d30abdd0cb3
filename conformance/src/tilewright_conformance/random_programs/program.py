"""A random program: a module, its grid, its arguments, and the tolerances of its outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import Module
from tilewright.ir.types import FLOATS, FloatType, IntType, Type
from tilewright.passes.math.float_formats import max_finite, min_exponent
from tilewright.reference.numerics import decode, encode, numpy_dtype
from tilewright_conformance.suite.comparison import MismatchError, Rules, compare

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ArrayArgument:
    """An array of ``count`` elements, filled by one of :data:`FILLS`."""

    element: Type
    count: int
    fill: str = "random"


@dataclass(frozen=True)
class NumberArgument:
    """A number."""

    type: Type
    value: int | float | bool


@dataclass(frozen=True)
class Output:
    """An argument that the program writes.

    ``ulp`` bounds the difference in units in the last place of the element type, relative to the
    larger of the value and ``scale``; 0 asks for equal values, signs of zeros included (any NaN
    equals any NaN).

    Attributes:
        payloads: whether the elements are payloads of exact mode, whose bits must be the same.
    """

    index: int
    element: Type
    ulp: float = 0.0
    scale: float = 0.0
    payloads: bool = False


@dataclass(frozen=True)
class Program:
    """A module, its grid, and how to make its arguments."""

    module: Module
    grid: tuple[int, int, int]
    parameters: tuple[ArrayArgument | NumberArgument, ...]
    outputs: tuple[Output, ...]
    seed: int

    def arguments(self) -> list[Any]:
        """Fresh arguments in the function's order; bf16 and fp8 elements are raw bits."""
        rng = np.random.default_rng(self.seed)
        return [
            one.value
            if isinstance(one, NumberArgument)
            else FILLS[one.fill](rng, one.element, one.count)
            for one in self.parameters
        ]


# ---- data


def random_array(rng: np.random.Generator, element: Type, count: int) -> Array:
    """Random data with a share of special values.

    These are zeros of both signs, ones and extremes, and for floats infinities, NaN and subnormals.
    """
    if isinstance(element, FloatType):
        numbers = rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)
        infinities = (np.inf, -np.inf) if element.has_infinity else ()
        special: Array = np.asarray(
            encode(
                np.array([*special_numbers(element), *infinities, *[np.nan] * 4, 0.5, -0.5]),
                element,
            )
        )
        ties = np.asarray(encode(np.array([0.0, *_near_ties(element)]), element))
        data = np.where(
            rng.random(count) < 0.05, rng.choice(ties, count), np.asarray(encode(numbers, element))
        )
    else:
        assert isinstance(element, IntType)
        data = _bits(rng, element, count)
        special = np.array(special_numbers(element), data.dtype)
    chosen = rng.random(count) < 0.15
    data[chosen] = rng.choice(special, int(chosen.sum()))
    return data


def _near_ties(element: FloatType) -> list[float]:
    """Numbers at or next to a tie of a narrower format, where rounding twice differs from once."""
    found = []
    for other in FLOATS:
        if other.mantissa + 2 < element.mantissa and element.bias >= other.bias:
            tie = 1.0 + 2.0 ** -(other.mantissa + 1)
            found += [tie, -tie, tie + 2.0**-element.mantissa, tie - 2.0**-element.mantissa]
    return found


def _bits(rng: np.random.Generator, element: Type, count: int) -> Array:
    dtype = numpy_dtype(element)
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).copy()


def special_numbers(element: Type) -> tuple[int | float, ...]:
    """The values at the edges of a type; each is a number of the type."""
    if isinstance(element, IntType):
        return tuple(
            dict.fromkeys((0, 1, 2, element.minimum, element.maximum, element.maximum // 2 + 1))
        )
    assert isinstance(element, FloatType)
    smallest, normal, largest = (
        2.0 ** min_exponent(element),
        2.0 ** (1 - element.bias),
        max_finite(element),
    )
    infinities = (np.inf, -np.inf) if element.has_infinity else ()
    zeros = (0.0, -0.0) if element.has_negative_zero else (0.0,)
    ends = (largest, -largest, normal, smallest, -smallest)
    return (*zeros, *infinities, np.nan, 1.0, -1.0, 0.5, -1.5, *ends)


def _whole(rng: np.random.Generator, element: Type, count: int) -> Array:
    """Small integers: adding a few is exact in every type, and none is NaN or a negative zero."""
    most = 1 if isinstance(element, FloatType) and element.is_fp8 else 8
    smallest = 0 if isinstance(element, IntType) and not element.signed else -most
    numbers = rng.integers(smallest, most, count, endpoint=True)
    return (
        np.asarray(encode(numbers.astype(np.float64), element))
        if isinstance(element, FloatType)
        else numbers.astype(numpy_dtype(element))
    )


def _place(rng: np.random.Generator, element: Type, count: int) -> Array:
    return rng.integers(0, 16, count).astype(numpy_dtype(element))


def _finite(rng: np.random.Generator, element: Type, count: int) -> Array:
    """Random data without NaN and infinities."""
    data = random_array(rng, element, count)
    if isinstance(element, FloatType):
        data[~np.isfinite(np.asarray(decode(data, element)))] = np.asarray(
            encode(np.float64(1.0), element)
        )
    return data


def _poison(rng: np.random.Generator, element: Type, count: int) -> Array:
    data = np.empty(count, numpy_dtype(element))
    data.view(np.uint8)[:] = 0xA5
    return data


#: how an array is filled -> (random numbers, element type, count) -> data
FILLS: dict[str, Callable[[np.random.Generator, Type, int], Array]] = {
    "random": random_array,
    "finite": _finite,
    "whole": _whole,  # small integers
    "place": _place,  # indices below 16
    # what no program may leave in what it should write, and must leave elsewhere
    "poison": _poison,
}


# ---- comparing


@functools.cache
def _unit(element: FloatType, scale: float) -> float:
    """The unit in the last place of numbers of the size of ``scale``."""
    exponent = max(int(np.frexp(scale)[1]) - 1, 1 - element.bias) if scale else 1 - element.bias
    return float(2.0 ** (exponent - element.mantissa))


def mismatch(output: Output, expected: Array, found: Array) -> str:
    """Describe the difference of an output; empty where there is none."""
    if np.array_equal(expected.view(np.uint8), found.view(np.uint8)):
        return ""
    if output.payloads:
        bits = f"uint{8 * expected.itemsize}"
        places = np.flatnonzero(expected.view(bits) != found.view(bits))
        first, wanted, got = places[0], expected.view(bits), found.view(bits)
        return (
            f"{len(places)} of {len(expected)} payloads differ, first at {first}: "
            f"{got[first]:#x} for {wanted[first]:#x}"
        )
    rules = Rules()
    if output.ulp and isinstance(output.element, FloatType):
        rules = Rules(
            output.ulp, atol=output.ulp * _unit(output.element, output.scale), zero_sign=False
        )
    try:
        compare(found, expected, output.element, rules, name="it")
    except MismatchError as error:
        return str(error).removeprefix(f"it ({output.element}): ")
    return ""
