"""Constants, program ids, and everything that works element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, SingleOperand, TypedAttribute
from tilewright.ir.ops.rules import (
    pointee_of,
    require,
    require_float,
    require_int,
    require_number,
    require_same,
    require_same_shape,
    same_floats,
    same_ints,
    same_numbers,
)
from tilewright.ir.table import Rule, Shape, Trait
from tilewright.ir.types import (
    I1,
    I32,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    bit_width,
    element_type,
    with_element,
)


def _constant(shape: Shape) -> Sequence[Type]:
    result, value = shape.result, shape.attributes["value"]
    if result is I1:
        require(isinstance(value, bool), f"an i1 constant is true or false, not {value!r}")
    elif isinstance(result, IntType):
        require(
            isinstance(value, int) and not isinstance(value, bool),
            f"a constant of {result} is an integer, not {value!r}",
        )
        require(
            result.minimum <= value <= result.maximum,
            f"constant {value} is out of range of {result}",
        )
    elif isinstance(result, FloatType):
        require(isinstance(value, float), f"a constant of {result} is a float, not {value!r}")
    elif isinstance(result, PointerType):
        require(
            value == 0 and not isinstance(value, bool | float),
            f"the only pointer constant is the null pointer 0, not {value!r}",
        )
    else:
        require(False, f"a constant is a scalar, not {result}")
    return (result,)


def _arange(shape: Shape) -> Sequence[Type]:
    start, end = shape.attributes["start"], shape.attributes["end"]
    require(end > start, f"end must be greater than start, got {start} and {end}")
    require(start >= -(2**31) and end <= 2**31, "start and end must fit int32")
    return (TileType((end - start,), I32),)


def _axis_id(shape: Shape) -> Sequence[Type]:
    require(
        0 <= shape.attributes["axis"] <= 2,
        f"axis must be 0, 1 or 2, not {shape.attributes['axis']}",
    )
    return (I32,)


def _negatable(shape: Shape) -> Sequence[Type]:
    require(element_type(shape.type("x")) is not I1, "i1 has no negative")
    return same_numbers(shape)


def _arithmetic(shape: Shape) -> Sequence[Type]:
    (result,) = same_numbers(shape)
    require(element_type(result) is not I1, "i1 has no arithmetic: use and, or, xor")
    return (result,)


def _mulhi(shape: Shape) -> Sequence[Type]:
    (result,) = same_ints(shape)
    require(bit_width(result) in (32, 64), f"operands must be 32 or 64 bits wide, not {result}")
    return (result,)


def _cmp(shape: Shape) -> Sequence[Type]:
    a, b = shape.type("a"), shape.type("b")
    require_same((a, b), "operands")
    return (with_element(a, I1),)


def _select(shape: Shape) -> Sequence[Type]:
    condition, a, b = shape.type("condition"), shape.type("a"), shape.type("b")
    require_same((a, b), "both choices")
    expected = with_element(a, I1)
    require(condition is expected, f"condition must be {expected}, not {condition}")
    return (a,)


def _cast(shape: Shape) -> Sequence[Type]:
    source, result = shape.type("x"), shape.result
    require_number(source, "operand")
    require_number(result, "result")
    require_same_shape(source, result, "operand and result")
    if shape.attributes["rounding"] == "rtz":
        narrowing = (
            isinstance(element_type(source), FloatType)
            and isinstance(element_type(result), FloatType)
            and bit_width(result) < bit_width(source)
        )
        require(
            narrowing, f"rounding rtz is only for a float made narrower, not {source} to {result}"
        )
    return (result,)


def _bitcast(shape: Shape) -> Sequence[Type]:
    source, result = shape.type("x"), shape.result
    require_same_shape(source, result, "operand and result")
    require(
        bit_width(source) == bit_width(result),
        f"operand and result must have one width, not {source} and {result}",
    )
    return (result,)


def _addptr(shape: Shape) -> Sequence[Type]:
    pointer, offset = shape.type("pointer"), shape.type("offset")
    pointee_of(pointer)
    require_int(offset, "offset")
    require_same_shape(pointer, offset, "pointer and offset")
    return (pointer,)


def _math(shape: Shape) -> Sequence[Type]:
    (result,) = same_floats(shape)
    require(bit_width(result) >= 32, f"operand must be f32 or f64, not {result}")
    return (result,)


def _ldexp(shape: Shape) -> Sequence[Type]:
    x, exponent = shape.type("x"), shape.type("exponent")
    require_float(x, "x")
    require(bit_width(x) >= 32, f"x must be f32 or f64, not {x}")
    expected = with_element(x, I32)
    require(exponent is expected, f"exponent must be {expected}, not {exponent}")
    return (x,)


def _bits(shape: Shape) -> Sequence[Type]:
    (result,) = same_ints(shape)
    return (result,)


OPS = Declarations()

#: Traits of operations whose operands may be swapped, whose order in a chain is free as well, and
#: that give back an operand that is given twice.
_SWAPPED = Trait.ELEMENTWISE | Trait.COMMUTATIVE
_FREE = _SWAPPED | Trait.ASSOCIATIVE
_LATTICE = _FREE | Trait.IDEMPOTENT | Trait.COMMON_DIVISOR
_INTEGER = Trait.ELEMENTWISE | Trait.BITWISE
_OFFSET = Trait.ADDRESSING | Trait.COMMON_DIVISOR


class Unary(Operation):
    """An elementwise operation on one operand."""

    __slots__ = ()

    x = SingleOperand()


class Binary(Operation):
    """An elementwise operation on two operands."""

    __slots__ = ()

    a = SingleOperand()
    b = SingleOperand()


class Extremum(Binary):
    """The smaller or the greater of two operands."""

    __slots__ = ()

    nan = TypedAttribute[Literal["ignore", "propagate"]](
        "ignore: the other operand where one is NaN; propagate: NaN", "ignore"
    )


def _unary(
    name: str, summary: str, rule: Rule, *, traits: Trait = Trait.ELEMENTWISE, cost: int = 1
) -> None:
    OPS.row(Unary, name, summary, rule, traits=traits, cost=cost)


def _binary(
    name: str, summary: str, rule: Rule, *, traits: Trait = Trait.ELEMENTWISE, cost: int = 1
) -> None:
    OPS.row(Binary, name, summary, rule, traits=traits, cost=cost)


@OPS.operation("constant", "a scalar constant", _constant, explicit_results=True, cost=0)
class Constant(Operation):
    __slots__ = ()

    value = TypedAttribute[int | float | bool]()


@OPS.operation(
    "arange",
    "the integers start .. end-1",
    _arange,
    traits=Trait.BITWISE,
)
class Arange(Operation):
    __slots__ = ()

    start = TypedAttribute[int]()
    end = TypedAttribute[int]()


@OPS.operation(
    "program_id",
    "the position of this program instance along an axis of the grid",
    _axis_id,
    traits=Trait.BITWISE,
)
class ProgramId(Operation):
    __slots__ = ()

    axis = TypedAttribute[int]()


@OPS.operation(
    "num_programs",
    "the number of program instances along an axis of the grid",
    _axis_id,
    traits=Trait.BITWISE,
)
class NumPrograms(Operation):
    __slots__ = ()

    axis = TypedAttribute[int]()


_binary("add", "a + b; integers wrap around", _arithmetic, traits=_FREE | _OFFSET)
_binary("sub", "a - b; integers wrap around", _arithmetic, traits=Trait.ELEMENTWISE | _OFFSET)
_binary("mul", "a * b; integers wrap around", _arithmetic, traits=_FREE | _OFFSET)


@OPS.operation(
    "div",
    "a / b. If a and b are floats, the quotient is correctly rounded unless the attributes of the "
    "operation allow an error. If a and b are integers, the quotient is truncated towards zero. An "
    "integer divided by 0 is the integer itself. The most negative integer divided by -1 is the "
    "most negative integer",
    _arithmetic,
    cost=10,
    traits=Trait.ELEMENTWISE,
)
class Div(Binary):
    __slots__ = ()

    approximate = TypedAttribute[bool]("f32 only: whether an error of 2.5 ULP is acceptable", False)
    exact = TypedAttribute[bool](
        "f32 only: whether to round correctly even if a backend's options relax the division", False
    )
    fast = TypedAttribute[bool](
        "f32 only: if a backend's options relax the division, a normal quotient may have an "
        "error of 3 ULP for abs(b) from 2**-126 to 2**126; any result is allowed for other b",
        False,
    )


@OPS.operation(
    "rem",
    "the remainder of the division a / b whose quotient is truncated towards zero, as `%` and "
    "`fmod` return it in C. The remainder has the sign of a. If a and b are integers and b is 0, "
    "the remainder is 0",
    _arithmetic,
    traits=Trait.ELEMENTWISE | _OFFSET,
    cost=12,
)
class Rem(Binary):
    __slots__ = ()


_unary(
    "neg",
    "-x. If x is a float, only the sign bit of x changes, even if x is zero or NaN. If x is the "
    "most negative integer, the result is x",
    _negatable,
)
_unary(
    "abs",
    "the absolute value of x. If x is the most negative integer, the result is x",
    _negatable,
)
_binary("and", "the bitwise AND of a and b", same_ints, traits=_LATTICE | Trait.BITWISE)
_binary("or", "the bitwise OR of a and b", same_ints, traits=_LATTICE | Trait.BITWISE)
_binary(
    "xor",
    "the bitwise exclusive OR of a and b",
    same_ints,
    traits=_FREE | Trait.COMMON_DIVISOR | Trait.BITWISE,
)
_binary(
    "shl",
    "the operand a, shifted left by b bits. If b is negative, or not below the number of bits of "
    "the type, the result is 0",
    same_ints,
    traits=_INTEGER,
)
_binary(
    "shr",
    "the operand a, shifted right by b bits. The bits that become free are copies of the sign bit "
    "of a if the type of a is signed, and zeros otherwise. If b is negative, or not below the "
    "number of bits of the type, all bits of the result are such copies or zeros",
    same_ints,
    traits=_INTEGER,
)
_binary(
    "mulhi",
    "the upper half of the bits of the product a * b of two integers. The product has twice as "
    "many bits as a and b",
    _mulhi,
    traits=_SWAPPED | Trait.BITWISE,
    cost=3,
)


OPS.row(
    Extremum,
    "min",
    "the minimum of a and b. If a and b are -0.0 and 0.0, the result may be either of them",
    same_numbers,
    traits=_LATTICE,
)


OPS.row(
    Extremum,
    "max",
    "the maximum of a and b. If a and b are -0.0 and 0.0, the result may be either of them",
    same_numbers,
    traits=_LATTICE,
)


@OPS.operation(
    "cmp",
    "the result (an i1) of the comparison of a with b that `predicate` names. If a or b is NaN, "
    "the result is true for the predicate 'ne', and false for all other predicates",
    _cmp,
    traits=Trait.ELEMENTWISE,
)
class Cmp(Binary):
    __slots__ = ()

    predicate = TypedAttribute[Literal["eq", "ne", "lt", "le", "gt", "ge"]]()


@OPS.operation(
    "select",
    "the value of a where `condition` is true, and the value of b elsewhere",
    _select,
    traits=Trait.ELEMENTWISE | Trait.ADDRESSING | Trait.BITWISE,
)
class Select(Operation):
    __slots__ = ()

    condition = SingleOperand()
    a = SingleOperand()
    b = SingleOperand()


@OPS.operation("fma", "a * b + c, rounded once", same_floats, traits=Trait.ELEMENTWISE)
class Fma(Operation):
    __slots__ = ()

    a = SingleOperand()
    b = SingleOperand()
    c = SingleOperand()


@OPS.operation(
    "cast",
    "x converted to another number type. If the result is a float type with fewer bits than x, the "
    "attribute `rounding` states how the conversion rounds: `rtne` rounds to the nearest float "
    "(ties to even), and `rtz` rounds towards zero. With `rtne`, a value that is too large for the "
    "result type becomes infinity; but if the result is an fp8 format, infinity and values that "
    "are too large become the maximum finite number. With `rtz`, a value that is too large for the "
    "result type becomes the maximum finite number, and infinity becomes NaN if the result type "
    "has no infinity. If a float is converted to an integer type, it is truncated towards zero. If "
    "the truncated value is outside the range of the integer type, the result is the nearest "
    "integer in the range. If NaN is converted to an integer type, the result is 0; but if the "
    "float is f64 or the integer has 64 bits, the result is the integer of which only the top bit "
    "is set. If a float is converted to u8 or i8, it is first converted to u16 or i16, and the "
    "result is the low byte. If x is converted to i1, the result states whether x is not 0. If an "
    "integer is converted to an integer type with fewer bits, the result has the low bits of x",
    _cast,
    traits=Trait.ELEMENTWISE | Trait.ADDRESSING,
    explicit_results=True,
)
class Cast(Unary):
    __slots__ = ()

    rounding = TypedAttribute[Literal["rtne", "rtz"]]("to nearest even, or towards zero", "rtne")


@OPS.operation(
    "bitcast",
    "the bits of x, reinterpreted as another type with the same number of bits (64 for a pointer)",
    _bitcast,
    traits=Trait.ELEMENTWISE,
    explicit_results=True,
)
class Bitcast(Unary):
    __slots__ = ()


@OPS.operation(
    "addptr",
    "the pointer moved by `offset` elements. If the type of `offset` has fewer than 64 bits, the "
    "offset is first extended to 64 bits: with copies of the sign bit if the type is signed, and "
    "with zeros otherwise",
    _addptr,
    traits=Trait.ELEMENTWISE | Trait.ADDRESSING | Trait.BITWISE,
)
class Addptr(Operation):
    __slots__ = ()

    pointer = SingleOperand()
    offset = SingleOperand()


_unary("exp", "the exponential function of x, which is e to the power of x", _math, cost=16)
_unary("exp2", "2 to the power of x", _math, cost=14)
_unary("log", "the natural logarithm of x", _math, cost=20)
_unary("log2", "the logarithm of x to base 2", _math, cost=20)
_unary("sin", "the sine of x radians", _math, cost=24)
_unary("cos", "the cosine of x radians", _math, cost=24)
_unary("tanh", "the hyperbolic tangent of x", _math, cost=30)
_unary("erf", "the error function of x", _math, cost=30)


@OPS.operation("sqrt", "the square root of x", _math, cost=8, traits=Trait.ELEMENTWISE)
class Sqrt(Unary):
    __slots__ = ()

    approximate = TypedAttribute[bool]("f32 only: whether an error of 2 ULP is acceptable", False)


_unary("rsqrt", "1 / sqrt(x)", _math, cost=12)
_unary("floor", "x rounded down to an integer, as a float", _math)
_unary("ceil", "x rounded up to an integer, as a float", _math)
_unary(
    "round_even",
    "the integer nearest to x, as a float. If two integers are equally near to x, the result is "
    "the even integer",
    _math,
)
_unary("trunc", "x rounded towards zero to an integer, as a float", _math)
_binary("copysign", "the magnitude of a with the sign of b", _math)


@OPS.operation("ldexp", "x * 2**exponent, rounded once", _ldexp, traits=Trait.ELEMENTWISE, cost=2)
class Ldexp(Unary):
    __slots__ = ()

    exponent = SingleOperand()


_unary(
    "clz",
    "the number of leading zero bits of x. If x is 0, the result is the number of bits of the type",
    _bits,
    traits=_INTEGER,
    cost=3,
)
_unary("popcount", "the number of bits of x that are set", _bits, traits=_INTEGER, cost=3)
