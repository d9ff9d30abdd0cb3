"""Rounding to integers, signs, powers of two and functions of real numbers, each written for one
element of f32 or f64."""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir.core import Operation
from tilewright.ir.expressions import Number, select
from tilewright.ir.types import FloatType, element_type
from tilewright.passes.decompose.decomposition import Decomposition, lifted, scalar
from tilewright.passes.decompose.numbers import sign_bit, unsigned
from tilewright.passes.math.math_library import math_function
from tilewright.passes.rewriter import Rewriter


def _copysign(a: Number, b: Number) -> Number:
    type_ = a.element
    assert isinstance(type_, FloatType)
    sign = sign_bit(type_)
    return ((unsigned(a) & (sign - 1)) | (unsigned(b) & sign)).bitcast(type_)


def _rounded(x: Number, direction: str) -> Number:
    """x as an integer, the nearest one or that in a direction, with the sign of x."""
    type_ = x.element
    assert isinstance(type_, FloatType)
    sign = unsigned(x) & sign_bit(type_)
    magnitude = (unsigned(x) ^ sign).bitcast(type_)
    limit = math.ldexp(1.0, type_.mantissa)
    found = (
        magnitude + limit
    ) - limit  # the sum has no bits for a fraction; its rounding is to nearest, ties to even
    if direction != "nearest":
        down, up = (
            select(found > magnitude, found - 1.0, found),
            select(found < magnitude, found + 1.0, found),
        )
        negative = sign.differs(0)
        found = {
            "zero": lambda: down,
            "below": lambda: select(negative, up, down),
            "above": lambda: select(negative, down, up),
        }[direction]()
    whole = (unsigned(found) | sign).bitcast(type_)
    return select(magnitude < limit, whole, x)  # greater numbers have no fraction; NaN is not less


def _function(operation: Operation, rewriter: Rewriter) -> Any:
    element = element_type(operation.result.type)
    assert isinstance(element, FloatType)
    body = math_function(operation.name, element, native_ldexp=False, double=False)
    return (
        None
        if body is None
        else lifted(rewriter, body.body, operation.operands, operation.result.type)
    )


def _rounding(name: str, direction: str, law: str) -> Decomposition:
    return scalar(
        name,
        law,
        ("constant", "bitcast", "and", "or", "xor", "add", "sub", "cmp", "select"),
        lambda x: _rounded(x, direction),
    )


def _math(name: str, law: str, *more: str) -> Decomposition:
    """Return the row of a function that scales by powers of two, with ``more`` operations."""
    return Decomposition(
        name,
        law,
        ("constant", "bitcast", "cast", "add", "sub", "mul", "shl", "shr", "cmp", "select", *more),
        _function,
    )


def _trigonometric(name: str) -> Decomposition:
    law = "multiples of a quarter turn split off, and polynomials"
    return _math(name, law, "fma", "and", "or", "xor", "abs", "mulhi", "neg")


ROWS: tuple[Decomposition, ...] = (
    scalar(
        "copysign",
        "the bits of one without the sign, and the sign bit of the other",
        ("constant", "bitcast", "and", "or"),
        _copysign,
    ),
    _rounding("round_even", "nearest", "2**mantissa added and subtracted"),
    _rounding("trunc", "zero", "2**mantissa added and subtracted, and a correction by one"),
    _rounding("floor", "below", "2**mantissa added and subtracted, and a correction by one"),
    _rounding("ceil", "above", "2**mantissa added and subtracted, and a correction by one"),
    _math("ldexp", "products with powers of two, whose bits are those of the exponent"),
    _math("exp", "a power of two split off, and a polynomial", "fma"),
    _math("exp2", "a power of two split off, and a polynomial", "fma"),
    _math("log", "a power of two split off, and a polynomial", "fma", "and", "or", "div"),
    _math("log2", "a power of two split off, and a polynomial", "fma", "and", "or", "div", "neg"),
    _trigonometric("sin"),
    _trigonometric("cos"),
    _math("tanh", "a polynomial, and exp of twice the magnitude", "fma", "abs", "div", "copysign"),
    _math("erf", "polynomials, and exp of one", "fma", "abs", "copysign", "neg"),
    Decomposition("rsqrt", "1 / sqrt(x)", ("constant", "div", "sqrt"), _function),
)
