"""Representation of Tile IR's element types in NumPy arrays, and float rounding.

    i1                       bool
    i8 .. i64, u8 .. u64     the NumPy integer of that width and signedness
    f16 f32 f64              the NumPy float
    bf16, fp8 kinds          raw bits, as uint16 and uint8: NumPy has no such floats
    pointers                 addresses, as int64

Encoding rounds once, from float64, so that every narrower format is reached without double
rounding. The formats follow IEEE 754 and the OCP 8-bit floating point specification; the ``fnuz``
kinds have one NaN, the encoding of negative zero; ``f8e4b15`` is ``f8e4m3fn`` with bias 15.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.float_to_int import conversion_type, integer_of_nan
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    FloatType,
    IntType,
    PointerType,
    Type,
    element_type,
)

#: An array or a NumPy scalar: results of arithmetic on scalars are either.
Array = Any

_FLOAT_DTYPES: dict[Type, np.dtype[Any]] = {
    F16: np.dtype(np.float16),
    F32: np.dtype(np.float32),
    F64: np.dtype(np.float64),
}
_BIT_DTYPES: dict[int, np.dtype[Any]] = {bits: np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}
_ADDRESS = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)


@functools.cache
def numpy_dtype(type_: Type) -> np.dtype[Any]:
    """The dtype in which values of ``type_`` (scalar, or a tile's element) are kept."""
    element = element_type(type_)
    if isinstance(element, IntType):
        if element.bits == 1:
            return _BOOL
        return np.dtype(f"{'int' if element.signed else 'uint'}{element.bits}")
    if isinstance(element, FloatType):
        return _FLOAT_DTYPES.get(element) or _BIT_DTYPES[element.bits]
    if isinstance(element, PointerType):
        return _ADDRESS
    raise ValueError(f"values of {type_} are not kept in arrays")


def bits_dtype(bits: int) -> np.dtype[Any]:
    """The unsigned integer of ``bits`` (8, 16, 32 or 64) bits."""
    return _BIT_DTYPES[bits]


def is_raw(type_: Type) -> bool:
    """Return whether values of the type are kept as raw bits: bf16 and the fp8 kinds."""
    return isinstance(type_, FloatType) and type_ not in _FLOAT_DTYPES


# -- the special encodings of a format -------------------------------------------------------------


def nan_bits(format_: FloatType) -> int:
    """The encoding of the canonical (quiet, positive) NaN."""
    if not format_.has_negative_zero:
        return 1 << (format_.bits - 1)
    top = ((1 << format_.exponent) - 1) << format_.mantissa
    return (
        top | (1 << (format_.mantissa - 1))
        if format_.has_infinity
        else top | ((1 << format_.mantissa) - 1)
    )


def largest_bits(format_: FloatType) -> int:
    """The encoding of the maximum finite number."""
    everything = (1 << (format_.exponent + format_.mantissa)) - 1
    if format_.has_infinity:
        return everything ^ (1 << format_.mantissa)
    return everything - 1 if format_.has_negative_zero else everything


def overflow_bits(format_: FloatType) -> int:
    """Return the encoding that overflow rounds to, to nearest: infinity, or NaN without one."""
    return (
        ((1 << format_.exponent) - 1) << format_.mantissa
        if format_.has_infinity
        else nan_bits(format_)
    )


# -- decoding --------------------------------------------------------------------------------------


@functools.cache
def _decoding_table(format_: FloatType) -> NDArray[np.float32]:
    """The float32 value of each of the encodings of an 8-bit format."""
    code = np.arange(1 << format_.bits, dtype=np.int64)
    magnitude = code & ((1 << (format_.bits - 1)) - 1)
    exponent, fraction = magnitude >> format_.mantissa, magnitude & ((1 << format_.mantissa) - 1)
    significand = np.where(exponent > 0, fraction + (1 << format_.mantissa), fraction).astype(
        np.float64
    )
    value = np.ldexp(
        significand, (np.maximum(exponent, 1) - format_.bias - format_.mantissa).astype(np.int32)
    )
    if format_.has_infinity:
        value = np.where(magnitude == overflow_bits(format_), np.inf, value)
        value = np.where(magnitude > overflow_bits(format_), np.nan, value)
    elif format_.has_negative_zero:
        value = np.where(magnitude == nan_bits(format_), np.nan, value)
    value = np.copysign(value, np.where(code >> (format_.bits - 1), -1.0, 1.0))
    if not format_.has_negative_zero:
        value[nan_bits(format_)] = np.nan
    table = value.astype(np.float32)
    table.flags.writeable = False
    return table


def decode(values: Array, format_: FloatType) -> Array:
    """Decode kept values: float32, exactly, for bf16 and the fp8 kinds.

    f16, f32 and f64 come back as they are.
    """
    if format_ is BF16:
        return (np.asarray(values).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if format_.is_fp8:
        return _decoding_table(format_)[values]
    return values


# -- encoding --------------------------------------------------------------------------------------


def encode(values: Array, format_: FloatType, rounding: str = "rtne") -> Array:
    """Round numbers to a format, in its representation.

    That is raw bits for bf16 and the fp8 kinds, else floats.

    ``rounding`` is ``rtne`` (to nearest, ties to even: overflow becomes infinity, or NaN where the
    format has none) or ``rtz`` (towards zero: a finite number never leaves the finite range).
    Infinity becomes NaN in a format without. NaN becomes the canonical NaN of the same sign.
    """
    values = np.asarray(values)
    if rounding == "rtne":
        if format_ in _FLOAT_DTYPES:
            return values.astype(_FLOAT_DTYPES[format_], copy=False)
        if format_ is BF16 and values.dtype in (np.float32, np.float16):
            return _bf16_from_float32(values.astype(np.float32, copy=False))
        if format_.is_fp8 and values.dtype == np.float16:
            return _fp8_from_float16(format_)[values.view(np.uint16)]
    elif format_ in _FLOAT_DTYPES and values.dtype == _FLOAT_DTYPES[format_]:
        return values
    bits = encode_bits(values.astype(np.float64), format_, rounding)
    return bits.view(_FLOAT_DTYPES[format_]) if format_ in _FLOAT_DTYPES else bits


def rounded(values: Array, format_: FloatType) -> Array:
    """Round numbers to nearest as ``cast`` does: as :func:`encode`, but fp8 saturates as on GPUs.

    Overflow and infinity become the maximum finite number.
    """
    if format_.is_fp8:
        largest = float(_decoding_table(format_)[largest_bits(format_)])
        values = np.clip(values, -largest, largest)
    return encode(values, format_)


def encode_bits(values: Array, format_: FloatType, rounding: str) -> NDArray[Any]:
    """Encode float64 numbers in a format of at most 32 bits, by the definition of rounding.

    With E the exponent of the number, not below the minimum normal one, the format's numbers near
    it are multiples of 2**(E - mantissa): scale by that, round to an integer, and that integer is
    the encoding up to the exponent's field. A carry out of the fraction is a carry into the
    exponent.
    """
    magnitude = np.abs(values)
    finite = np.isfinite(values)
    safe = np.where(finite, magnitude, 0.0)
    _, exponent = np.frexp(safe)
    exponent = np.where(
        safe == 0.0, 1 - format_.bias, np.maximum(exponent.astype(np.int64) - 1, 1 - format_.bias)
    )
    scaled = np.ldexp(safe, (format_.mantissa - exponent).astype(np.int32))
    rounded = np.rint(scaled) if rounding == "rtne" else np.floor(scaled)
    # Exponents past the format's range would not fit its fields; they overflow in any case.
    exponent = np.minimum(exponent, format_.bias + 2)
    code = ((exponent + (format_.bias - 1)) << format_.mantissa) + rounded.astype(np.int64)
    largest = largest_bits(format_)
    overflow = overflow_bits(format_)
    code = np.where(code > largest, overflow if rounding == "rtne" else largest, code)
    code = np.where(finite, code, np.where(np.isnan(values), nan_bits(format_), overflow))
    sign = np.signbit(values)
    if not format_.has_negative_zero:
        sign = sign & (code != 0) & (code != nan_bits(format_))
    code = code | (sign.astype(np.int64) << (format_.bits - 1))
    return code.astype(bits_dtype(format_.bits))


def _bf16_from_float32(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round f32 to bf16, its upper half: add half a unit, less one where a tie would go odd."""
    bits = values.view(np.uint32)
    rounded = (bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> np.uint32(
        16
    )
    result = rounded.astype(np.uint16)
    unordered = np.isnan(values)
    if unordered.any():
        sign = ((bits >> np.uint32(16)) & np.uint32(0x8000)).astype(np.uint16)
        result = np.where(unordered, sign | np.uint16(nan_bits(BF16)), result)
    return result


@functools.cache
def _fp8_from_float16(format_: FloatType) -> NDArray[np.uint8]:
    """The encodings of all float16 numbers."""
    return encode_bits(
        np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64), format_, "rtne"
    )


# -- integers to floats ----------------------------------------------------------------------------


def round_to_odd(total: Array, error: Array) -> Array:
    """Set the last bit of the float64 ``total`` where the exact number is ``total + error``.

    The error is nonzero there.

    Rounding that to a format of at most 51 bits rounds the exact number once (Boldo and Melquiond,
    "Emulation of a FMA …", IEEE Transactions on Computers 57, 2008).
    """
    total = np.asarray(total, dtype=np.float64)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & np.isfinite(error)
    even = inexact & ((bits & 1) == 0)
    if not even.any():
        return total
    # Of the two numbers around the exact one, the odd one lies on the error's side: away from zero
    # where the signs agree.
    away = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(even, bits + away, bits).view(np.float64)


def float64_of_integers(values: Array) -> NDArray[np.float64]:
    """Convert integers to float64, rounded to odd where 64 bits do not fit.

    Another rounding to a narrower float is then the only one.
    """
    values = np.asarray(values)
    near = values.astype(np.float64)
    if values.dtype.itemsize < 8:
        return near
    # 2**63 and 2**64 themselves are out of the integer's range: the nearest float below is exact
    # and even, and the error is positive.
    limit = 2.0**64 if values.dtype.kind == "u" else 2.0**63
    near = np.where(near >= limit, np.nextafter(limit, 0.0), near)
    return round_to_odd(
        near, (values - near.astype(values.dtype)).astype(np.int64).astype(np.float64)
    )


def float_of_integers(values: Array, format_: FloatType) -> Array:
    """Integers (or booleans) rounded once, to nearest even, to a float format, as kept."""
    values = np.asarray(values)
    if format_ in (F32, F64):
        return values.astype(_FLOAT_DTYPES[format_])
    return rounded(float64_of_integers(values), format_)


def integers_of_floats(values: Array, source: FloatType, type_: IntType) -> Array:
    """Truncate numbers of ``source`` to integers, see :mod:`tilewright.ir.float_to_int`."""
    values = np.asarray(values)
    if type_.bits == 1:
        return values != 0
    through = conversion_type(type_)
    dtype = numpy_dtype(through)
    wide = np.trunc(values.astype(np.float64, copy=False))
    low, high = float(through.minimum), float(through.maximum)
    if wide.size == 0 or (wide.min() >= low and wide.max() < high):
        return wide.astype(dtype).astype(numpy_dtype(type_))
    inside = (wide >= low) & (wide < high)
    result = np.where(inside, wide, 0.0).astype(dtype)
    result = np.where(wide >= high, dtype.type(through.maximum), result)
    result = np.where(wide < low, dtype.type(through.minimum), result)
    result = np.where(np.isnan(wide), dtype.type(integer_of_nan(source, through)), result)
    return result.astype(numpy_dtype(type_))


def number(value: Array, type_: Type) -> int | float | bool:
    """One kept value as a Python number, for messages and printing."""
    element = element_type(type_)
    if is_raw(element):
        assert isinstance(element, FloatType)
        return float(decode(value, element))
    return value.item()
