"""Parts and bits of numbers: exponents, remainders, reinterpretation, bit manipulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import types as ir_types
from tilewright.ir.expressions import select
from tilewright.language.device_math.elementary import copysign_of, is_nan, split
from tilewright.language.device_math.numbers import F32_F64, INFINITY, NAN, MathValue, function
from tilewright.language.value_types.dtypes import dtype, float32, float64, int32, int64, uint32

_MIN = -(2**31)
_MOST = 2**31 - 1


# -- floats ----------------------------------------------------------------------------------------


def _exponent(x: MathValue) -> MathValue:
    """floor(log2 |x|) of a finite x that is not 0, as a float."""
    size = abs(x)
    m, e = split(select((size > 0.0) & (size < INFINITY), size, 1.0))
    return select(m < 1.0, e - 1.0, e)


def ilogb(x: MathValue) -> MathValue:
    exponent = _exponent(x).cast(ir_types.I32)
    exponent = select(x.equals(0.0) | is_nan(x), _MIN, exponent)
    return select(abs(x).equals(INFINITY), _MOST, exponent)


def logb(x: MathValue) -> MathValue:
    exponent = select(x.equals(0.0), -INFINITY, _exponent(x))
    return select(abs(x).equals(INFINITY), INFINITY, select(is_nan(x), x, exponent))


def fdim(x: MathValue, y: MathValue) -> MathValue:
    return select(is_nan(x) | is_nan(y), x + y, select(x > y, x - y, 0.0))


def remainder(x: MathValue, y: MathValue) -> MathValue:
    """x - n y with n the integer nearest to x / y, ties to even.

    It is the remainder by 2 |y|, less |y| at most twice.
    """
    divisor = abs(y)
    largest = 2.0 ** (1022 if x.wide else 126)
    r = abs(x)
    r = select(
        divisor <= largest, r.apply("rem", select(divisor <= largest, divisor + divisor, 1.0)), r
    )
    # Twice r overflows where the divisor is large, half the divisor is inexact where it is small.
    small = divisor < 2.0 ** (-1021 if x.wide else -125)
    half = divisor * 0.5
    above = select(small, r + r > divisor, r > half)
    r = select(above, r - divisor, r)
    again = above & select(small, r + r >= divisor, r >= half)
    r = select(again, r - divisor, r)
    value = select(x < 0.0, -r, copysign_of(r, x * 0.0 + r))
    value = select(x.equals(0.0) | (r.equals(0.0)), copysign_of(r * 0.0, x), value)
    invalid = divisor.equals(0.0) | abs(x).equals(INFINITY) | is_nan(x) | is_nan(y)
    return select(invalid, NAN, select(divisor.equals(INFINITY), x, value))


def away(x: MathValue) -> MathValue:
    """Round to the nearest integer, ties away from zero.

    x is moved away from zero by the largest number below 0.5. The rounded sum reaches the next
    integer from 0.5 on, and from nowhere before; whole numbers too large for fractions stay.
    """
    below_half = 0.5 - 2.0 ** (-54 if x.wide else -25)
    return (x + copysign_of(x.like(below_half), x)).apply("trunc")


def saturate(x: MathValue) -> MathValue:
    return select(x > 0.0, select(x < 1.0, x, 1.0), 0.0)


# -- bits ------------------------------------------------------------------------------------------


def _unsigned(x: MathValue) -> MathValue:
    return x.bitcast(ir_types.IntType(64 if x.wide else 32, signed=False))


def reversed_bits(x: MathValue) -> MathValue:
    """Neighbours swapped in ever larger groups."""
    bits = _unsigned(x)
    width = 64 if x.wide else 32
    shift = 1
    while shift < width:
        mask = sum(((1 << shift) - 1) << position for position in range(0, width, 2 * shift))
        bits = ((bits >> shift) & mask) | ((bits & mask) << shift)
        shift *= 2
    return bits.bitcast(x.element)


def byte_perm(x: MathValue, y: MathValue, s: MathValue) -> MathValue:
    """Four bytes of the eight of y:x, each chosen by three bits of a nibble of s."""
    u64 = ir_types.IntType(64, signed=False)
    pool = _unsigned(x).cast(u64) | (_unsigned(y).cast(u64) << 32)
    selector = _unsigned(s).cast(u64)
    result = pool.like(0)
    for position in range(4):
        chosen = (selector >> (4 * position)) & 7
        result = result | (((pool >> (chosen << 3)) & 0xFF) << (8 * position))
    return result.cast(ir_types.IntType(32, signed=False)).bitcast(x.element)


def mul24(x: MathValue, y: MathValue) -> MathValue:
    """Multiply the low 24 bits, signed where the operands are; the low 32 bits of the result."""
    return ((x << 8) >> 8) * ((y << 8) >> 8)


def sad(x: MathValue, y: MathValue, z: MathValue) -> MathValue:
    difference = select(x > y, x - y, y - x)
    return difference + z


def _halves(x: MathValue, upper: bool) -> MathValue:
    bits = x.bits()
    return ((bits >> 32) if upper else bits).cast(ir_types.I32)


def join_halves(high: MathValue, low: MathValue) -> MathValue:
    upper = high.cast(ir_types.I64) << 32
    return (upper | (low.cast(ir_types.I64) & 0xFFFFFFFF)).bitcast(ir_types.F64)


def _rcp64h(x: MathValue) -> MathValue:
    """The reciprocal's upper half; the lower is zero."""
    return ((1.0 / x).bits() & -(1 << 32)).bitcast(ir_types.F64)


def _reinterpret(target: dtype) -> Callable[[MathValue], MathValue]:
    return lambda x: x.bitcast(target.ir_type)


_I32 = ("int32", "uint32")
_INTS = ("int32", "uint32", "int64", "uint64")
_F32 = ("fp32",)
_F64 = ("fp64",)

#: name, parameters, meaning, body, types it takes (None: fp32 and fp64), type of the result (None:
#: its arguments')
_ROWS: tuple[
    tuple[str, str, str, Callable[..., MathValue], tuple[str, ...] | None, dtype | None], ...
] = (
    (
        "ilogb",
        "x",
        (
            "The binary exponent of ``x`` as int32; the minimum of int32 for 0 and NaN, the "
            "maximum for infinity."
        ),
        ilogb,
        None,
        int32,
    ),
    ("logb", "x", "The binary exponent of ``x`` as a float.", logb, None, None),
    ("fdim", "x y", "``x - y`` where positive, else 0.", fdim, None, None),
    (
        "remainder",
        "x y",
        "``x - n*y`` with the integer n nearest to ``x / y``.",
        remainder,
        None,
        None,
    ),
    ("round", "x", "The nearest integer, ties away from zero, as a float.", away, None, None),
    (
        "llround",
        "x",
        "The nearest integer, ties away from zero, as int64.",
        lambda x: away(x).cast(ir_types.I64),
        None,
        int64,
    ),
    ("saturatef", "x", "``x`` clamped to [0, 1]; 0 for NaN.", saturate, _F32, None),
    ("rcp64h", "x", "The reciprocal of fp64 with the lower 32 bits zero.", _rcp64h, _F64, None),
    ("brev", "x", "The bits of an integer in reverse order.", reversed_bits, _INTS, None),
    (
        "byte_perm",
        "x y z",
        (
            "Four of the eight bytes of ``y``:``x``, chosen by the low three bits of the four low "
            "nibbles of ``z``."
        ),
        byte_perm,
        _I32,
        None,
    ),
    ("mul24", "x y", "Multiply the low 24 bits; the low 32 bits of the result.", mul24, _I32, None),
    ("sad", "x y z", "``|x - y| + z`` of 32-bit integers.", sad, _I32, None),
    (
        "hadd",
        "x y",
        "``(x + y) >> 1`` without overflow.",
        lambda x, y: (x & y) + ((x ^ y) >> 1),
        _I32,
        None,
    ),
    (
        "rhadd",
        "x y",
        "``(x + y + 1) >> 1`` without overflow.",
        lambda x, y: (x | y) - ((x ^ y) >> 1),
        _I32,
        None,
    ),
    (
        "hiloint2double",
        "x y",
        "The fp64 whose upper and lower halves have the bits of two int32.",
        join_halves,
        ("int32",),
        float64,
    ),
    (
        "double2loint",
        "x",
        "The lower half of the bits of fp64, as int32.",
        lambda x: _halves(x, False),
        _F64,
        int32,
    ),
    (
        "double2hiint",
        "x",
        "The upper half of the bits of fp64, as int32.",
        lambda x: _halves(x, True),
        _F64,
        int32,
    ),
    ("int_as_float", "x", "The bits of int32 as fp32.", _reinterpret(float32), ("int32",), float32),
    ("float_as_int", "x", "The bits of fp32 as int32.", _reinterpret(int32), _F32, int32),
    (
        "uint_as_float",
        "x",
        "The bits of uint32 as fp32.",
        _reinterpret(float32),
        ("uint32",),
        float32,
    ),
    ("float_as_uint", "x", "The bits of fp32 as uint32.", _reinterpret(uint32), _F32, uint32),
    (
        "longlong_as_double",
        "x",
        "The bits of int64 as fp64.",
        _reinterpret(float64),
        ("int64",),
        float64,
    ),
    ("double_as_longlong", "x", "The bits of fp64 as int64.", _reinterpret(int64), _F64, int64),
)
FUNCTIONS: dict[str, Any] = {
    name: function(name, parameters, meaning, body, names=types or F32_F64, result=result)
    for name, parameters, meaning, body, types, result in _ROWS
}
