"""The dot of block-scaled operands for scales of any size: as exact as sums in f32 are, and slow.

Scales of 2**-127 to 2**127 lead elements out of the range of every type that matrix instructions
take, though those of the other operand may bring their products back. So the dot is computed in
passes, each over a window of 100 exponents of scaled elements on either side; what is outside of
them is 0 in that pass. Elements x * 2**p of a window from 2**u on and y * 2**q of one from 2**v on
are multiplied as

    x * 2**(p - u + s)  times  y * 2**(q - v + t)    where s + t = u + v, and s is about t

in bf16, whose range holds both, or their product does not matter: where elements would be too
great, s is more than 26, and the product is infinite with the maximum elements as well; where they
would be too small, s is less than -126, and the product is less than 2**-152, which is 0 in f32.
All passes add to one accumulator.

Elements of more than eight bits are the sum of two in bf16, with passes of their own.

A first pass is over what is infinite or NaN, with 1 or -1 in place of all other elements but 0. The
result stays where it is not finite; in the other passes those elements are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Region, Value
from tilewright.ir.types import BF16, F32, I32, U32, element_type, with_element
from tilewright.passes.decompose.decomposition import decoded, encoded, loop
from tilewright.simt.passes.scaled.scaled_operands import (
    EXPONENTS,
    FRACTION_BITS,
    ScaledOperand,
    cast,
    or_nan,
    spread_scales,
    unpacked,
)

_Operands = tuple[ScaledOperand, ScaledOperand]

#: Exponents of a window.
_WIDTH: Final = 100
#: The maximum exponent of which rounding to bf16 makes no infinity.
_MAX_EXPONENT: Final = 126
_BIAS: Final = 127
_EXPONENT: Final = 0xFF
#: An f32 without its exponent, and the exponent of 1.
_REST: Final = 0x807FFFFF
_ONE: Final = _BIAS << FRACTION_BITS
#: By how much numbers in bf16 that are subnormal are moved up.
_LIFT: Final = 64
#: Exponents that an f8e4m3fn scale adds, on either side.
_SCALE_EXPONENTS: Final = 9


@dataclass(frozen=True)
class _Windows:
    """Division of an operand into windows of exponents.

    Attributes:
        first: the minimum exponent of its scaled elements.
        count: the number of windows from there on.
        parts: the number of bf16 parts of an element.
    """

    first: int
    count: int
    parts: int

    @property
    def passes(self) -> int:
        return self.count * self.parts


@dataclass(frozen=True)
class Passes:
    """Division of a dot into passes: by windows and parts of the left and the right operand."""

    left: _Windows
    right: _Windows

    @property
    def count(self) -> int:
        return 1 + self.left.passes * self.right.passes

    def run(self, b: Builder, c: Value, add: Callable[[Builder, Value, Value], Value]) -> Value:
        """Return ``c`` plus the sum over all passes of ``add(builder, accumulator, pass)``."""

        def body(inside: Builder, number: Value, total: Value) -> Value:
            added = add(inside, total, number)
            later = inside.cmp(number, inside.constant(value=0, result=I32), predicate="gt")
            region = Region([F32, F32])
            with inside.at_region(region):
                found, before = region.arguments
                magnitude = inside.and_(
                    encoded(inside, found), inside.constant(value=0x7FFFFFFF, result=U32)
                )
                infinity = inside.constant(value=_EXPONENT << FRACTION_BITS, result=U32)
                is_kept = inside.or_(later, inside.cmp(magnitude, infinity, predicate="ge"))
                inside.yield_([inside.select(is_kept, found, before)])
            return inside.region_op("map", [added, c], regions=[region], results=[c.type]).results[
                0
            ]

        (result,) = loop(b, self.count, [c], lambda number, carried: [body(b, number, carried[0])])
        return result

    def add(self, b: Builder, operands: _Operands, c: Value, number: Value) -> Value:
        """Return ``c`` plus what a pass adds to it."""

        def constant(value: int) -> Value:
            made: Value = b.constant(value=value, result=I32)
            return made

        at = b.max(b.sub(number, constant(1)), constant(0))
        indices = (b.div(at, constant(self.right.passes)), b.rem(at, constant(self.right.passes)))
        windows = (self.left, self.right)
        firsts = []
        for index, own in zip(indices, windows, strict=True):
            window = b.div(index, constant(own.parts))
            firsts.append(b.add(b.mul(window, constant(_WIDTH)), constant(own.first)))
        both = b.add(*firsts)
        half = b.shr(both, constant(1))
        is_special = b.cmp(number, constant(0), predicate="eq")
        elements = []
        for operand, own, index, first, shift in zip(
            operands, windows, indices, firsts, (half, b.sub(both, half)), strict=True
        ):
            is_low = (
                b.cmp(b.rem(index, constant(own.parts)), constant(1), predicate="eq")
                if own.parts > 1
                else None
            )
            elements.append(_elements(b, operand, first, shift, is_low, is_special))
        result: Value = b.dot(*elements, c)
        return result


def exact_dot(b: Builder, operands: _Operands, c: Value) -> Value:
    """Return ``(a * a_scale) @ (b * b_scale) + c``."""
    passes = passes_of(operands)
    return passes.run(
        b, c, lambda inside, total, number: passes.add(inside, operands, total, number)
    )


def passes_of(operands: _Operands) -> Passes:
    """Return how the dot of two operands is divided."""
    left, right = map(_windows_of, operands)
    return Passes(left, right)


def _windows_of(operand: ScaledOperand) -> _Windows:
    minimum, maximum = EXPONENTS[operand.format]
    if operand.has_exponents:
        minimum, maximum = minimum - _BIAS, maximum + _BIAS
    elif operand.scale is not None:
        minimum, maximum = minimum - _SCALE_EXPONENTS, maximum + _SCALE_EXPONENTS
    return _Windows(
        minimum, -(-(maximum + 1 - minimum) // _WIDTH), 1 if BF16 in operand.types else 2
    )


def _elements(
    b: Builder,
    operand: ScaledOperand,
    first: Value,
    shift: Value,
    is_low: Value | None,
    is_special: Value,
) -> Value:
    """Return a pass's bf16 operand, computed element by element to need few registers.

    Args:
        first: the minimum exponent of the pass's window, which becomes ``shift``.
        is_low: whether the pass is over the second of two parts.
        is_special: whether the pass is over infinities and NaN.
    """
    x = unpacked(b, operand, BF16)
    given = [x] if operand.scale is None else [x, spread_scales(b, operand, operand.scale, x)]
    region = Region([element_type(value.type) for value in given])
    with b.at_region(region):
        arguments = region.arguments
        b.yield_(
            [
                _element(
                    b,
                    operand,
                    arguments[0],
                    arguments[1] if operand.scale is not None else None,
                    first,
                    shift,
                    is_low,
                    is_special,
                )
            ]
        )
    (result,) = b.region_op(
        "map", given, regions=[region], results=[with_element(x.type, BF16)]
    ).results
    return result


def _element(
    b: Builder,
    operand: ScaledOperand,
    given: Value,
    scale: Value | None,
    first: Value,
    shift: Value,
    is_low: Value | None,
    is_special: Value,
) -> Value:
    """One element of :func:`_elements`."""

    def number(value: int) -> Value:
        made: Value = b.constant(value=value & 0xFFFFFFFF, result=U32)
        return made

    def exponent_of(of: Value) -> Value:
        found: Value = b.and_(b.shr(of, number(FRACTION_BITS)), number(_EXPONENT))
        return found

    def from_one_to_two(of: Value) -> Value:
        found: Value = b.or_(b.and_(of, number(_REST)), number(_ONE))
        return found

    x, zero = cast(b, given, F32), b.constant(value=0.0, result=F32)
    bits = encoded(b, x)
    is_finite = b.cmp(exponent_of(bits), number(_EXPONENT), predicate="lt")
    is_some = b.cmp(x, zero, predicate="ne")
    one = decoded(b, b.or_(b.and_(bits, number(1 << 31)), number(_ONE)), F32)
    special = b.select(b.and_(is_finite, is_some), one, x)

    lift = number(0)
    if operand.format == "bf16":
        is_small = b.cmp(exponent_of(bits), number(0), predicate="eq")
        bits = b.select(
            is_small, encoded(b, b.mul(x, b.constant(value=2.0**_LIFT, result=F32))), bits
        )
        lift = b.select(is_small, number(_LIFT), lift)
    # from the window's first exponent on
    exponents = b.sub(
        b.sub(b.sub(exponent_of(bits), lift), number(_BIAS)), b.bitcast(first, result=U32)
    )
    bits = from_one_to_two(bits)
    if scale is not None and operand.has_exponents:
        codes = cast(b, scale, U32)
        exponents = b.add(exponents, b.sub(codes, number(_BIAS)))
        if not operand.fast_math:
            special = b.mul(special, decoded(b, or_nan(b, codes, number(_ONE)), F32))
    elif scale is not None:
        factor = cast(b, scale, F32)
        special = b.mul(special, factor)
        is_some = b.and_(is_some, b.cmp(factor, zero, predicate="ne"))
        bits = encoded(b, b.mul(decoded(b, bits, F32), factor))
        is_finite = b.and_(is_finite, b.cmp(exponent_of(bits), number(_EXPONENT), predicate="lt"))
        exponents = b.add(exponents, b.sub(exponent_of(bits), number(_BIAS)))
        bits = from_one_to_two(bits)

    is_inside = b.cmp(exponents, number(_WIDTH), predicate="lt")
    maximum = b.constant(value=_MAX_EXPONENT, result=I32)
    placed = b.add(
        b.min(b.add(b.bitcast(exponents, result=I32), shift), maximum),
        b.constant(value=_BIAS, result=I32),
    )
    is_normal = b.cmp(placed, b.constant(value=0, result=I32), predicate="gt")
    value = b.or_(
        b.and_(bits, number(_REST)), b.shl(b.bitcast(placed, result=U32), number(FRACTION_BITS))
    )
    is_kept = b.and_(b.and_(is_inside, is_normal), b.and_(is_some, is_finite))
    scaled = b.select(is_kept, decoded(b, value, F32), zero)
    if is_low is not None:
        scaled = b.select(is_low, b.sub(scaled, cast(b, cast(b, scaled, BF16), F32)), scaled)
    return cast(b, b.select(is_special, special, scaled), BF16)
