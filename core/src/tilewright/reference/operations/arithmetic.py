"""The meaning of constants, ids, and everything that works element by element.

Every meaning is ``(frame, operation, *operands)``. Operands have the shape of their type, or one
leading axis more, over programs, and NumPy's broadcasting brings the two together.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.ops.arithmetic import (
    Addptr,
    Arange,
    Binary,
    Bitcast,
    Cast,
    Cmp,
    Constant,
    Extremum,
    Fma,
    Ldexp,
    NumPrograms,
    ProgramId,
    Select,
    Unary,
)
from tilewright.ir.types import (
    F64,
    FloatType,
    IntType,
    PointerType,
    Type,
    bit_width,
    byte_size,
    element_type,
)
from tilewright.reference.numerics import (
    Array,
    bits_dtype,
    decode,
    encode,
    float_of_integers,
    integers_of_floats,
    is_raw,
    numpy_dtype,
    rounded,
)
from tilewright.reference.operations import angles, fused_multiply_add
from tilewright.reference.values import Descriptor, RuntimeValue

if TYPE_CHECKING:
    from tilewright.reference.frame import Frame

Meaning = Callable[..., Any]


def _float_type(type_: Type) -> FloatType:
    element = element_type(type_)
    assert isinstance(element, FloatType)
    return element


def _int_type(type_: Type) -> IntType:
    element = element_type(type_)
    assert isinstance(element, IntType)
    return element


def numbers(compute: Callable[..., Array]) -> Meaning:
    """Make a meaning computed in the operands' type; bf16 and fp8 are computed in float32.

    The result is rounded from that once, as ``cast`` does.
    """

    def meaning(frame: Frame, operation: Unary | Binary, *operands: Array) -> Array:
        element = element_type((operation.x if isinstance(operation, Unary) else operation.a).type)
        if is_raw(element):
            assert isinstance(element, FloatType)
            return rounded(compute(*[decode(x, element) for x in operands]), element)
        return compute(*operands)

    return meaning


def as_is(compute: Callable[..., Array]) -> Meaning:
    """A meaning that NumPy has as it is."""

    def meaning(frame: Frame, operation: Unary | Binary, *operands: Array) -> Array:
        return compute(*operands)

    return meaning


def accurate(compute: Callable[[Array], Array]) -> Meaning:
    """A function of one float, computed in float64 and rounded."""

    def meaning(frame: Frame, operation: Unary, x: Array) -> Array:
        return compute(x.astype(np.float64)).astype(x.dtype)

    return meaning


# -- constants and ids -----------------------------------------------------------------------------


def constant_array(type_: Type, value: Any) -> Array:
    """A scalar constant as kept."""
    if is_raw(type_):
        assert isinstance(type_, FloatType)
        return encode(np.float64(value), type_)[()]
    return numpy_dtype(type_).type(value)


def constant(frame: Frame, operation: Constant) -> Array:
    return constant_array(operation.result.type, operation.value)


@functools.lru_cache(maxsize=256)
def _integers(start: int, end: int) -> Array:
    result = np.arange(start, end, dtype=np.int32)
    result.flags.writeable = False
    return result


def arange(frame: Frame, operation: Arange) -> Array:
    return _integers(operation.start, operation.end)


def program_id(frame: Frame, operation: ProgramId) -> Array:
    return frame.program_id(operation.axis)


def num_programs(frame: Frame, operation: NumPrograms) -> Array:
    return np.int32(frame.grid[operation.axis])


# -- arithmetic ------------------------------------------------------------------------------------


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.true_divide(a, b)
    b = _divisor(b)
    return np.floor_divide(a - np.fmod(a, b), b)


def _remainder(a: Array, b: Array) -> Array:
    return np.fmod(a, b if a.dtype.kind == "f" else _divisor(b))


def _divisor(b: Array) -> Array:
    """An integer divisor, 1 in place of 0."""
    return np.where(b == 0, b.dtype.type(1), b)


def negate(frame: Frame, operation: Unary, x: Array) -> Array:
    element = element_type(operation.x.type)
    if is_raw(element):
        assert isinstance(element, FloatType)
        sign = x.dtype.type(1 << (element.bits - 1))
        flipped = x ^ sign
        # Without a negative zero, zero has no sign, and that encoding is NaN, which has none
        # either.
        return flipped if element.has_negative_zero else np.where((x | sign) == sign, x, flipped)
    return np.negative(x)


def absolute(frame: Frame, operation: Unary, x: Array) -> Array:
    element = element_type(operation.x.type)
    if is_raw(element):
        assert isinstance(element, FloatType)
        sign = x.dtype.type(1 << (element.bits - 1))
        cleared = x & ~sign
        return cleared if element.has_negative_zero else np.where(x == sign, x, cleared)
    return np.abs(x)


def shift_left(frame: Frame, operation: Binary, a: Array, b: Array) -> Array:
    return _shifted(np.left_shift, a, b)


def shift_right(frame: Frame, operation: Binary, a: Array, b: Array) -> Array:
    return _shifted(np.right_shift, a, b)


def _shifted(shift: Callable[..., Array], a: Array, b: Array) -> Array:
    """Shift; amounts past the width, negative ones among them, shift all bits out.

    A sign that comes in stays.
    """
    if a.dtype.kind == "b":
        return a & ~b
    width = 8 * a.dtype.itemsize
    inside = (b >= 0) & (b < width)
    last = shift(shift(a, a.dtype.type(width - 1)), a.dtype.type(1))
    return np.where(inside, shift(a, np.where(inside, b, b.dtype.type(0))), last)


def multiply_high(frame: Frame, operation: Binary, a: Array, b: Array) -> Array:
    return upper_half(a, b, _int_type(operation.a.type))


def upper_half(a: Array, b: Array, type_: IntType) -> Array:
    """The upper half of a double-width multiplication of 32-bit or 64-bit integers."""
    dtype = numpy_dtype(type_)
    if type_.bits == 32:
        wide = np.int64 if type_.signed else np.uint64
        return np.right_shift(a.astype(wide) * b.astype(wide), wide(32)).astype(dtype)
    low_half, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = a.astype(np.uint64), b.astype(np.uint64)
    x_low, x_high, y_low, y_high = x & low_half, x >> half, y & low_half, y >> half
    middle = x_high * y_low + ((x_low * y_low) >> half)
    other = x_low * y_high + (middle & low_half)
    high = (x_high * y_high + (middle >> half) + (other >> half)).astype(dtype)
    if type_.signed:
        # A negative factor counts as itself plus 2**64: take the other factor off the upper half
        # again.
        zero = np.int64(0)
        high = high - np.where(a < zero, b, zero) - np.where(b < zero, a, zero)
    return high


def _extreme(ignoring: Callable[..., Array], propagating: Callable[..., Array]) -> Meaning:
    ignore, propagate = numbers(ignoring), numbers(propagating)

    def meaning(frame: Frame, operation: Extremum, a: Array, b: Array) -> Array:
        chosen = ignore if operation.nan == "ignore" else propagate
        return chosen(frame, operation, a, b)

    return meaning


_PREDICATES: dict[str, Callable[..., Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def compare(frame: Frame, operation: Cmp, a: Array, b: Array) -> Array:
    element = element_type(operation.a.type)
    if is_raw(element):
        assert isinstance(element, FloatType)
        a, b = decode(a, element), decode(b, element)
    elif isinstance(element, PointerType):
        a, b = a.astype(np.uint64), b.astype(np.uint64)
    return _PREDICATES[operation.predicate](a, b)


def select(
    frame: Frame, operation: Select, condition: Array, a: RuntimeValue, b: RuntimeValue
) -> RuntimeValue:
    if isinstance(a, Descriptor):
        return a.with_fields(
            [
                np.where(condition, first, second)
                for first, second in zip(a.fields(), b.fields(), strict=True)
            ]
        ).of_one_argument([b])
    return np.where(condition, a, b)


def fma(frame: Frame, operation: Fma, a: Array, b: Array, c: Array) -> Array:
    return fused_multiply_add.fma(a, b, c, _float_type(operation.a.type))


# -- conversions -----------------------------------------------------------------------------------


def cast(frame: Frame, operation: Cast, x: Array) -> Array:
    return convert(
        x, element_type(operation.x.type), element_type(operation.result.type), operation.rounding
    )


def convert(x: Array, source: Type, result: Type, rounding: str = "rtne") -> Array:
    """Kept values of one number type as another, by the rules of ``cast``."""
    if source is result:
        return x
    if isinstance(source, FloatType):
        x = decode(x, source)
        if isinstance(result, FloatType):
            return rounded(x, result) if rounding == "rtne" else encode(x, result, rounding)
        assert isinstance(result, IntType)
        return integers_of_floats(x, source, result)
    if isinstance(result, FloatType):
        return float_of_integers(x, result)
    if bit_width(result) == 1:
        return x != 0
    return x.astype(numpy_dtype(result))


def bitcast(frame: Frame, operation: Bitcast, x: Array) -> Array:
    return x.view(numpy_dtype(operation.result.type))


def add_pointer(frame: Frame, operation: Addptr, pointer: Array, offset: Array) -> Array:
    element = element_type(operation.pointer.type)
    assert isinstance(element, PointerType)
    return pointer + offset.astype(np.int64) * np.int64(byte_size(element.pointee))


# -- functions of floats ---------------------------------------------------------------------------


def _erf(x: Array) -> Array:
    return np.fromiter(map(math.erf, x.ravel().tolist()), dtype=np.float64, count=x.size).reshape(
        x.shape
    )


def _reciprocal_root(x: Array) -> Array:
    return np.float64(1.0) / np.sqrt(x)


def scale_by_power(frame: Frame, operation: Ldexp, x: Array, exponent: Array) -> Array:
    # In float64 nothing that float32 can hold is lost, so that the rounding to float32 is the only
    # one.
    if _float_type(operation.x.type) is F64:
        return np.ldexp(x, exponent)
    return np.ldexp(x.astype(np.float64), exponent).astype(np.float32)


# -- bits ------------------------------------------------------------------------------------------

_BITS_OF_BYTE = np.array([code.bit_count() for code in range(256)], dtype=np.uint8)


def _count_bits(x: Array) -> Array:
    """Set bits of unsigned integers."""
    count = np.zeros(x.shape, dtype=np.uint8)
    for shift in range(0, 8 * x.dtype.itemsize, 8):
        count = count + _BITS_OF_BYTE[(x >> x.dtype.type(shift)) & x.dtype.type(0xFF)]
    return count


def population_count(frame: Frame, operation: Unary, x: Array) -> Array:
    if x.dtype.kind == "b":
        return x
    return _count_bits(x.view(bits_dtype(8 * x.dtype.itemsize))).astype(x.dtype)


def count_leading_zeros(frame: Frame, operation: Unary, x: Array) -> Array:
    if x.dtype.kind == "b":
        return ~x
    width = 8 * x.dtype.itemsize
    filled = x.view(bits_dtype(width))
    shift = 1
    while shift < width:  # every bit below the highest set one
        filled = filled | (filled >> filled.dtype.type(shift))
        shift *= 2
    return _count_bits(~filled).astype(x.dtype)


MEANINGS: dict[str, Meaning] = {
    "constant": constant,
    "arange": arange,
    "program_id": program_id,
    "num_programs": num_programs,
    "add": numbers(np.add),
    "sub": numbers(np.subtract),
    "mul": numbers(np.multiply),
    "div": numbers(_divide),
    "rem": numbers(_remainder),
    "neg": negate,
    "abs": absolute,
    "and": as_is(np.bitwise_and),
    "or": as_is(np.bitwise_or),
    "xor": as_is(np.bitwise_xor),
    "shl": shift_left,
    "shr": shift_right,
    "mulhi": multiply_high,
    "min": _extreme(np.fmin, np.minimum),
    "max": _extreme(np.fmax, np.maximum),
    "cmp": compare,
    "select": select,
    "fma": fma,
    "cast": cast,
    "bitcast": bitcast,
    "addptr": add_pointer,
    "exp": accurate(np.exp),
    "exp2": accurate(np.exp2),
    "log": accurate(np.log),
    "log2": accurate(np.log2),
    "sin": accurate(angles.sine),
    "cos": accurate(angles.cosine),
    "tanh": accurate(np.tanh),
    "erf": accurate(_erf),
    "sqrt": accurate(np.sqrt),
    "rsqrt": accurate(_reciprocal_root),
    "floor": as_is(np.floor),
    "ceil": as_is(np.ceil),
    "round_even": as_is(np.rint),
    "trunc": as_is(np.trunc),
    "copysign": as_is(np.copysign),
    "ldexp": scale_by_power,
    "clz": count_leading_zeros,
    "popcount": population_count,
}
