"""Integer operations and choices by simpler ones, each written for one element."""

from __future__ import annotations

from tilewright.ir.expressions import Number, select
from tilewright.ir.types import I1, I64, U64, FloatType, IntType
from tilewright.passes.decompose.decomposition import Decomposition, ScalarLaw, scalar


def unsigned(x: Number) -> Number:
    """The bits of a number as an unsigned integer."""
    return x.bits(signed=False)


def sign_bit(type_: FloatType) -> int:
    return 1 << (type_.bits - 1)


def _negative(x: Number) -> Number:
    type_ = x.element
    if isinstance(type_, FloatType) and type_.has_negative_zero:
        return (unsigned(x) ^ sign_bit(type_)).bitcast(type_)
    return x.like(0) - x  # exact; the fnuz kinds have one zero, and their NaN no sign


def _absolute(x: Number) -> Number:
    type_ = x.element
    if isinstance(type_, FloatType) and type_.has_negative_zero:
        return (unsigned(x) & (sign_bit(type_) - 1)).bitcast(type_)
    if isinstance(type_, IntType) and not type_.signed:
        return x
    return select(x < 0, x.like(0) - x, x)


def _minimum(a: Number, b: Number, nan: str) -> Number:
    return a & b if a.element is I1 else select(_first_wins(a < b, a, b, nan), a, b)


def _maximum(a: Number, b: Number, nan: str) -> Number:
    return a | b if a.element is I1 else select(_first_wins(a > b, a, b, nan), a, b)


def _first_wins(ahead: Number, a: Number, b: Number, nan: str) -> Number:
    """Return whether the first operand is chosen: where it is ahead, and of floats where it is a
    NaN to be kept or the other one is to be ignored."""
    if not isinstance(a.element, FloatType):
        return ahead
    decisive = a if nan == "propagate" else b
    return ahead | decisive.differs(decisive)


def _upper_product(a: Number, b: Number) -> Number:
    type_ = a.element
    assert isinstance(type_, IntType)
    if type_.bits == 32:
        wide = I64 if type_.signed else U64
        return ((a.cast(wide) * b.cast(wide)) >> 32).cast(type_)
    x, y, low = unsigned(a), unsigned(b), (1 << 32) - 1
    middle, other = (x >> 32) * (y & low), (x & low) * (y >> 32)
    carry = (((x & low) * (y & low)) >> 32) + (middle & low) + (other & low)
    upper = (x >> 32) * (y >> 32) + (middle >> 32) + (other >> 32) + (carry >> 32)
    if type_.signed:  # a negative operand is 2**64 too great as an unsigned one
        upper = upper - select(a < 0, y, y.like(0)) - select(b < 0, x, x.like(0))
    return upper.bitcast(type_)


def _leading_zeros(x: Number) -> Number:
    type_ = x.element
    assert isinstance(type_, IntType)
    if type_ is I1:
        return x ^ 1
    bits, count, step = unsigned(x), x.like(0), type_.bits // 2
    while step:  # whether the upper bits are zero, half as many each time
        empty = bits < (1 << (type_.bits - step))
        count, bits, step = (
            select(empty, count + step, count),
            select(empty, bits << step, bits),
            step // 2,
        )
    return select(bits < (1 << (type_.bits - 1)), count + 1, count)


def _set_bits(x: Number) -> Number:
    type_ = x.element
    assert isinstance(type_, IntType)
    if type_ is I1:
        return x
    ones = (1 << type_.bits) - 1
    bits = unsigned(x)
    bits = bits - ((bits >> 1) & (ones // 3))  # of each two bits
    bits = (bits & (ones // 5)) + ((bits >> 2) & (ones // 5))  # of each four
    bits = (bits + (bits >> 4)) & (ones // 17)  # of each byte
    if type_.bits > 8:
        bits = (bits * (ones // 255)) >> (type_.bits - 8)  # the bytes' sum comes out on top
    return bits.bitcast(type_)


def _extremum(operation: str, write: ScalarLaw) -> Decomposition:
    law = "a choice by comparison, with each rule for NaN"
    return scalar(operation, law, ("and", "or", "cmp", "select"), write)


ROWS: tuple[Decomposition, ...] = (
    scalar(
        "neg",
        "0 - x of integers; of floats the sign bit, flipped",
        ("constant", "sub", "xor", "bitcast"),
        _negative,
    ),
    scalar(
        "abs",
        "a choice of x and 0 - x; of floats the bits without the sign",
        ("constant", "sub", "and", "bitcast", "cmp", "select"),
        _absolute,
    ),
    _extremum("min", _minimum),
    _extremum("max", _maximum),
    scalar(
        "mulhi",
        "a product of 64 bits, or four of halves",
        ("constant", "cast", "bitcast", "add", "sub", "mul", "shr", "and", "cmp", "select"),
        _upper_product,
    ),
    scalar(
        "clz",
        "comparisons and shifts by half as many bits each time",
        ("constant", "bitcast", "shl", "shr", "and", "xor", "add", "cmp", "select"),
        _leading_zeros,
    ),
    scalar(
        "popcount",
        "sums of neighbouring bits, fields of twice the width each time",
        ("constant", "bitcast", "shl", "shr", "and", "add", "sub", "mul"),
        _set_bits,
    ),
)
