"""Exact values of mathematical functions on arrays, as ``longdouble``.

It has enough digits to measure errors of f64 in units in the last place.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright_conformance.oracles.elementary import ELEMENTARY, working
from tilewright_conformance.oracles.special import SPECIAL

#: Every function there is an exact value of, by its name in the device library.
FUNCTIONS = ELEMENTARY | SPECIAL


def exact(name: str, *operands: NDArray[Any]) -> NDArray[np.longdouble]:
    """The function of finite numbers inside its domain, element by element.

    Raises:
        decimal.InvalidOperation: a number is outside of the domain.
    """
    function = FUNCTIONS[name]
    with working():
        values = [
            function(*(Decimal(number) for number in numbers))
            for numbers in zip(*(array.tolist() for array in operands), strict=True)
        ]
    return np.array([_kept(value) for value in values], np.longdouble)


#: decimal exponents that ``longdouble`` has, less a few
_MIN_EXPONENT, _MAX_EXPONENT = (
    int(np.log10(np.finfo(np.longdouble).smallest_normal)) + 2,
    int(np.log10(np.finfo(np.longdouble).max)) - 2,
)


def _kept(value: Decimal) -> np.longdouble:
    """Round to ``longdouble``; magnitudes beyond all float formats become zero or infinity."""
    if _MIN_EXPONENT < value.adjusted() < _MAX_EXPONENT and value:
        return np.longdouble(f"{value:.30e}")
    return np.longdouble(float(value))
