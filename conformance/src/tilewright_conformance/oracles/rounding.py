"""Rational numbers rounded to a binary format, by the definition of rounding."""

from __future__ import annotations

import math
from fractions import Fraction

from tilewright_conformance.oracles.dtypes import float_type


def rounded(exact: Fraction, mode: str, format_: str) -> float:
    """Round ``exact`` to a number of a format.

    ``rn`` rounds to nearest, ties to even, ``rz`` towards zero, ``rd`` down, ``ru`` up. A number
    beyond the range becomes infinity or the maximum, as the mode has it. A zero that a number is
    rounded to has its sign; zero itself is positive.
    """
    type_ = float_type(format_)
    fraction, minimum, maximum = type_.mantissa, 1 - type_.bias, type_.bias
    size = abs(exact)
    if size == 0:
        return 0.0
    sign = 1 if exact > 0 else -1  # the number itself may be beyond all floats
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    scale = max(exponent, minimum) - fraction
    units = size / Fraction(2) ** scale
    whole = math.floor(units)
    if mode == "rn":
        whole = round(units)  # ties to even
    elif units != whole and mode == ("ru" if exact > 0 else "rd"):
        whole += 1
    result = Fraction(whole) * Fraction(2) ** scale
    limit = (2 - Fraction(1, 2**fraction)) * Fraction(2) ** maximum
    if result > limit:
        away = mode == "rn" or mode == ("ru" if exact > 0 else "rd")
        return math.copysign(math.inf if away else float(limit), sign)
    return math.copysign(float(result), sign)
