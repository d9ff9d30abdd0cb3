"""Type promotion: the common type of two operands.

Floats win over integers and wider types over narrower ones; integers of one width follow C. A
number of the program text takes part with its value's own type unless its kind (boolean, integer,
float) is no higher than the tensor's: then the tensor's type stands.
"""

from __future__ import annotations

import functools
import math

from tilewright.errors import integer_text
from tilewright.language.value_types.dtypes import (
    bfloat16,
    dtype,
    float16,
    float32,
    float64,
    int1,
    int32,
    int64,
    uint32,
    uint64,
)

_LARGEST_F32 = (2 - 2**-23) * 2.0**127
_SMALLEST_NORMAL_F32 = 2.0**-126


def scalar_type(value: float | bool) -> dtype:
    """The type of a number of the program text.

    Booleans are ``int1``; integers the first of int32, uint32, int64, uint64 that holds them;
    floats fp32, or fp64 where the magnitude is not that of a normal fp32 (zero, infinity and NaN
    are fp32).

    Raises:
        ValueError: an integer needs more than 64 bits.
    """
    if value is True or value is False:
        return int1
    if isinstance(value, int):
        for type_ in (int32, uint32, int64, uint64):
            if type_.get_int_min_value() <= value <= type_.get_int_max_value():
                return type_
        raise ValueError(
            f"Nonrepresentable integer {integer_text(value)}: it needs more than 64 bits"
        )
    magnitude = abs(value)
    if (
        magnitude == 0.0
        or math.isinf(magnitude)
        or math.isnan(magnitude)
        or _SMALLEST_NORMAL_F32 <= magnitude <= _LARGEST_F32
    ):
        return float32
    return float64


def integer_promote(a: dtype, b: dtype) -> dtype:
    """Return the common type of two integers.

    It is the wider one where both are signed or both are not, else the unsigned one if it is at
    least as wide.
    """
    if a.int_signedness is b.int_signedness:
        return a if a.int_bitwidth > b.int_bitwidth else b
    unsigned, signed = (a, b) if a.is_int_unsigned() else (b, a)
    return unsigned if unsigned.int_bitwidth >= signed.int_bitwidth else signed


@functools.cache
def computation_type(
    a: dtype, a_is_scalar: bool, b: dtype, b_is_scalar: bool, div_or_mod: bool = False
) -> dtype:
    """The type in which ``a op b`` is computed; ``*_is_scalar`` marks a number of the program text.

    Args:
        div_or_mod: the operator is ``/``, ``//`` or ``%``: floats narrower than fp32 are computed
            in fp32, and integers must agree in signedness.

    Raises:
        TypeError: there is no such type.
    """
    if a_is_scalar != b_is_scalar:
        scalar, other = (a, b) if a_is_scalar else (b, a)
        if scalar.kind().value <= other.kind().value:
            return float32 if div_or_mod and _is_narrow(other) else other
    if float64 in (a, b):
        return float64
    if float32 in (a, b):
        return float32
    if float16 in (a, b):
        return float32 if div_or_mod else float16
    if bfloat16 in (a, b):
        return bfloat16 if a is b and not div_or_mod else float32
    if a.is_fp8() and b.is_fp8():
        if div_or_mod:
            return float32
        return a if a is b else float16
    if not (a.is_int() and b.is_int()):
        raise TypeError(f"unexpected type {a} and {b}: they have no common type; cast one of them")
    if div_or_mod and a.int_signedness is not b.int_signedness:
        raise TypeError(
            f"Cannot use /, // or % with {a} and {b} because they have different signedness; this "
            "is unlikely to give a useful answer. Cast them to the same signedness."
        )
    return integer_promote(a, b)


def _is_narrow(type_: dtype) -> bool:
    """Return whether a float has fewer bits than fp32."""
    return type_.is_floating() and type_.primitive_bitwidth < 32
