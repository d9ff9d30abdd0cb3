"""Steps that compute element by element: arithmetic, comparisons, bits, functions, conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import Builder, Value
from tilewright.ir.types import (
    F32,
    FLOATS,
    I1,
    I32,
    INTEGERS,
    FloatType,
    IntType,
    Type,
    element_type,
    with_element,
)
from tilewright.passes.math.float_formats import max_finite
from tilewright.passes.math.math_library import MATH
from tilewright_conformance.random_programs.state import (
    State,
    is_float,
    is_int,
    is_number,
    is_wide_float,
)

_PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")


def _apply(b: Builder, name: str, *operands: Value, **attributes: Any) -> Value:
    found: Value = getattr(b, f"{name}_" if name in ("and", "or") else name)(
        *operands, **attributes
    )
    return found


def computes(type_: Type) -> bool:
    """Return whether the type has arithmetic; the fp8 types only have storage and matmuls."""
    return is_number(type_) and not (isinstance(type_, FloatType) and type_.is_fp8)


def arithmetic(state: State) -> None:
    a = state.exact(computes)
    if a is not None:
        state.add(_apply(state.builder, state.one_of(("add", "sub", "mul")), a, state.partner(a)))


def extremes(state: State) -> None:
    a = state.exact(computes)
    if a is not None:
        name, nan = state.one_of(("min", "max")), state.one_of(("ignore", "propagate"))
        b = state.partner(a)
        a, b = state.positive_zero(a), state.positive_zero(b)
        state.add(_apply(state.builder, name, a, b, nan=nan))


def multiply_add(state: State) -> None:
    """Add a multiplication and an addition that must not be fused: the first one rounds."""
    a = state.exact(lambda type_: is_float(type_) and computes(type_))
    if a is not None:
        multiplied = state.builder.mul(a, state.partner(a))
        state.add(
            getattr(state.builder, state.one_of(("add", "sub")))(multiplied, state.partner(a))
        )


def fused(state: State) -> None:
    a = state.exact(lambda type_: is_float(type_) and computes(type_))
    if a is not None:
        state.add(state.builder.fma(a, state.partner(a), state.partner(a)))


def divide(state: State) -> None:
    a = state.exact(computes)
    if a is None:
        return
    b, name = state.partner(a), state.one_of(("div", "div", "rem"))
    element = element_type(a.type)
    if isinstance(element, IntType):
        with state.guarding() as guard:
            b = guard.or_(b, guard.constant_like(a.type, 1))
            if element.signed:  # the smallest integer divided by -1 is undefined
                overflows = guard.and_(
                    guard.cmp(a, guard.constant_like(a.type, element.minimum), predicate="eq"),
                    guard.cmp(b, guard.constant_like(a.type, -1), predicate="eq"),
                )
                b = guard.select(overflows, guard.constant_like(a.type, 3), b)
        state.add(_apply(state.builder, name, a, b))
    elif element is F32 and name == "div" and state.chance(4):
        kind = state.one_of(("approximate", "exact"))
        state.add(
            state.builder.div(a, b, **{kind: True}), (3.0, 0.0) if kind == "approximate" else None
        )
    else:
        state.add(_apply(state.builder, name, a, b))


def bitwise(state: State) -> None:
    a = state.exact(lambda type_: isinstance(type_, IntType))
    if a is not None:
        state.add(_apply(state.builder, state.one_of(("and", "or", "xor")), a, state.partner(a)))


def shift(state: State) -> None:
    a = state.exact(is_int)
    if a is not None:
        element = element_type(a.type)
        assert isinstance(element, IntType)
        amount = state.partner(a)
        with state.guarding() as b:
            amount = b.and_(amount, b.constant_like(a.type, element.bits - 1))
        state.add(_apply(state.builder, state.one_of(("shl", "shr")), a, amount))


def high_half(state: State) -> None:
    a = state.exact(lambda type_: isinstance(type_, IntType) and type_.bits in (32, 64))
    if a is not None:
        state.add(state.builder.mulhi(a, state.partner(a)))


def compare(state: State) -> None:
    a = state.exact(lambda type_: is_number(type_) or type_ is I1)
    if a is not None:
        state.add(state.builder.cmp(a, state.partner(a), predicate=state.one_of(_PREDICATES)))


def choose(state: State) -> None:
    item = state.pick(lambda item: item.bound is None or item.bound == (0.0, 0.0))
    if item is None:
        return
    a = item.value
    condition = state.exact_of(with_element(a.type, I1))
    if condition is None:
        number = state.exact(is_number)
        if number is None or with_element(number.type, I1) is not with_element(a.type, I1):
            return
        condition = state.builder.cmp(
            number, state.partner(number), predicate=state.one_of(_PREDICATES)
        )
    state.add(state.builder.select(condition, a, state.partner(a)), item.bound)


def unary(state: State) -> None:
    a = state.exact(is_number)
    if a is None:
        return
    element = element_type(a.type)
    name = state.one_of(
        ("neg", "abs", "floor", "ceil", "trunc", "round_even", "sqrt")
        if is_wide_float(element)
        else ("neg", "abs", "clz", "popcount", "clz")
        if is_int(element)
        else ("neg", "abs")
    )
    if name == "sqrt" and element is F32 and state.chance(6):
        state.add(state.builder.sqrt(a, approximate=True), (3.0, 0.0))
    else:
        state.add(_apply(state.builder, name, a))


def signs_and_powers(state: State) -> None:
    a = state.exact(is_wide_float)
    if a is None:
        return
    if state.chance(2):
        state.add(state.builder.copysign(a, state.settled(state.partner(a))))
    else:
        exponent = state.exact_of(with_element(a.type, I32))
        if exponent is None or state.chance(2):
            exponent = state.builder.constant_like(
                with_element(a.type, I32),
                state.one_of((-1080, -150, -30, -3, 0, 1, 10, 100, 127, 300, 2**31 - 1, -(2**31))),
            )
        state.add(state.builder.ldexp(a, exponent))


def function(state: State) -> None:
    a = state.exact(is_wide_float)
    if a is not None:
        element = element_type(a.type)
        assert isinstance(element, FloatType)
        name = state.one_of(tuple(name for name, type_ in MATH if type_ is element))
        # The table's bound is from the exact result; the reference's own rounding is half a unit
        # more.
        state.add(_apply(state.builder, name, a), (MATH[name, element].strict_ulp + 1.0, 0.0))


def convert(state: State) -> None:
    a = state.exact(lambda type_: True)
    if a is None:
        return
    source = element_type(a.type)
    # Casts among floats, where the roundings are, as often as to integers.
    targets = (
        *state.language.integers,
        I1,
        *state.language.floats,
        *(state.language.floats * 2 if is_float(source) else ()),
    )
    target = state.one_of(tuple(type_ for type_ in targets if type_ is not source))
    narrows = (
        isinstance(source, FloatType)
        and isinstance(target, FloatType)
        and target.bits < source.bits
    )
    rounding = "rtz" if narrows and state.chance(3) else "rtne"
    if isinstance(source, FloatType) and is_int(target):
        assert isinstance(target, IntType)
        a = _within(state, a, target)
    state.add(state.builder.cast(a, rounding=rounding, result=with_element(a.type, target)))


def _within(state: State, value: Value, target: IntType) -> Value:
    """A float that an integer type can hold: other casts are undefined."""
    source = element_type(value.type)
    assert isinstance(source, FloatType)
    maximum = max_finite(source)
    if maximum > 100 and state.chance(3):
        low, high = -100.0 if target.signed else 0.0, 100.0
    else:
        low, high = (
            max(-maximum, float(target.minimum)),
            min(
                maximum,
                2.0 ** (target.bits - target.signed) * (1.0 - 2.0 ** -(source.mantissa + 1)),
            ),
        )
    if source.is_fp8:
        assert maximum < 2**18
        # no minimum or maximum of fp8: what is out of range becomes zero
        with state.guarding() as b:
            wide = b.cast(value, result=with_element(value.type, F32))
            inside = b.and_(
                b.cmp(wide, b.constant_like(wide.type, low), predicate="ge"),
                b.cmp(wide, b.constant_like(wide.type, min(high, maximum)), predicate="le"),
            )
            found: Value = b.select(inside, value, b.constant_like(value.type, 0.0))
        return found
    value = state.settled(value, 0.0)
    with state.guarding() as b:
        clamped: Value = b.max(
            b.min(value, b.constant_like(value.type, high)), b.constant_like(value.type, low)
        )
    return clamped


def bits(state: State) -> None:
    """Reinterpret the bits of a value as another type.

    A float made so may be a signaling NaN, so it is moved only; a copy without NaN is computed
    with.
    """
    a = state.exact(is_number)
    if a is None:
        return
    source = element_type(a.type)
    assert isinstance(source, IntType | FloatType)
    numbers: tuple[IntType | FloatType, ...] = (*INTEGERS, *FLOATS)
    targets = [
        type_
        for type_ in numbers
        if type_.bits == source.bits and type_ is not source and type_ in state.language.numbers
    ]
    if not targets:
        return
    target = state.one_of(tuple(targets))
    found: Value = state.builder.bitcast(state.settled(a), result=with_element(a.type, target))
    if isinstance(target, FloatType):
        state.add(found, (0.0, 0.0))
        found = state.settled(found)
    state.add(found)


#: step -> how often it is drawn
STEPS: dict[Callable[[State], None], int] = {
    arithmetic: 10,
    extremes: 6,
    multiply_add: 4,
    fused: 5,
    divide: 8,
    bitwise: 4,
    shift: 6,
    high_half: 3,
    compare: 8,
    choose: 5,
    unary: 12,
    signs_and_powers: 5,
    function: 8,
    convert: 20,
    bits: 4,
}
