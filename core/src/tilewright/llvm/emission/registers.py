"""Representation of Tile IR's element types in LLVM registers and in memory.

    IR type            register   memory
    i1                 i1         i8 (0 or 1)
    i8 … u64           i8 … i64   the same
    f16, f32, f64      half, float, double
    bf16               i16        its bits: LLVM's conversions flush subnormals on some CPUs
    fp8 kinds          i8         their bits
    pointers           ptr        ptr (8 bytes)

A vector of ``width`` lanes is ``<width x register type>``; width 0 stands for a scalar.
"""

from __future__ import annotations

from tilewright.errors import LoweringError
from tilewright.ir.types import BF16, F16, F32, F64, I1, FloatType, IntType, PointerType, Type
from tilewright.llvm.emission.writer import float_constant, splat_constant

_FLOATS = {F16: "half", F32: "float", F64: "double", BF16: "i16"}


def register_type(element: Type) -> str:
    """The LLVM type of one element in a register."""
    if isinstance(element, IntType):
        return f"i{element.bits}"
    if isinstance(element, FloatType):
        return _FLOATS.get(element, "i8")
    if isinstance(element, PointerType):
        return "ptr"
    raise LoweringError(f"a value of type {element} has no register type")


def storage_type(element: Type) -> str:
    """The LLVM type of one element in memory."""
    return "i8" if element is I1 else register_type(element)


def storage_size(element: Type) -> int:
    """Bytes of one element in memory."""
    if isinstance(element, PointerType):
        return 8
    assert isinstance(element, IntType | FloatType)
    return max(1, element.bits // 8)


def vector_type(element: Type, width: int) -> str:
    """The LLVM type of ``width`` elements in a register; of one for width 0."""
    type_ = register_type(element)
    return f"<{width} x {type_}>" if width else type_


def encode_float(value: float, format_: FloatType) -> int:
    """Return the bits of the number of ``format_`` nearest to ``value``, ties to even.

    Overflow goes to infinity, or to NaN where there is none.
    """
    import math

    sign = 1 << (format_.bits - 1)
    negative = math.copysign(1.0, value) < 0
    fraction_mask = (1 << format_.mantissa) - 1
    top = (1 << format_.exponent) - 1
    if math.isnan(value):
        if not format_.has_negative_zero:
            return sign
        quiet = (top << format_.mantissa) | (
            fraction_mask if not format_.has_infinity else 1 << (format_.mantissa - 1)
        )
        return quiet | (sign if negative else 0)
    magnitude = abs(value)
    not_finite = encode_float(math.nan, format_) & ~sign if format_.has_negative_zero else sign
    if format_.has_infinity:
        not_finite = top << format_.mantissa
    if math.isinf(magnitude):
        bits = not_finite
    elif magnitude == 0.0:
        bits = 0
    else:
        exponent = max(math.frexp(magnitude)[1] - 1, 1 - format_.bias)
        scaled = math.ldexp(magnitude, format_.mantissa - exponent)
        units = math.floor(scaled)
        rest = scaled - units
        if rest > 0.5 or (rest == 0.5 and units & 1):
            units += 1
        # a unit is one step of the encoding: carries into the exponent are what rounding up needs
        bits = (
            units + ((exponent - 1 + format_.bias) << format_.mantissa)
            if units >> format_.mantissa or exponent > 1 - format_.bias
            else units
        )
        largest = (
            (top << format_.mantissa) - 1
            if format_.has_infinity
            else (top << format_.mantissa | fraction_mask)
        )
        if not format_.has_infinity and format_.has_negative_zero and format_.mantissa == 3:
            largest -= 1  # the encoding of all ones is the NaN
        if bits > largest:
            bits = not_finite
    if negative and not (bits == 0 and not format_.has_negative_zero):
        bits |= sign
    return bits


def constant(element: Type, value: float | bool, width: int = 0) -> str:
    """A constant as an operand: exact for every type, a splat for a width."""
    register = register_type(element)
    if isinstance(element, PointerType):
        text = "null"
    elif element is I1:
        text = "true" if value else "false"
    elif isinstance(element, IntType):
        text = str(int(value))
    elif element is F16 or element is F32 or element is F64:
        text = float_constant(register, float(value))
    else:
        assert isinstance(element, FloatType)
        text = str(encode_float(float(value), element))
    return splat_constant(register, text, width)
