"""A call of an operation on small arrays, with what it must return and what has gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sample:
    """A call of a public function on arrays that random numbers fill.

    Attributes:
        name: the function's, with a suffix where there are several samples of it.
        function, reference: take the arrays and the settings by name.
        arrays: argument -> an array of float64 or of integers, a list of such, or None.
        settings: arguments that are no arrays.
        own: those that the function alone takes.
        wrt: arguments that have gradients.
        dtypes: element types of arrays of floats.
        tolerance: multiple of the element type's tolerance, for sums of many terms.
        is_wide: whether rows are longer than a tile: instructions by the million.
        takes_out: whether the function takes ``out=``.
        any_strides: whether it takes arrays of any strides; of C order alone if not.
    """

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    arrays: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    wrt: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    tolerance: float = 1.0
    is_wide: bool = False
    takes_out: bool = True
    any_strides: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def exported(self) -> str:
        """Return the name by which the library exports the function."""
        return self.name.partition(" ")[0]


def normal(*shape: int, seed: int = 0) -> Any:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape)


def integers(low: int, high: int, *shape: int, seed: int = 0) -> Any:
    """Return integers of int32 from ``low`` to below ``high``."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)


def distribution(*shape: int, seed: int = 0) -> Any:
    """Return rows of probabilities, which sum to 1."""
    x = np.exp(normal(*shape, seed=seed))
    return x / x.sum(-1, keepdims=True)
