"""Sine and cosine of float64, recomputed in integers where C libraries may lose digits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

#: Results of angles next to a multiple of pi/2 are below this. The minimum for any float64
#: is near 2**-61.
_SMALL = 2.0**-20
#: Binary digits of pi behind the point: those of the maximum float64, of the minimum rest, and of
#: the result.
_DIGITS = 1024 + 64 + 80


@functools.cache
def _quarter() -> int:
    """pi/2 in units of 2**-_DIGITS, by J. Machin's formula."""
    unit = 1 << (_DIGITS + 16)

    def inverse_tangent(n: int) -> int:
        power = unit // n
        total, k, sign = power, 3, -1
        while power:
            power //= n * n
            total += sign * (power // k)
            k, sign = k + 2, -sign
        return total

    return 2 * (4 * inverse_tangent(5) - inverse_tangent(239)) >> 16


def _careful(x: float, value: float, odd: int) -> float:
    """Recompute ``value`` from the digits of the angle's rest, which it is up to its sign.

    ``odd``: of an odd multiple of pi/2.
    """
    scaled = int(Fraction(abs(x)) * (1 << _DIGITS))
    multiple = round(Fraction(scaled, _quarter()))
    if multiple == 0 or multiple % 2 != odd:
        return value
    rest = float(Fraction(abs(scaled - multiple * _quarter()), 1 << _DIGITS))
    return float(np.copysign(rest - rest**3 / 6, value))


def _function(name: str, odd: int) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    plain = getattr(np, name)

    def evaluate(x: NDArray[np.float64]) -> NDArray[np.float64]:
        x = np.asarray(x)
        found = np.asarray(plain(x))
        small = (np.abs(found) < _SMALL) & (np.abs(x) > 1)
        if small.any():
            found = found.copy()
            found[small] = [
                _careful(angle, value, odd)
                for angle, value in zip(x[small].tolist(), found[small].tolist(), strict=True)
            ]
        return found

    return evaluate


sine = _function("sin", 0)
cosine = _function("cos", 1)
