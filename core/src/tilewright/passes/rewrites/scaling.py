"""Laws of numbers that a constant scales, as scores of attention are before their softmax.

They hold to the last bit, as those of :mod:`.arithmetic` do.

Rounding is monotonic, so the maximum of numbers stays the maximum under a positive factor: a
reduction to it is scaled once, instead of each number, and what subtracts it scales by a fused
multiply-add.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Binary, Extremum, Select, Unary
from tilewright.ir.ops.control import Reduce
from tilewright.ir.types import F32, FloatType, element_type
from tilewright.passes.math.float_formats import round_to, saturates
from tilewright.passes.rewriter import Rewrite, Rewriter, constant_of, defined_by

#: The most that a factor may be for :func:`_exponent`'s law.
_LARGEST: Final = 2.0**64


def _factor(value: Value) -> tuple[Binary, float] | None:
    """(the multiplication that yields a value, its factor), where that is a positive constant."""
    product = defined_by(value, Binary, "mul")
    element = element_type(value.type)
    if product is None or not isinstance(element, FloatType) or saturates(element):
        return None
    constant = constant_of(product.b)
    factor = math.nan if constant is None else round_to(constant, element)
    return (product, factor) if 0 < factor < math.inf else None


def _is_extremum(operation: Operation) -> bool:
    """Return whether an operation reduces one tile to its minimum or maximum."""
    if not isinstance(operation, Reduce) or len(operation.inputs) != 1:
        return False
    region = operation.combine
    combined, last = region.first, region.last
    return (
        isinstance(combined, Extremum)
        and combined.next is last
        and last is not None
        and set(combined.operands) == set(region.arguments)
    )


def _extremum(operation: Reduce, rewriter: Rewriter) -> Any:
    if not _is_extremum(operation):
        return None
    (scaled,) = operation.inputs
    found = _factor(scaled)
    if found is None or not all(
        reader is operation or reader.name in ("add", "sub") for reader in scaled.uses
    ):
        return None
    product, factor = found
    rewriter.before = operation.next
    result, readers = operation.result, list(operation.result.uses)
    made = rewriter.mul(result, rewriter.constant_like(result.type, factor))
    for reader in readers:
        for position, operand in enumerate(reader.operands):
            if operand is result:
                reader.set_operand(position, made)
    operation.set_operand(0, product.a)
    rewriter.revisit(product)
    rewriter.revisit_readers(made)
    return rewriter.update(operation)


def _masked(operation: Select, rewriter: Rewriter) -> Any:
    for position, (scaled, other) in enumerate(
        ((operation.a, operation.b), (operation.b, operation.a))
    ):
        found, infinite = _factor(scaled), constant_of(other)
        if (
            found is None
            or not isinstance(infinite, float)
            or not math.isinf(infinite)
            or len(scaled.uses) > 1
        ):
            continue
        product, _ = found
        choices = (product.a, other) if position == 0 else (other, product.a)
        return rewriter.mul(rewriter.select(operation.condition, *choices), product.b)
    return None


def _exponent(operation: Unary, rewriter: Rewriter) -> Any:
    """Let x * p be a subnormal number, for else x * p is exact.

    With |c| at most 2**64 its multiple by c is below 2**-62, and rounded otherwise by at most
    2**-85. Next to a y of 2**-37 or more neither shows in the difference; with a smaller y the
    difference is too small for its exponential not to be 1.
    """
    difference = defined_by(operation.x, Binary, "sub")
    outer = None if difference is None else _factor(difference.a)
    inner = None if outer is None else _factor(outer[0].a)
    if (
        difference is None
        or outer is None
        or inner is None
        or element_type(operation.x.type) is not F32
    ):
        return None
    (product, second), (scaled, first) = outer, inner
    combined = first * second
    if (
        math.frexp(first)[0] != 0.5
        or first > 1
        or second > _LARGEST
        or combined < 2.0**-126
        or round_to(combined, F32) != combined
    ):
        return None
    others = [
        reader
        for value in (scaled.result, product.result)
        for reader in value.uses
        if reader is not product
    ]
    if not all(_is_extremum(reader) or _is_exponent(reader) for reader in others):
        return None
    rewriter.region, rewriter.before = difference.parent, difference
    difference.set_operand(
        0, rewriter.mul(scaled.a, rewriter.constant_like(scaled.a.type, combined))
    )
    if not product.result.uses:
        rewriter.erase(product)
    for reader in others:  # which may be the only ones now
        rewriter.revisit(reader)
    return rewriter.update(difference)


def _is_exponent(operation: Operation) -> bool:
    """Return whether an operation is a difference that nothing but exponentials read."""
    return operation.name == "sub" and all(
        reader.name in ("exp", "exp2") for reader in operation.result.uses
    )


REWRITES: tuple[Rewrite, ...] = (
    Rewrite(("select",), "c ? x * k : inf = (c ? x : inf) * k, for k > 0", _masked),
    Rewrite(("reduce",), "max(x * k) = max(x) * k, for k > 0: rounding is monotonic", _extremum),
    Rewrite(
        ("exp", "exp2"),
        "exp(x * p * c - y) = exp(x * (p * c) - y), for p a power of two up to 1",
        _exponent,
    ),
)
