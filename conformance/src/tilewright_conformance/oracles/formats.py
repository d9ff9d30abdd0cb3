"""Narrow float formats by their definition: the value of each bit pattern, and rounding to them.

It shares no code with the conversions of the compiler, as their oracle: a conversion searches all
values of a format.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir import types
from tilewright_conformance.oracles.dtypes import ELEMENTS


@dataclass(frozen=True)
class Format:
    """A binary float of sign, exponent and fraction.

    Attributes:
        exponent, fraction: bits of each.
        bias: the exponent's bias.
        special: the patterns that are no finite numbers. ``ieee``: the maximum exponent, for
            infinity and NaN. ``nan``: all ones, for NaN. ``unsigned_zero``: negative zero, for NaN.
    """

    exponent: int
    fraction: int
    bias: int
    special: str

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    def worth(self, patterns: NDArray[Any]) -> NDArray[np.float64]:
        """The values of patterns of bits; exact, for these formats are narrower than float64."""
        patterns = patterns.astype(np.int64)
        magnitude = patterns & ((1 << (self.bits - 1)) - 1)
        power, part = (
            magnitude >> self.fraction,
            (magnitude & ((1 << self.fraction) - 1)) * 2.0**-self.fraction,
        )
        value = np.where(
            power == 0,
            part * 2.0 ** (1 - self.bias),
            (1 + part) * 2.0 ** (power.astype(np.float64) - self.bias),
        )
        if self.special == "ieee":
            value = np.where(
                power == (1 << self.exponent) - 1, np.where(part == 0, np.inf, np.nan), value
            )
        elif self.special == "nan":
            value = np.where(magnitude == (1 << (self.bits - 1)) - 1, np.nan, value)
        value = np.where(patterns >> (self.bits - 1) != 0, -value, value)
        if self.special == "unsigned_zero":
            value = np.where(patterns == 1 << (self.bits - 1), np.nan, value)
        return value

    @cached_property
    def _magnitudes(self) -> NDArray[np.float64]:
        """The finite values from zero on: value i is that of pattern i."""
        values = self.worth(np.arange(1 << (self.bits - 1)))
        return values[np.isfinite(values)]

    @property
    def maximum(self) -> float:
        return float(self._magnitudes[-1])

    def nearest(self, values: NDArray[Any], rounding: str) -> NDArray[np.int64]:
        """Round finite values of magnitudes up to :attr:`maximum` to patterns.

        ``rtne`` rounds to nearest, ties to even, ``rtz`` towards zero.
        """
        values = values.astype(np.float64)
        size, known = np.abs(values), self._magnitudes
        below = np.searchsorted(known, size, side="right") - 1
        if rounding == "rtne":
            above = np.minimum(below + 1, len(known) - 1)
            gap, other = size - known[below], known[above] - size
            below = np.where((other < gap) | ((other == gap) & (below % 2 == 1)), above, below)
        negative = np.signbit(values) & ((below != 0) | (self.special != "unsigned_zero"))
        return np.asarray(below | np.where(negative, 1 << (self.bits - 1), 0), np.int64)

    def saturated(self, values: Any) -> Any:
        """Clamp numbers to the finite range of a format of 8 bits.

        The numbers are an array, a float or a rational. A conversion to nearest, and arithmetic in
        the format, rounds the clamped numbers. NaN, and numbers of wider formats, stay as they are.
        """
        if self.bits > 8:
            return values
        if isinstance(values, np.ndarray):
            return np.clip(values, -self.maximum, self.maximum)
        return values if values != values else max(-self.maximum, min(values, self.maximum))

    def rounded(self, values: NDArray[Any], rounding: str = "rtne") -> NDArray[np.float64]:
        """Round any numbers to this format; the result is float64.

        To nearest, numbers that would round to the one after the maximum overflow to infinity, but
        formats of 8 bits saturate. Towards zero, a finite number stays finite, and infinity becomes
        NaN in a format without.
        """
        values = values.astype(np.float64)
        if rounding == "rtne":
            values = np.asarray(self.saturated(values))
        size, overflow = np.abs(values), np.inf if self.special == "ieee" else np.nan
        inside = size <= self.maximum
        found = self.worth(self.nearest(np.where(inside, values, 0.0), rounding))
        found = np.where(inside, found, np.copysign(self.maximum, values))
        if rounding == "rtne":
            middle = self.maximum + (self._magnitudes[-1] - self._magnitudes[-2]) / 2
            # A tie goes to the even pattern; the maximum's pattern is even in one format alone.
            over = (size > middle) | ((size == middle) & (len(self._magnitudes) % 2 == 0))
            found = np.where(over, np.copysign(overflow, values), found)
        found = np.where(np.isinf(values), np.copysign(overflow, values), found)
        return np.asarray(np.where(np.isnan(values), np.nan, found))


def _format(type_: types.FloatType) -> Format:
    special = (
        "ieee" if type_.has_infinity else "nan" if type_.has_negative_zero else "unsigned_zero"
    )
    return Format(type_.bits - 1 - type_.mantissa, type_.mantissa, type_.bias, special)


_BY_TEXT = {str(type_): _format(type_) for type_ in types.FLOATS if type_.bits <= 16}
#: name in the language -> format of at most 16 bits
FORMATS: dict[str, Format] = {ELEMENTS[text]: row for text, row in _BY_TEXT.items()}


def format_of(name: str) -> Format:
    """Return the format of a type, by its text in Tile IR or its name in the language."""
    return _BY_TEXT.get(name) or FORMATS[name]


def saturated(values: Any, format_: object) -> Any:
    """Clamp numbers as :meth:`Format.saturated` does; the format is a type or a Tile IR name."""
    row = _BY_TEXT.get(str(format_))
    return values if row is None else row.saturated(values)
