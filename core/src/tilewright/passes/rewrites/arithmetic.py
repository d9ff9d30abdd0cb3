"""Laws of numbers.

Integers are those modulo 2**bits; a law of floats holds to the last bit, signed zeros and
infinities included (a NaN stays a NaN).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.arithmetic import Addptr, Binary, Bitcast, Cast, Cmp, Ldexp, Select, Unary
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.shape import Splat
from tilewright.ir.table import Trait
from tilewright.ir.types import I1, FloatType, IntType, Type, bit_width, element_type, with_element
from tilewright.passes.fold import fold
from tilewright.passes.math.float_formats import contains, round_to, saturates
from tilewright.passes.rewriter import (
    Rewrite,
    Rewriter,
    constant_of,
    defined_by,
    is_negative_zero,
    is_positive_zero,
)

# Operations on constants.


def _with_trait(trait: Trait) -> tuple[str, ...]:
    return tuple(spec.name for spec in TABLE if trait in spec.traits)


#: What computes: a hint, elementwise too, only promises, and has a law of its own.
_COMPUTED = tuple(name for name in _with_trait(Trait.ELEMENTWISE) if name != "hint")


def _fold(operation: Operation, rewriter: Rewriter) -> Any:
    values = []
    for operand in operation.operands:
        value = constant_of(operand)
        if value is None:
            return None
        values.append(value)
    found = fold(operation, values)
    return None if found is None else rewriter.constant_like(operation.result.type, found)


def _uniform(operation: Operation, rewriter: Rewriter) -> Any:
    scalars = []
    for operand in operation.operands:
        splat = defined_by(operand, Splat)
        if splat is None:
            return None
        scalars.append(splat.x)
    spec, result = operation.spec, operation.result.type
    explicit = (element_type(result),) if spec.explicit_results else ()
    inner = rewriter.create(spec, [[scalar] for scalar in scalars], operation.attributes, explicit)
    inner.result.name = operation.result.name
    return rewriter.splat(inner.result, result=result)


# op(x, constant) = x or a constant.


def _is(wanted: float) -> Callable[[Any, Type], bool]:
    return lambda value, type_: bool(value == wanted)


def _all_ones(value: Any, type_: Type) -> bool:
    assert isinstance(type_, IntType)
    return bool(value is True if type_ is I1 else value == type_.wrap(-1))


def _maximum(value: Any, type_: Type) -> bool:
    return isinstance(type_, IntType) and value == type_.maximum


def _minimum(value: Any, type_: Type) -> bool:
    return isinstance(type_, IntType) and value == type_.minimum


def _is_one(value: Any) -> bool:
    return bool(value == 1.0)


def _keeping(test: Callable[[Any], bool]) -> Callable[[Any, Type], bool]:
    """A neutral number, where an infinite x would come back as it is."""
    return lambda value, type_: (
        test(value) and isinstance(type_, FloatType) and not saturates(type_)
    )


_INT, _FLOAT = IntType, FloatType

#: (law, operation, kind of element, test of a constant): laws of ``x op constant``
_ConstantLaw = tuple[str, str, type[Type], Callable[[Any, Type], bool]]

#: The constant is neutral: the result is x.
_NEUTRAL: tuple[_ConstantLaw, ...] = (
    ("x + 0 = x", "add", _INT, _is(0)),
    ("x - 0 = x", "sub", _INT, _is(0)),
    ("x * 1 = x", "mul", _INT, _is(1)),
    ("x / 1 = x", "div", _INT, _is(1)),
    ("x & ~0 = x", "and", _INT, _all_ones),
    ("x | 0 = x", "or", _INT, _is(0)),
    ("x ^ 0 = x", "xor", _INT, _is(0)),
    ("x << 0 = x", "shl", _INT, _is(0)),
    ("x >> 0 = x", "shr", _INT, _is(0)),
    ("min(x, largest) = x", "min", _INT, _maximum),
    ("max(x, minimum) = x", "max", _INT, _minimum),
    (
        "x + -0.0 = x, for 0.0 + -0.0 = 0.0; x + 0.0 is not x where x = -0.0",
        "add",
        _FLOAT,
        _keeping(is_negative_zero),
    ),
    ("x - 0.0 = x, for -0.0 - 0.0 = -0.0", "sub", _FLOAT, _keeping(is_positive_zero)),
    ("x * 1.0 = x", "mul", _FLOAT, _keeping(_is_one)),
    ("x / 1.0 = x", "div", _FLOAT, _keeping(_is_one)),
)

#: The constant absorbs: the result is the constant.
_ABSORBING: tuple[_ConstantLaw, ...] = (
    ("x * 0 = 0", "mul", _INT, _is(0)),
    ("x & 0 = 0", "and", _INT, _is(0)),
    ("x | ~0 = ~0", "or", _INT, _all_ones),
    ("min(x, minimum) = minimum", "min", _INT, _minimum),
    ("max(x, largest) = largest", "max", _INT, _maximum),
)


def _with_constant(row: _ConstantLaw, result: Callable[[Binary], Value]) -> Rewrite:
    law, name, kind, test = row

    def apply(operation: Binary, rewriter: Rewriter) -> Value | None:
        value = constant_of(operation.b)
        if value is None:
            return None
        element = element_type(operation.b.type)
        return result(operation) if isinstance(element, kind) and test(value, element) else None

    return Rewrite((name,), law, apply)


#: (law, operation of integers, the constant that op(x, x) is)
_WITH_ITSELF: tuple[tuple[str, str, int], ...] = (
    ("x - x = 0", "sub", 0),
    ("x % x = 0", "rem", 0),
    ("x ^ x = 0", "xor", 0),
)


def _with_itself(row: tuple[str, str, int]) -> Rewrite:
    law, name, result = row

    def apply(operation: Binary, rewriter: Rewriter) -> Value | None:
        a = operation.a
        return (
            rewriter.constant_like(a.type, result)
            if a is operation.b and isinstance(element_type(a.type), IntType)
            else None
        )

    return Rewrite((name,), law, apply)


def _idempotent(operation: Binary, rewriter: Rewriter) -> Value | None:
    element = element_type(operation.a.type)
    if isinstance(element, FloatType) and saturates(element):
        return None
    return operation.a if operation.a is operation.b else None


# Order and grouping.

#: predicate -> what it is with its operands exchanged, and its complement where no operand is NaN
SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def _constant_right(operation: Binary, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    if constant_of(a) is None or constant_of(b) is not None:
        return None
    if isinstance(operation, Cmp):
        return rewriter.cmp(b, a, predicate=SWAPPED[operation.predicate])
    return rewriter.create(operation.spec, [[b], [a]], operation.attributes).result


def _regroup(operation: Binary, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    inner = defined_by(a, Binary, operation.name)
    if inner is None or not isinstance(element_type(a.type), IntType):
        return None
    first, second = constant_of(inner.b), constant_of(b)
    if first is None or second is None:
        return None
    combined = fold(operation, [first, second])
    if combined is None:
        return None
    return rewriter.create(
        operation.spec,
        [[inner.a], [rewriter.constant_like(a.type, combined)]],
        operation.attributes,
    ).result


def _add_negated(operation: Binary, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    negated = defined_by(b, Unary, "neg")
    if negated is not None:
        return rewriter.sub(a, negated.x)
    negated = defined_by(a, Unary, "neg")
    return None if negated is None else rewriter.sub(b, negated.x)


def _subtract_negated(operation: Binary, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    negated = defined_by(b, Unary, "neg")
    return None if negated is None else rewriter.add(a, negated.x)


def _subtract_from_zero(operation: Binary, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    zero = constant_of(a)
    if zero is None or zero != 0:
        return None
    element = element_type(a.type)
    if isinstance(element, FloatType) and (
        saturates(element) or not (is_negative_zero(zero) and element.has_negative_zero)
    ):
        return None
    return rewriter.neg(b)


def _remainder_by_one(operation: Binary, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    if constant_of(b) != 1 or not isinstance(element_type(a.type), IntType):
        return None
    return rewriter.constant_like(a.type, 0)


def _zero_left(operation: Binary, rewriter: Rewriter) -> Value | None:
    a = operation.a
    return a if constant_of(a) == 0 and isinstance(element_type(a.type), IntType) else None


def _divide_by_power_of_two(operation: Binary, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    divisor, element = constant_of(b), element_type(a.type)
    if (
        not isinstance(element, FloatType)
        or divisor is None
        or not math.isfinite(divisor)
        or divisor == 0
    ):
        return None
    if abs(math.frexp(divisor)[0]) != 0.5:
        return None
    reciprocal = 1.0 / divisor if abs(divisor) > 2.0**-1000 else math.inf
    if (
        not math.isfinite(reciprocal)
        or round_to(reciprocal, element) != reciprocal
        or round_to(divisor, element) != divisor
    ):
        return None
    return rewriter.mul(a, rewriter.constant_like(b.type, reciprocal))


def _involution(operation: Unary, rewriter: Rewriter) -> Value | None:
    inner = defined_by(operation.x, Unary, "neg")
    return None if inner is None else inner.x


def _absolute(operation: Unary, rewriter: Rewriter) -> Any:
    x = operation.x
    element = element_type(x.type)
    if isinstance(element, IntType) and not element.signed:
        return x
    if defined_by(x, Unary, "abs") is not None:
        return x
    negated = defined_by(x, Unary, "neg")
    return None if negated is None else rewriter.abs(negated.x)


def _scale_by_zero(operation: Ldexp, rewriter: Rewriter) -> Value | None:
    return operation.x if constant_of(operation.exponent) == 0 else None


# Comparison and choice.


def _compare_itself(operation: Cmp, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    if a is not b:
        return None
    predicate = operation.predicate
    if isinstance(element_type(a.type), FloatType) and predicate not in ("lt", "gt"):
        return None  # NaN
    return rewriter.constant_like(operation.result.type, predicate in ("eq", "le", "ge"))


def _compare_limit(operation: Cmp, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    bound, element = constant_of(b), element_type(a.type)
    if bound is None or not isinstance(element, IntType):
        return None
    known = {
        ("lt", element.minimum): False,
        ("ge", element.minimum): True,
        ("gt", element.maximum): False,
        ("le", element.maximum): True,
    }
    answer = known.get((operation.predicate, int(bound)))
    return None if answer is None else rewriter.constant_like(operation.result.type, answer)


def _compare_widened_boolean(operation: Cmp, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    widened = defined_by(a, Cast)
    predicate = operation.predicate
    if widened is None or predicate not in ("eq", "ne") or element_type(widened.x.type) is not I1:
        return None
    bound = constant_of(b)
    if bound is None or bound not in (0, 1):
        return None
    boolean = widened.x
    if (predicate == "ne") == (bound == 0):
        return boolean
    return rewriter.xor(boolean, rewriter.constant_like(boolean.type, True))


def _negate_comparison(operation: Binary, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    if element_type(a.type) is not I1 or constant_of(b) is not True:
        return None
    compared = defined_by(a, Cmp)
    if compared is None:
        return None
    predicate = compared.predicate
    if isinstance(element_type(compared.a.type), FloatType) and predicate not in ("eq", "ne"):
        return None  # with NaN, not (a < b) is not a >= b
    return rewriter.cmp(compared.a, compared.b, predicate=NEGATED[predicate])


def _select(operation: Select, rewriter: Rewriter) -> Any:
    condition, a, b = operation.condition, operation.a, operation.b
    if a is b:
        return a
    known = constant_of(condition)
    if known is not None:
        return a if known else b
    if element_type(a.type) is I1:
        choices = constant_of(a), constant_of(b)
        if choices == (True, False):
            return condition
        if choices == (False, True):
            return rewriter.xor(condition, rewriter.constant_like(condition.type, True))
    negated = defined_by(condition, Binary, "xor")
    if negated is not None and constant_of(negated.b) is True:
        return rewriter.select(negated.a, b, a)
    return None


# Casts.


def _cast_same(operation: Cast, rewriter: Rewriter) -> Value | None:
    x = operation.x
    return x if x.type is operation.result.type else None


def _holds_integers(wide: Type, narrow: IntType) -> bool:
    """Return whether a cast from ``narrow`` to ``wide`` keeps every value."""
    if isinstance(wide, IntType):
        return wide.minimum <= narrow.minimum and narrow.maximum <= wide.maximum
    assert isinstance(wide, FloatType)
    return (
        narrow.bits - narrow.signed <= wide.mantissa + 1
        and round_to(float(narrow.maximum), wide) == narrow.maximum
    )


def _cast_of_cast(operation: Cast, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.x, Cast)
    if inner is None:
        return None
    x = inner.x
    first, second, third = (
        element_type(x.type),
        element_type(inner.result.type),
        element_type(operation.result.type),
    )
    if isinstance(first, IntType):
        keeps = _holds_integers(second, first)
        drops = (
            isinstance(second, IntType)
            and isinstance(third, IntType)
            and second is not I1
            and third is not I1
            and second.bits >= third.bits
        )
        if not (keeps or drops):
            return None
    elif not (
        isinstance(second, FloatType) and isinstance(first, FloatType) and contains(second, first)
    ):
        return None
    rounding = operation.rounding
    if first is third and rounding == "rtne" and isinstance(third, FloatType) and saturates(third):
        return None  # an infinity would come back finite
    narrows = (
        isinstance(first, FloatType)
        and isinstance(third, FloatType)
        and bit_width(third) < bit_width(first)
    )
    if rounding == "rtz" and not narrows:
        if not (
            isinstance(first, FloatType) and isinstance(third, FloatType) and contains(third, first)
        ):
            return None
        rounding = "rtne"
    return rewriter.cast(x, rounding=rounding, result=operation.result.type)


def _cast_of_absolute(operation: Cast, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.x, Unary, "abs")
    if inner is None or len(operation.x.uses) > 1:
        return None
    narrow, wide = element_type(inner.x.type), element_type(operation.result.type)
    if not (
        isinstance(narrow, FloatType) and isinstance(wide, FloatType) and contains(wide, narrow)
    ) or saturates(wide):
        return None
    return rewriter.abs(rewriter.cast(inner.x, result=operation.result.type))


def _cast_of_truncated(operation: Cast, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.x, Unary, "trunc")
    element = element_type(operation.result.type)
    if inner is None or not isinstance(element, IntType) or element is I1:
        return None
    return rewriter.cast(inner.x, rounding=operation.rounding, result=operation.result.type)


def _bitcast(operation: Bitcast, rewriter: Rewriter) -> Any:
    x, result = operation.x, operation.result.type
    if x.type is result:
        return x
    inner = defined_by(x, Bitcast)
    return None if inner is None else rewriter.bitcast(inner.x, result=result)


# Pointers.


def _move_by_zero(operation: Addptr, rewriter: Rewriter) -> Value | None:
    return operation.pointer if constant_of(operation.offset) == 0 else None


def _move_twice(operation: Addptr, rewriter: Rewriter) -> Any:
    pointer, offset = operation.pointer, operation.offset
    inner = defined_by(pointer, Addptr)
    if inner is None:
        return None
    first, second = constant_of(inner.offset), constant_of(offset)
    element = element_type(offset.type)
    if first is None or second is None or not isinstance(element, IntType):
        return None
    if (
        inner.offset.type is not offset.type
        or not element.minimum <= int(first) + int(second) <= element.maximum
    ):
        return None
    return rewriter.addptr(
        inner.pointer, rewriter.constant_like(offset.type, int(first) + int(second))
    )


def _move_uniformly_first(operation: Addptr, rewriter: Rewriter) -> Any:
    pointer, offset = operation.pointer, operation.offset
    inner, uniform = defined_by(pointer, Addptr), defined_by(offset, Splat)
    if inner is None or uniform is None:
        return None
    base = defined_by(inner.pointer, Splat)
    if base is None:
        return None
    moved = rewriter.addptr(base.x, uniform.x)
    return rewriter.addptr(
        rewriter.splat(moved, result=with_element(pointer.type, element_type(pointer.type))),
        inner.offset,
    )


def _hint_constant(operation: Hint, rewriter: Rewriter) -> Value | None:
    x = operation.x
    return x if constant_of(x) is not None else None


REWRITES: tuple[Rewrite, ...] = (
    Rewrite(_COMPUTED, "f(constants) = the constant f yields", _fold),
    Rewrite(
        (*_with_trait(Trait.COMMUTATIVE), "cmp"),
        "a op b = b op a: the constant stands right",
        _constant_right,
    ),
    *(_with_constant(row, lambda operation: operation.a) for row in _NEUTRAL),
    *(_with_constant(row, lambda operation: operation.b) for row in _ABSORBING),
    *map(_with_itself, _WITH_ITSELF),
    Rewrite(_with_trait(Trait.IDEMPOTENT), "x op x = x", _idempotent),
    Rewrite(("rem",), "x % 1 = 0", _remainder_by_one),
    Rewrite(("div", "rem", "shl", "shr"), "0 / x = 0 % x = 0 << x = 0 >> x = 0", _zero_left),
    Rewrite(_with_trait(Trait.ASSOCIATIVE), "(x op a) op b = x op (a op b) for integers", _regroup),
    Rewrite(("add",), "x + -y = x - y", _add_negated),
    Rewrite(("sub",), "x - -y = x + y", _subtract_negated),
    Rewrite(("sub",), "0 - x = -x for integers; for floats -0.0 - x = -x", _subtract_from_zero),
    Rewrite(
        ("div",),
        "x / c = x * (1 / c) where c and 1 / c are powers of two that the format holds: both round "
        "one number once",
        _divide_by_power_of_two,
    ),
    Rewrite(("neg",), "--x = x", _involution),
    Rewrite(("abs",), "||x|| = |x|, |-x| = |x|, and |x| = x for unsigned x", _absolute),
    Rewrite(("ldexp",), "x * 2**0 = x", _scale_by_zero),
    Rewrite(
        ("cmp",), "x = x, x <= x, x >= x, and not x < x; with NaN only the last", _compare_itself
    ),
    Rewrite(("cmp",), "minimum <= x <= largest", _compare_limit),
    Rewrite(("cmp",), "int(c) != 0 = c and int(c) == 0 = not c for i1 c", _compare_widened_boolean),
    Rewrite(
        ("xor",),
        "not (a < b) = a >= b for integers; not (a == b) = a != b for all",
        _negate_comparison,
    ),
    Rewrite(
        ("select",),
        "c ? x : x = x; true ? a : b = a; c ? true : false = c; not c ? a : b = c ? b : a",
        _select,
    ),
    Rewrite(("cast",), "T(x) = x for x of type T", _cast_same),
    Rewrite(
        ("cast",),
        "T(S(x)) = T(x) where S keeps every value of x, or T keeps fewer bits than S",
        _cast_of_cast,
    ),
    Rewrite(
        ("cast",),
        "T(|x|) = |T(x)| where T keeps every value of x: machines read |x| of wide numbers "
        "for nothing",
        _cast_of_absolute,
    ),
    Rewrite(("cast",), "T(trunc x) = T(x) for integers T but i1", _cast_of_truncated),
    Rewrite(("bitcast",), "the bits of the same bits are the same", _bitcast),
    Rewrite(("addptr",), "p + 0 = p", _move_by_zero),
    Rewrite(
        ("addptr",), "(p + a) + b = p + (a + b) for constants whose sum does not wrap", _move_twice
    ),
    Rewrite(
        ("addptr",),
        "(splat p + x) + splat s = splat (p + s) + x: addresses add in 64 bits",
        _move_uniformly_first,
    ),
    Rewrite(("hint",), "a constant needs no promises", _hint_constant),
    Rewrite(_COMPUTED, "f(splat x, splat y) = splat f(x, y)", _uniform),
)
