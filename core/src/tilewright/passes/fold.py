"""Constant folding: the op table's elementwise meaning, in numbers, one element at a time.

Integers are Python integers in their type's range, i1 is a bool, floats are Python floats that the
format holds. A function yields None where the result is not settled to the bit (exp and its like,
whose accuracy has a bound): such operations stay, so that a constant argument yields the same bits
as one read at run time.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tilewright.ir.core import Operation
from tilewright.ir.float_to_int import integer_of_float
from tilewright.ir.ops.arithmetic import Cast, Cmp, Extremum
from tilewright.ir.types import I1, FloatType, IntType, PointerType, Type, element_type
from tilewright.passes.math.float_formats import cast_to, from_bits, round_to, to_bits

#: ``fold(element type of the first operand, operation, *values)``
Fold = Callable[..., Any]


def fold(operation: Operation, values: list[Any]) -> int | float | bool | None:
    """The operation's element for constant operands ``values``; None where it is not exact."""
    function = FOLDS.get(operation.name)
    if function is None:
        return None
    element = element_type(next(iter(operation.operands)).type)
    if isinstance(element, FloatType):
        values = [
            round_to(value, element) if isinstance(value, float) else value for value in values
        ]
    found: int | float | bool | None = function(element, operation, *values)
    if isinstance(found, float) and not math.isfinite(found):
        target = element_type(operation.result.type)
        if isinstance(target, FloatType) and not target.has_infinity:
            # what overflow and NaN become without encodings of their own is the format's affair
            return None
    return found


def _arithmetic(exact: Callable[[Any, Any], Any]) -> Fold:
    """Integers wrap around; floats round once: f64 by the machine, narrower ones in f64 first,
    which two extra rounding bits make innocuous."""

    def function(element: Type, operation: Operation, a: Any, b: Any) -> int | float:
        if isinstance(element, IntType):
            return element.wrap(exact(a, b))
        assert isinstance(element, FloatType)
        return cast_to(exact(a, b), element)

    return function


def _divide(element: Type, operation: Operation, a: Any, b: Any) -> int | float:
    if isinstance(element, IntType):
        b = b or 1
        return element.wrap(abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b)))
    assert isinstance(element, FloatType)
    if a != a or b != b or (a == 0 and b == 0):
        return math.nan
    return cast_to(a / b if b != 0 else math.copysign(math.inf, a) * math.copysign(1.0, b), element)


def _remainder(element: Type, operation: Operation, a: Any, b: Any) -> int | float:
    if isinstance(element, IntType):
        remainder: int = abs(a) % abs(b or 1)
        return remainder if a >= 0 else -remainder
    if a != a or b != b or math.isinf(a) or b == 0:
        return math.nan
    return math.fmod(a, b)


def _negate(element: Type, operation: Operation, x: float) -> float:
    if isinstance(element, IntType):
        return element.wrap(int(-x))
    return -x if x != 0 or not isinstance(element, FloatType) or element.has_negative_zero else x


def _absolute(element: Type, operation: Operation, x: Any) -> int | float:
    return element.wrap(abs(x)) if isinstance(element, IntType) else math.fabs(x)


def _bitwise(exact: Callable[[Any, Any], Any]) -> Fold:
    return lambda element, operation, a, b: exact(a, b)


def _shift_left(element: IntType, operation: Operation, a: int, b: int) -> int | bool:
    if element is I1:
        return bool(a) and not b
    return element.wrap(a << b) if 0 <= b < element.bits else 0


def _shift_right(element: IntType, operation: Operation, a: int, b: int) -> int | bool:
    if element is I1:
        return bool(a) and not b
    return a >> (b if 0 <= b < element.bits else element.bits)


def _upper_product(element: IntType, operation: Operation, a: int, b: int) -> int:
    return element.wrap((a * b) >> element.bits)


def _extreme(choose: Callable[[float, float], float]) -> Fold:
    def function(element: Type, operation: Extremum, a: float, b: float) -> float:
        if a != a or b != b:
            if operation.nan == "propagate" or (a != a and b != b):
                return math.nan
            chosen = b if a != a else a
        else:
            chosen = choose(a, b)
        return cast_to(chosen, element) if isinstance(element, FloatType) else chosen

    return function


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def _compare(element: Type, operation: Cmp, a: Any, b: Any) -> bool:
    return COMPARISONS[operation.predicate](a, b)


def _fused(element: FloatType, operation: Operation, a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return cast_to(c if math.isfinite(a) and math.isfinite(b) else a * b + c, element)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return (
            a * b + c if c == 0 else 0.0
        )  # zero's sign is that of the sum of two zeros; a cancellation yields +0
    return cast_to(exact, element)


def _cast(element: Type, operation: Cast, x: Any) -> int | float | bool | None:
    target = element_type(operation.result.type)
    if target is element:
        return x  # type: ignore[no-any-return]
    if target is I1:
        return bool(x != 0)
    if isinstance(target, IntType):
        if isinstance(x, float):
            assert isinstance(element, FloatType)
            return integer_of_float(x, element, target)
        return target.wrap(int(x))
    assert isinstance(target, FloatType)
    exact = x if isinstance(x, float) else Fraction(int(x))
    if operation.rounding != "rtz":
        return cast_to(exact, target)
    result = round_to(exact, target, towards_zero=True)
    return result if math.isfinite(result) else None


def _bitcast(element: Type, operation: Operation, x: Any) -> int | float | bool | None:
    target = element_type(operation.result.type)
    if isinstance(element, FloatType):
        bits = to_bits(x, element)
        if bits is None:
            return None
    else:
        bits = int(x)
    if isinstance(target, FloatType):
        return from_bits(bits & ((1 << target.bits) - 1), target)
    if isinstance(target, PointerType):
        return 0 if bits == 0 else None
    assert isinstance(target, IntType)
    return bool(bits) if target is I1 else target.wrap(bits)


def _square_root(element: FloatType, operation: Operation, x: float) -> float:
    if x != x or x < 0:
        return math.nan
    return round_to(math.sqrt(x), element)


def _to_integer(rounding: Callable[[float], float]) -> Fold:
    def function(element: FloatType, operation: Operation, x: float) -> float:
        return math.copysign(float(rounding(x)), x) if math.isfinite(x) else x

    return function


def _copy_sign(element: FloatType, operation: Operation, a: float, b: float) -> float:
    return math.copysign(a, b)


def _scale(element: FloatType, operation: Operation, x: float, exponent: int) -> float:
    if x == 0 or not math.isfinite(x):
        return x
    return round_to(
        Fraction(x) * Fraction(2) ** max(-5000, min(exponent, 5000)), element
    ) or math.copysign(0.0, x)


def _leading_zeros(element: IntType, operation: Operation, x: int) -> int | bool | None:
    if element is I1:
        return None
    # The count of a narrow signed type's bits always fits it.
    return element.bits - (x & ((1 << element.bits) - 1)).bit_length()


def _set_bits(element: IntType, operation: Operation, x: int) -> int | bool:
    return x if element is I1 else (x & ((1 << element.bits) - 1)).bit_count()


FOLDS: dict[str, Fold] = {
    "add": _arithmetic(operator.add),
    "sub": _arithmetic(operator.sub),
    "mul": _arithmetic(operator.mul),
    "div": _divide,
    "rem": _remainder,
    "neg": _negate,
    "abs": _absolute,
    "and": _bitwise(operator.and_),
    "or": _bitwise(operator.or_),
    "xor": _bitwise(operator.xor),
    "shl": _shift_left,
    "shr": _shift_right,
    "mulhi": _upper_product,
    "min": _extreme(min),
    "max": _extreme(max),
    "cmp": _compare,
    "fma": _fused,
    "cast": _cast,
    "bitcast": _bitcast,
    "sqrt": _square_root,
    "floor": _to_integer(math.floor),
    "ceil": _to_integer(math.ceil),
    "round_even": _to_integer(round),
    "trunc": _to_integer(math.trunc),
    "copysign": _copy_sign,
    "ldexp": _scale,
    "clz": _leading_zeros,
    "popcount": _set_bits,
}
