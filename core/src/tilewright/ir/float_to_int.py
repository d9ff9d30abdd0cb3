"""Semantics of float-to-integer casts out of range: those of PTX's ``cvt.rzi``.

The reference, constant folding and every backend share them.

Numbers beyond the ends of the integer's range saturate. There are no conversions to 8 bits: the low
byte of the 16-bit result is the result. NaN becomes 0, or the sign bit alone where f64 or a 64-bit
integer takes part.
"""

from __future__ import annotations

from tilewright.ir.types import F64, FloatType, IntType


def conversion_type(result: IntType) -> IntType:
    """Return the type to which a conversion to ``result`` saturates: ``result`` itself, or 16 bits
    for 8."""
    return IntType(16, result.signed) if result.bits == 8 else result


def integer_of_nan(source: FloatType, result: IntType) -> int:
    """Return what NaN of ``source`` is as a number of ``result``, a type of at least 16 bits."""
    if source is not F64 and result.bits != 64:
        return 0
    return result.wrap(1 << (result.bits - 1))


def integer_of_float(x: float, source: FloatType, result: IntType) -> int:
    """Return the cast of a number of ``source``; ``result`` is not i1."""
    through = conversion_type(result)
    if x != x:
        return result.wrap(integer_of_nan(source, through))
    low, high = through.minimum, through.maximum
    saturated = low if x <= low else high if x >= high else int(x)
    return result.wrap(saturated)
