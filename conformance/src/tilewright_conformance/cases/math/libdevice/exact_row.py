"""A row of the tables of device library functions with exact results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
INF, NAN = math.inf, math.nan
MODES = ("rn", "rz", "rd", "ru")


@dataclass(frozen=True)
class Row:
    """One function for one element type.

    Attributes:
        name: in the device library.
        types: of its operands, as texts of Tile IR.
        result: the result's type.
        operands: makes them.
        expected: what the function is of them.
        through: types it is computed in, beyond its own.
        zero_sign: whether the sign of a zero result is settled.
    """

    name: str
    types: tuple[str, ...]
    result: str
    operands: Callable[[np.random.Generator], list[Array]]
    expected: Callable[..., Array]
    through: tuple[str, ...] = ()
    zero_sign: bool = True
