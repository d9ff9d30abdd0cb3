"""Arithmetic on floats that a target does not compute in: in f32, rounded to the narrow format
after each operation, so that results are the same to the bit.

f32 has at least twice the bits of f16 and two more, so that the sum, difference, product, quotient
and remainder of two narrow numbers, rounded to f32 and then to their own format, are what one
rounding yields. ``fma`` is the exception: its sum is made odd in the last bit where it is not
exact, and then rounded. A value of such a type is only moved afterwards: loaded, stored, chosen,
reshaped, carried.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

from tilewright.ir.core import Function
from tilewright.ir.expressions import Number, select
from tilewright.ir.ops.arithmetic import Binary, Cast, Cmp, Constant, Fma, Unary
from tilewright.ir.types import F32, U32, FloatType, IntType, Type, element_type, with_element
from tilewright.passes.decompose import numbers
from tilewright.passes.decompose.decomposition import decoded, lifted
from tilewright.passes.math.float_formats import round_to, to_bits
from tilewright.passes.math.math_casts import cast_function, nan_bits
from tilewright.passes.math.math_expressions import Scope
from tilewright.passes.rewriter import Rewrite, Rewriter

#: Operation that is done in f32 for floats that a target does not compute in -> how.
WIDENED: Mapping[str, str] = {
    **dict.fromkeys(
        ("add", "sub", "mul", "div", "rem", "min", "max", "cmp"), "in f32, and rounded"
    ),
    Fma.row.name: "in f32, made odd where it is not exact, and rounded",
}
_BITWISE = {row.operation: row for row in numbers.ROWS if row.operation in ("neg", "abs")}


def widening(native: Collection[FloatType]) -> list[Rewrite]:
    """The rewrites for a target that computes in ``native``, f32 among them.

    Arithmetic of f64 stays: where f64 is not ``native`` it is not made.
    """
    native = frozenset(native)

    def is_foreign(type_: Type) -> bool:
        element = element_type(type_)
        return isinstance(element, FloatType) and element.bits <= 16 and element not in native

    def constant(operation: Constant, b: Rewriter) -> Any:
        type_, value = operation.result.type, operation.value
        if not is_foreign(type_):
            return None
        assert isinstance(type_, FloatType)
        bits = to_bits(round_to(value, type_), type_)
        word = b.constant(
            value=nan_bits(type_) if bits is None else bits,
            result=IntType(type_.bits, signed=False),
        )
        return decoded(b, word, type_)

    def cast(operation: Cast, b: Rewriter) -> Any:
        x, result = operation.x, operation.result.type
        if not is_foreign(x.type) and not is_foreign(result):
            return None
        body = cast_function(
            element_type(x.type), element_type(result), operation.rounding, native=native
        )
        return x if body is None else lifted(b, body.body, [x], result)

    def bitwise(operation: Unary, b: Rewriter) -> Any:
        return (
            _BITWISE[operation.name].apply(operation, b)
            if is_foreign(operation.result.type)
            else None
        )

    def wide(operation: Binary, b: Rewriter) -> Any:
        first = operation.a.type
        if not is_foreign(first):
            return None
        operands = [
            b.cast(operand, result=with_element(first, F32))
            for operand in (operation.a, operation.b)
        ]
        found = b.create(
            operation.spec, [[operand] for operand in operands], operation.attributes
        ).result
        return found if isinstance(operation, Cmp) else b.cast(found, result=first)

    def fused(operation: Fma, b: Rewriter) -> Any:
        type_ = operation.result.type
        if not is_foreign(type_):
            return None
        operands = [
            b.cast(operand, result=with_element(type_, F32))
            for operand in (operation.a, operation.b, operation.c)
        ]
        body = _fma_made_odd()
        found = lifted(b, body.body, operands, with_element(type_, F32))
        assert found is not None
        return b.cast(found[0], result=type_)

    return [
        Rewrite(("constant",), "a number is its bits", constant),
        Rewrite(("cast",), "bits are decomposed and put together by operations on integers", cast),
        Rewrite(tuple(_BITWISE), "the sign is a bit", bitwise),
        *(
            Rewrite((name,), law, fused if name == Fma.row.name else wide)
            for name, law in WIDENED.items()
        ),
    ]


@functools.cache
def _fma_made_odd() -> Function:
    """a * b + c of narrow numbers, rounded to f32 in such a way that rounding it to a narrower
    format is the only rounding."""
    scope = Scope("fma_made_odd", (F32, F32, F32), F32)
    return scope.finish(_odd_sum(*scope.arguments))


def _odd_sum(a: Number, b: Number, c: Number) -> Number:
    # bf16 has the exponents of f32: large numbers are made smaller first, which is exact, as bf16
    # has no bits below 2**-133.
    large = (_magnitude(a * b) >= 2.0**100) | (_magnitude(c) >= 2.0**100)
    down, up = select(large, 2.0**-16, a.like(1.0)), select(large, 2.0**16, a.like(1.0))
    product, addend = (a * down) * b, c * down
    # The product of 8 bits by 8 or 11 by 11 is exact, but where it leaves the exponents of f32:
    # then any number as far away does, if it is not 0 or infinite.
    negative = ((_bits(a) ^ _bits(b)) >> 31).differs(0)
    lost = product.equals(0.0) & a.differs(0.0) & b.differs(0.0)
    product = select(lost, select(negative, -(2.0**-149), a.like(2.0**-149)), product)
    beyond = (
        (_magnitude(product) > _LARGEST) & (_magnitude(a) <= _LARGEST) & (_magnitude(b) <= _LARGEST)
    )
    product = select(beyond, select(negative, -(2.0**127), a.like(2.0**127)), product)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)  # exact, by Knuth
    bits = _bits(total)
    outward = (error > 0.0).equals(total > 0.0)
    odd = select(outward, bits + 1, bits - 1).bitcast(F32)
    even = (bits & 1).equals(0)
    # an error that is no number comes with a sum that is infinite or no number
    inexact = (error < 0.0) | (error > 0.0)
    return select(inexact & even & (_magnitude(total) <= _LARGEST), odd, total) * up


_LARGEST = (2 - 2.0**-23) * 2.0**127


def _bits(x: Number) -> Number:
    return x.bitcast(U32)


def _magnitude(x: Number) -> Number:
    return (_bits(x) & 0x7FFFFFFF).bitcast(F32)
