"""Bugs of casts between number types."""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir import Builder, Operation
from tilewright.ir.types import BF16, F16, F32, F64, I1, U16, U32, FloatType, IntType, Type
from tilewright.passes.math.float_formats import max_finite
from tilewright_conformance.mutation.mutant import Switch, rewriting
from tilewright_conformance.mutation.rewriting import (
    CHANGED,
    Rewrite,
    as_bits,
    as_type,
    element,
    like,
    other_sign,
)


def _types(operation: Operation) -> tuple[Type, Type]:
    return element(operation.operands[0]), element(operation.result)


def _is_integer(type_: Type) -> bool:
    return isinstance(type_, IntType) and type_.bits > 1


def _narrows(operation: Operation) -> bool:
    source, target = _types(operation)
    return (
        isinstance(source, FloatType)
        and isinstance(target, FloatType)
        and target.bits < source.bits
    )


def _truncated(operation: Operation, b: Builder) -> Any:
    if not _narrows(operation) or operation.attribute("rounding") == "rtz":
        return None
    operation.attributes["rounding"] = "rtz"
    return CHANGED


def _rounded(operation: Operation, b: Builder) -> Any:
    return (
        b.cast(operation.operands[0], result=operation.result.type)
        if operation.attribute("rounding") == "rtz"
        else None
    )


def _through(middle: FloatType, *targets: FloatType) -> Rewrite:
    """Wider floats to some formats by way of another one."""

    def rewrite(operation: Operation, b: Builder) -> Any:
        source, target = _types(operation)
        wider = isinstance(source, FloatType) and source.bits > middle.bits
        if not wider or (target not in targets) or operation.attribute("rounding") == "rtz":
            return None
        return as_type(b, as_type(b, operation.operands[0], middle), target)

    return rewrite


def _upper_half(operation: Operation, b: Builder) -> Any:
    """The upper half of the bits of an f32, NaN or not."""
    if _types(operation) != (F32, BF16):
        return None
    bits = as_bits(b, operation.operands[0], U32)
    return as_bits(b, as_type(b, b.shr(bits, like(b, bits, 16)), U16), BF16)


def _to_fp8(operation: Operation) -> FloatType | None:
    _, target = _types(operation)
    return (
        target if _narrows(operation) and isinstance(target, FloatType) and target.is_fp8 else None
    )


def _not_saturated(operation: Operation, b: Builder) -> Any:
    target = _to_fp8(operation)
    if target is None or operation.attribute("rounding") == "rtz":
        return None
    (x,) = operation.operands
    type_ = operation.result.type
    beyond = b.cmp(b.abs(x), like(b, x, max_finite(target)), predicate="gt")
    # towards zero, an infinity is infinite, or NaN where the format has none
    infinite = b.cast(b.mul(x, like(b, x, math.inf)), rounding="rtz", result=type_)
    return b.select(beyond, infinite, b.cast(x, result=type_))


def _nan_lost(operation: Operation, b: Builder) -> Any:
    target = _to_fp8(operation)
    if target is None:
        return None
    (x,) = operation.operands
    operation.set_operand(0, b.select(b.cmp(x, x, predicate="ne"), like(b, x, 0.0), x))
    return CHANGED


def _subnormals_lost(operation: Operation, b: Builder) -> Any:
    target = _to_fp8(operation)
    if target is None:
        return None
    (x,) = operation.operands
    small = b.cmp(b.abs(x), like(b, x, 2.0 ** (1 - target.bias)), predicate="lt")
    operation.set_operand(0, b.select(small, like(b, x, 0.0), x))
    return CHANGED


def _to_nearest(operation: Operation, b: Builder) -> Any:
    source, target = _types(operation)
    if not isinstance(source, FloatType) or not _is_integer(target):
        return None
    (x,) = operation.operands
    return as_type(b, b.round_even(x if source in (F32, F64) else as_type(b, x, F32)), target)


def _unsigned_as_signed(operation: Operation, b: Builder) -> Any:
    source, target = _types(operation)
    if (
        not isinstance(source, IntType)
        or source.signed
        or source.bits == 1
        or not isinstance(target, FloatType)
    ):
        return None
    return as_type(b, as_bits(b, operation.operands[0], other_sign(operation.operands[0])), target)


def _zeros_brought_in(operation: Operation, b: Builder) -> Any:
    source, target = _types(operation)
    widens = (
        isinstance(source, IntType)
        and isinstance(target, IntType)
        and source.signed
        and target.bits > source.bits
    )
    return (
        as_type(b, as_bits(b, operation.operands[0], other_sign(operation.operands[0])), target)
        if widens
        else None
    )


def _saturated_integer(operation: Operation, b: Builder) -> Any:
    source, target = _types(operation)
    if (
        not (isinstance(source, IntType) and isinstance(target, IntType))
        or target is I1
        or target.bits >= source.bits
    ):
        return None
    (x,) = operation.operands
    low, high = max(source.minimum, target.minimum), min(source.maximum, target.maximum)
    return as_type(b, b.max(b.min(x, like(b, x, high)), like(b, x, low)), target)


def _lowest_bit(operation: Operation, b: Builder) -> Any:
    source, target = _types(operation)
    if not _is_integer(source) or target is not I1:
        return None
    (x,) = operation.operands
    return b.cmp(b.and_(x, like(b, x, 1)), like(b, x, 0), predicate="ne")


#: The formats that f16 has the range of.
_FP8 = (FloatType("f8e4m3fn"), FloatType("f8e5m2"))

SWITCHES: tuple[Switch, ...] = (
    rewriting(
        "cast-truncates",
        "wrong rounding",
        "cast",
        _truncated,
        "casts to narrower floats cut off in place of rounding to nearest",
    ),
    rewriting(
        "cast-ignores-rtz",
        "wrong rounding",
        "cast",
        _rounded,
        "casts that should cut off round to nearest",
    ),
    rewriting(
        "cast-rounds-twice",
        "wrong rounding",
        "cast",
        _through(F32, F16, BF16),
        "f64 becomes f16 and bf16 by way of f32",
    ),
    rewriting(
        "fp8-through-half",
        "wrong rounding",
        "cast",
        _through(F16, *_FP8),
        "wider floats become fp8 by way of f16",
    ),
    rewriting(
        "bfloat16-truncated",
        "wrong rounding",
        "cast",
        _upper_half,
        "f32 becomes bf16 by dropping the lower half of its bits",
    ),
    rewriting(
        "fp8-overflows",
        "fp8 overflow",
        "cast",
        _not_saturated,
        "casts to fp8 give infinity or NaN where they should saturate",
    ),
    rewriting("fp8-nan-lost", "fp8 NaN", "cast", _nan_lost, "NaN becomes zero in fp8"),
    rewriting(
        "fp8-subnormals-flushed",
        "subnormals flushed",
        "cast",
        _subnormals_lost,
        "fp8 has no subnormals",
    ),
    rewriting(
        "float-to-integer-rounds",
        "wrong rounding",
        "cast",
        _to_nearest,
        "floats become the nearest integer in place of the one towards zero",
    ),
    rewriting(
        "convert-unsigned-as-signed",
        "integer signedness",
        "cast",
        _unsigned_as_signed,
        "unsigned integers become floats as signed ones do",
    ),
    rewriting(
        "sign-extension-lost",
        "integer signedness",
        "cast",
        _zeros_brought_in,
        "signed integers are widened with zeros",
    ),
    rewriting(
        "integer-cast-saturates",
        "integer overflow",
        "cast",
        _saturated_integer,
        "casts to narrower integers saturate in place of wrapping",
    ),
    rewriting(
        "boolean-of-lowest-bit",
        "wrong predicate",
        "cast",
        _lowest_bit,
        "integers become i1 by their lowest bit",
    ),
)
