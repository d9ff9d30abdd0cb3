"""Bugs of integer and floating-point arithmetic, comparisons and selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import Builder, Operation, Value
from tilewright.ir.types import F32, F64, FloatType, IntType, Type
from tilewright_conformance.mutation.mutant import Switch, rewriting
from tilewright_conformance.mutation.rewriting import (
    CHANGED,
    Rewrite,
    again,
    as_bits,
    as_type,
    element,
    is_float,
    is_signed,
    is_unsigned,
    like,
    other_sign,
)

Applies = Callable[[Value], bool]


def _swap(applies: Applies) -> Rewrite:
    """The last two operands in each other's place."""

    def rewrite(operation: Operation, b: Builder) -> Any:
        if not applies(operation.operands[-1]):
            return None
        *first, left, right = operation.operands
        operation.replace_operands([*first, right, left], operation.segments)
        return CHANGED

    return rewrite


def _any(value: Value) -> bool:
    return True


def _swapped_shift(operation: Operation, b: Builder) -> Any:
    amount, shifted = operation.operands
    bits = element(amount).bits  # type: ignore[attr-defined]
    return getattr(b, operation.name)(shifted, b.and_(amount, like(b, amount, bits - 1)))


def _predicate(table: dict[str, str], applies: Applies = _any) -> Rewrite:
    def rewrite(operation: Operation, b: Builder) -> Any:
        predicate = operation.attribute("predicate")
        if predicate not in table or not applies(operation.operands[0]):
            return None
        operation.attributes["predicate"] = table[predicate]
        return CHANGED

    return rewrite


def _ordered_not_equal(operation: Operation, b: Builder) -> Any:
    if operation.attribute("predicate") != "ne" or not is_float(operation.operands[0]):
        return None
    return b.or_(
        b.cmp(*operation.operands, predicate="lt"), b.cmp(*operation.operands, predicate="gt")
    )


_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def _unordered(operation: Operation, b: Builder) -> Any:
    opposite = _OPPOSITE.get(operation.attribute("predicate"))
    if opposite is None or not is_float(operation.operands[0]):
        return None
    found = b.cmp(*operation.operands, predicate=opposite)
    return b.xor(found, like(b, found, True))


def _other_nan_rule(operation: Operation, b: Builder) -> Any:
    if not is_float(operation.result):
        return None
    operation.attributes["nan"] = (
        "propagate" if operation.attribute("nan") == "ignore" else "ignore"
    )
    return CHANGED


def _second_where_unordered(operation: Operation, b: Builder) -> Any:
    if not is_float(operation.result):
        return None
    return b.select(
        b.cmp(*operation.operands, predicate="gt" if operation.name == "max" else "lt"),
        *operation.operands,
    )


def _without_negative_zero(operation: Operation, b: Builder) -> Any:
    if not is_float(operation.result):
        return None
    if operation.name == "neg":
        return b.sub(like(b, operation.result, 0.0), operation.operands[0])
    return b.add(again(operation, b).result, like(b, operation.result, 0.0))


def _flushed(operation: Operation, b: Builder) -> Any:
    smallest: dict[Type, float] = {F32: 2.0**-126, F64: 2.0**-1022}
    tiny = smallest.get(element(operation.result))
    if tiny is None:
        return None
    value = again(operation, b).result
    zero = b.copysign(like(b, value, 0.0), value)
    return b.select(b.cmp(b.abs(value), like(b, value, tiny), predicate="lt"), zero, value)


# ---- integers


def _floors(operation: Operation, b: Builder) -> Any:
    """Division and remainder as Python has them."""
    if not is_signed(operation.result):
        return None
    left, right = operation.operands
    rest, zero = b.rem(left, right), like(b, left, 0)
    other = b.and_(
        b.cmp(rest, zero, predicate="ne"), b.cmp(b.xor(rest, right), zero, predicate="lt")
    )
    if operation.name == "rem":
        return b.select(other, b.add(rest, right), rest)
    quotient = b.div(left, right)
    return b.select(other, b.sub(quotient, like(b, quotient, 1)), quotient)


def _other_signedness(applies: Applies) -> Rewrite:
    """Apply the operation to the same bits as integers of the other signedness."""

    def rewrite(operation: Operation, b: Builder) -> Any:
        if not applies(operation.operands[0]):
            return None
        source = element(operation.operands[0])
        operands = [as_bits(b, value, other_sign(value)) for value in operation.operands]
        found = getattr(b, operation.name)(
            *operands, **{name: operation.attributes[name] for name in operation.attributes}
        )
        return found if operation.name == "cmp" else as_bits(b, found, source)

    return rewrite


def _amount_modulo_32(operation: Operation, b: Builder) -> Any:
    value, amount = operation.operands
    if element(value).bits != 64:  # type: ignore[attr-defined]
        return None
    return getattr(b, operation.name)(value, b.and_(amount, like(b, amount, 31)))


def _saturating_sum(operation: Operation, b: Builder) -> Any:
    type_ = element(operation.result)
    if not isinstance(type_, IntType) or not type_.signed:
        return None
    left, right = operation.operands
    total, zero = b.add(left, right), like(b, left, 0)
    overflow = b.cmp(b.and_(b.xor(total, left), b.xor(total, right)), zero, predicate="lt")
    limit = b.select(
        b.cmp(left, zero, predicate="lt"),
        like(b, left, type_.minimum),
        like(b, left, type_.maximum),
    )
    return b.select(overflow, limit, total)


def _mul_in_32_bits(operation: Operation, b: Builder) -> Any:
    type_ = element(operation.result)
    if not isinstance(type_, IntType) or type_.bits != 64:
        return None
    narrow = [as_type(b, value, IntType(32, type_.signed)) for value in operation.operands]
    return as_type(b, b.mul(*narrow), type_)


def _saturating_magnitude(operation: Operation, b: Builder) -> Any:
    type_ = element(operation.result)
    if not isinstance(type_, IntType) or not type_.signed:
        return None
    value = b.abs(operation.operands[0])
    return b.select(
        b.cmp(value, like(b, value, 0), predicate="lt"), like(b, value, type_.maximum), value
    )


def _zeros_of_zero(operation: Operation, b: Builder) -> Any:
    count = b.clz(operation.operands[0])
    return b.min(count, like(b, count, element(count).bits - 1))  # type: ignore[attr-defined]


# ---- floats


def _rounded_twice(operation: Operation, b: Builder) -> Any:
    left, right, addend = operation.operands
    return b.add(b.mul(left, right), addend)


def _by_reciprocal(operation: Operation, b: Builder) -> Any:
    if element(operation.result) not in (F32, F64) or operation.attribute("approximate"):
        return None
    left, right = operation.operands
    return b.mul(left, b.div(like(b, right, 1.0), right))


def _in_single(operation: Operation, b: Builder) -> Any:
    if element(operation.result) is not F64:
        return None
    narrow = [as_type(b, value, F32) for value in operation.operands]
    return as_type(b, getattr(b, operation.name)(*narrow), F64)


def _sum_truncated(operation: Operation, b: Builder) -> Any:
    """The sum in a wider format, cut off to the narrow one."""
    type_ = element(operation.result)
    if not isinstance(type_, FloatType) or type_.bits != 16:
        return None
    wide = [as_type(b, value, F32) for value in operation.operands]
    return b.cast(getattr(b, operation.name)(*wide), rounding="rtz", result=operation.result.type)


SWITCHES: tuple[Switch, ...] = (
    rewriting(
        "sub-swapped", "swapped operands", "sub", _swap(is_float), "b - a for a - b of floats"
    ),
    rewriting(
        "div-swapped", "swapped operands", "div", _swap(is_float), "b / a for a / b of floats"
    ),
    rewriting(
        "rem-swapped", "swapped operands", "rem", _swap(is_float), "fmod(b, a) for fmod(a, b)"
    ),
    rewriting(
        "cmp-swapped",
        "swapped operands",
        "cmp",
        _swap(is_float),
        "comparisons of floats with their operands exchanged",
    ),
    rewriting("shift-swapped", "swapped operands", "shl shr", _swapped_shift, "b << a for a << b"),
    rewriting(
        "select-swapped",
        "swapped operands",
        "select",
        _swap(is_float),
        "select of floats returns the other choice",
    ),
    rewriting(
        "copysign-swapped",
        "swapped operands",
        "copysign",
        _swap(_any),
        "the magnitude of b with the sign of a",
    ),
    rewriting(
        "cmp-strict",
        "wrong predicate",
        "cmp",
        _predicate({"le": "lt", "ge": "gt"}, is_float),
        "<= of floats computed as <, >= as >",
    ),
    rewriting(
        "nan-ne-ordered",
        "wrong NaN rule",
        "cmp",
        _ordered_not_equal,
        "!= is false where an operand is NaN",
    ),
    rewriting(
        "nan-compares-true",
        "wrong NaN rule",
        "cmp",
        _unordered,
        "<, <=, > and >= are true where an operand is NaN",
    ),
    rewriting(
        "min-max-nan-rule",
        "wrong NaN rule",
        "min max",
        _other_nan_rule,
        "min and max propagate NaN where they should ignore it, and the reverse",
    ),
    rewriting(
        "min-max-nan-second",
        "wrong NaN rule",
        "min max",
        _second_where_unordered,
        "min and max give the second operand where one is NaN",
    ),
    rewriting(
        "negative-zero-lost",
        "signed zero lost",
        "neg mul",
        _without_negative_zero,
        "neg and mul of floats give 0.0 where -0.0 is right",
    ),
    rewriting(
        "subnormals-flushed",
        "subnormals flushed",
        "add sub mul div fma",
        _flushed,
        "results that are subnormal become zero",
    ),
    rewriting(
        "integer-division-floors",
        "integer division",
        "div rem",
        _floors,
        "signed div rounds down, and rem has the divisor's sign",
    ),
    rewriting(
        "division-unsigned",
        "integer signedness",
        "div rem",
        _other_signedness(is_signed),
        "signed div and rem computed as unsigned",
    ),
    rewriting(
        "shift-right-logical",
        "integer signedness",
        "shr",
        _other_signedness(is_signed),
        "signed shr brings in zeros",
    ),
    rewriting(
        "shift-right-arithmetic",
        "integer signedness",
        "shr",
        _other_signedness(is_unsigned),
        "unsigned shr brings in the top bit",
    ),
    rewriting(
        "comparison-signed",
        "integer signedness",
        "cmp",
        _other_signedness(is_unsigned),
        "unsigned integers compared as signed ones",
    ),
    rewriting(
        "min-max-signed",
        "integer signedness",
        "min max",
        _other_signedness(is_unsigned),
        "min and max of unsigned integers as of signed ones",
    ),
    rewriting(
        "mulhi-signed",
        "integer signedness",
        "mulhi",
        _other_signedness(is_unsigned),
        "mulhi of unsigned integers as of signed ones",
    ),
    rewriting(
        "shift-amount-modulo-32",
        "shift overflow",
        "shl shr",
        _amount_modulo_32,
        "64-bit shifts use the low five bits of the amount",
    ),
    rewriting(
        "addition-saturates",
        "integer overflow",
        "add",
        _saturating_sum,
        "signed additions stop at the maximum and minimum in place of wrapping",
    ),
    rewriting(
        "mul-in-32-bits",
        "integer overflow",
        "mul",
        _mul_in_32_bits,
        "64-bit multiplications computed in 32 bits",
    ),
    rewriting(
        "magnitude-saturates",
        "integer overflow",
        "abs",
        _saturating_magnitude,
        "abs of the minimum is the maximum",
    ),
    rewriting(
        "leading-zeros-of-zero", "edge value", "clz", _zeros_of_zero, "clz(0) is one too few"
    ),
    rewriting(
        "fma-rounded-twice",
        "wrong rounding",
        "fma",
        _rounded_twice,
        "fma computed as a multiplication and an addition",
        enable_fp_fusion=False,
    ),
    rewriting(
        "division-by-reciprocal",
        "wrong rounding",
        "div",
        _by_reciprocal,
        "a / b computed as a * (1 / b)",
    ),
    rewriting(
        "double-as-single",
        "wrong precision",
        "add sub mul div",
        _in_single,
        "f64 arithmetic computed in f32",
    ),
    rewriting(
        "half-sum-truncated",
        "wrong rounding",
        "add sub mul",
        _sum_truncated,
        "f16 and bf16 results cut off in place of rounded",
    ),
)
