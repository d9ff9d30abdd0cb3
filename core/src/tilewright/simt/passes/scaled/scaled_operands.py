"""Operands of ``dot_scaled``: unpacked, and brought to a type of a dot, with their scales or
without.

The dot's type holds an element times its scale exactly, short of that type's range. Elements of all
formats but bf16 are multiples of their smallest one, and so is what is made of them. Where the type
has the range of f32 (bf16, f32), that is in the type's normal range for all codes of
:func:`safe_codes`:

    format   minimum  maximum        codes
    e2m1     2**-1    1.5 * 2**2     2 .. 252
    e4m3     2**-9    1.75 * 2**8    10 .. 246
    e5m2     2**-16   1.75 * 2**15   17 .. 239
    fp16     2**-24   < 2**16        25 .. 239
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    U8,
    U16,
    U32,
    TileType,
    Type,
    bit_width,
    element_type,
    with_element,
)
from tilewright.passes.decompose.decomposition import decoded, encoded

#: Significant bits of an element of each format, of a power of two, and of an f8e4m3fn scale.
_BITS: Final = {"e2m1": 2, "e4m3": 4, "e5m2": 3, "bf16": 8, "fp16": 11}
_SCALE_BITS: Final = 4
_BF16_BITS: Final = 8
#: Minimum and maximum exponent of elements that are not 0.
EXPONENTS: Final = {
    "e2m1": (-1, 2),
    "e4m3": (-9, 8),
    "e5m2": (-16, 15),
    "fp16": (-24, 15),
    "bf16": (-133, 127),
}
#: Exponents that bring the usual scales of each format into the middle of f16's range: those of
#: groups whose maximum magnitude is about 2**-3.
_F16_HEADROOM: Final = {"e2m1": 0, "e4m3": 7, "e5m2": 14}
#: The code of a scale of 1, and the one that is NaN.
_ONE_CODE: Final = 127
_NAN_CODE: Final = 255
FRACTION_BITS: Final = 23
_NAN_BITS: Final = 0x7FC00000
#: f32 bits of a factor that leads every element but 0 out of the range of f16, and none out of that
#: of f32.
_BEYOND_F16: Final = (_ONE_CODE + 100) << FRACTION_BITS


@dataclass(frozen=True)
class ScaledOperand:
    """Operand a or b of a ``dot_scaled``.

    Attributes:
        value: its elements, [..., M, K] or [..., K, N]; of e2m1 two in a byte.
        scale: its scales, [..., M or N, groups]; None without.
        format: of its elements.
        pack_k: whether pairs of e2m1 lie along K.
        k_axis: which of its last two axes is K.
        fast_math: scales that are NaN need no care.
    """

    value: Value
    scale: Value | None
    format: str
    pack_k: bool
    k_axis: int
    fast_math: bool

    @property
    def rank(self) -> int:
        assert isinstance(self.value.type, TileType)
        return self.value.type.rank

    @property
    def has_exponents(self) -> bool:
        """Return whether its scales are e8m0: codes of powers of two."""
        return self.scale is not None and element_type(self.scale.type) is U8

    @property
    def groups(self) -> int:
        """Groups along K; 1 without scales."""
        if self.scale is None:
            return 1
        assert isinstance(self.scale.type, TileType)
        return self.scale.type.shape[-1]

    @property
    def extents(self) -> tuple[int, int]:
        """Its extents along its last two axes, unpacked."""
        assert isinstance(self.value.type, TileType)
        extents = list(self.value.type.shape[-2:])
        if self.format == "e2m1":
            extents[self.k_axis if self.pack_k else 1 - self.k_axis] *= 2
        return extents[0], extents[1]

    @property
    def types(self) -> tuple[Type, ...]:
        """The types that hold its scaled elements; f16 has not the range of bf16."""
        if self.format == "fp16" and self.scale is None:
            return F16, F32
        has_fractions = self.scale is not None and not self.has_exponents
        if _BITS[self.format] + _SCALE_BITS * has_fractions > _BF16_BITS:
            return (F32,)
        return (BF16, F32) if self.format == "bf16" else (BF16, F16, F32)


def operands_of(
    operation: DotScaled, mapping: Mapping[Value, Value] = MappingProxyType({})
) -> tuple[ScaledOperand, ScaledOperand]:
    """Return both operands of a ``dot_scaled``, or what a mapping has in their place."""
    a, a_scale, b, b_scale = (
        value if value is None else mapping.get(value, value)
        for value in (operation.a, operation.a_scale, operation.b, operation.b_scale)
    )
    assert a is not None and b is not None
    fast = operation.fast_math
    return (
        ScaledOperand(a, a_scale, operation.a_format, operation.a_pack_k, 1, fast),
        ScaledOperand(b, b_scale, operation.b_format, operation.b_pack_k, 0, fast),
    )


def dot_type(operands: tuple[ScaledOperand, ScaledOperand]) -> Type:
    """Return the narrowest type that holds the scaled elements of both."""
    return next(
        type_ for type_ in (BF16, F16, F32) if all(type_ in operand.types for operand in operands)
    )


def safe_codes(format_: str, type_: Type) -> tuple[int, int]:
    """Return the minimum and the maximum code of scales that keep all bits of a format's elements
    in a type.

    In f16, whose range is small, elements may become subnormal; in other types they stay normal.
    """
    minimum, maximum = EXPONENTS[format_]
    low, high = (-24, 15) if type_ is F16 else (-126, 127)
    return _ONE_CODE + low - minimum, _ONE_CODE + high - maximum


def is_guarded(operand: ScaledOperand, type_: Type) -> bool:
    """Return whether elements times scales may leave a type's range: f8e4m3fn scales are too small
    for that, but for f16, and for bf16 elements."""
    if operand.scale is None or operand.has_exponents:
        return operand.scale is not None
    return operand.format == "bf16" or (type_ is F16 and operand.format != "e2m1")


def headroom(operand: ScaledOperand, type_: Type) -> int:
    """Return the exponent of the power of two that :func:`scaled` multiplies an operand by besides.

    It keeps elements normal with the smallest scale, 2**-127, or brings usual ones into the range
    of f16.
    """
    if not operand.has_exponents or operand.format == "bf16":
        return 0
    return _F16_HEADROOM[operand.format] if type_ is F16 else safe_codes(operand.format, type_)[0]


def scaled(b: Builder, operand: ScaledOperand, type_: Type) -> Value:
    """Return an operand in a tile of ``type_``, times its scales and 2**:func:`headroom`.

    What its place in the range of ``type_`` cannot hold exactly is infinite or NaN. 0 stays 0,
    however small its scale is: groups of zeros come with all kinds of scales.
    """
    value = unpacked(b, operand, type_)
    if operand.scale is None:
        return cast(b, value, type_)
    if not operand.has_exponents:
        return _multiplied(b, operand, value, cast(b, operand.scale, F32), type_)
    codes = cast(b, operand.scale, U32)
    if operand.format == "bf16":
        return _unless_small(b, operand, value, type_)
    low, high = safe_codes(operand.format, type_)
    room = b.constant_like(codes.type, headroom(operand, type_))
    moved = b.add(codes, room)
    if type_ is F16:
        unsafe = b.cmp(
            b.sub(moved, b.constant_like(codes.type, low)),
            b.constant_like(codes.type, high - low),
            predicate="gt",
        )
        bits = b.select(unsafe, b.constant_like(codes.type, _BEYOND_F16), _shifted(b, moved))
        return _multiplied(
            b,
            operand,
            value,
            as_float(b, bits if operand.fast_math else or_nan(b, codes, bits)),
            type_,
        )
    unsafe = b.cmp(moved, b.constant_like(codes.type, _NAN_CODE - 1), predicate="gt")
    moved = _shifted(b, moved)
    return _multiplied(
        b,
        operand,
        value,
        as_float(b, b.select(unsafe, b.constant_like(codes.type, _NAN_BITS), moved)),
        type_,
    )


def _unless_small(b: Builder, operand: ScaledOperand, value: Value, type_: Type) -> Value:
    """Scaled bf16, of which any code may make elements too small: those are NaN."""
    assert operand.scale is not None
    through = BF16 if type_ is BF16 else F32
    value = cast(b, value, through)
    product = _multiplied(
        b, operand, value, power_of_two(b, operand.scale, fast=operand.fast_math), through
    )
    bits = encoded(b, product)
    exponent_bits = 0xFF << (bit_width(through) - 9)
    small = b.cmp(
        b.and_(bits, b.constant_like(bits.type, exponent_bits)),
        b.constant_like(bits.type, 0),
        predicate="eq",
    )
    lost = b.and_(small, b.cmp(value, b.constant_like(value.type, 0.0), predicate="ne"))
    kept = b.select(lost, b.constant_like(bits.type, exponent_bits | exponent_bits >> 1), bits)
    return cast(b, decoded(b, kept, through), type_)


def unpacked(b: Builder, operand: ScaledOperand, type_: Type) -> Value:
    """Return an operand without its scales, in its own type, or in bf16 or f16 if it is packed."""
    if operand.format != "e2m1":
        return operand.value
    k_axis = operand.k_axis if operand.pack_k else 1 - operand.k_axis
    return _unpack(b, operand.value, operand.rank - 2 + k_axis, type_)


def power_of_two(b: Builder, scale: Value, *, fast: bool) -> Value:
    """Return 2**(code - 127) of each e8m0 code, in f32; NaN for 255 unless ``fast``."""
    codes = cast(b, scale, U32)
    # 2**-127 is subnormal in f32: half of its smallest normal number
    minimum = b.cmp(codes, b.constant_like(codes.type, 0), predicate="eq")
    bits = b.select(
        minimum, b.constant_like(codes.type, 1 << (FRACTION_BITS - 1)), _shifted(b, codes)
    )
    return as_float(b, bits if fast else or_nan(b, codes, bits))


def as_float(b: Builder, bits: Value) -> Value:
    """Return u32 as the f32 of the same bits."""
    return decoded(b, bits, F32)


def cast(b: Builder, value: Value, element: Type) -> Value:
    """Return a tile with other elements; itself where it has them."""
    target = with_element(value.type, element)
    if value.type is target:
        return value
    result: Value = b.cast(value, result=target)
    return result


def _shifted(b: Builder, codes: Value) -> Value:
    """The bits of an f32 of each code's exponent."""
    bits: Value = b.shl(codes, b.constant_like(codes.type, FRACTION_BITS))
    return bits


def or_nan(b: Builder, codes: Value, bits: Value) -> Value:
    """Return the bits of f32, those of NaN for a code that is NaN."""
    is_nan = b.cmp(codes, b.constant_like(codes.type, _NAN_CODE), predicate="eq")
    found: Value = b.select(is_nan, b.constant_like(codes.type, _NAN_BITS), bits)
    return found


def _multiplied(
    b: Builder, operand: ScaledOperand, value: Value, factors: Value, type_: Type
) -> Value:
    """Elements times the factors of their groups; bf16 holds element, factor and product exactly,
    and has the range of f32."""
    through = BF16 if type_ is BF16 else F32
    spread = spread_scales(b, operand, cast(b, factors, through), value)
    return cast(b, b.mul(cast(b, value, through), spread), type_)


def _unpack(b: Builder, pairs: Value, axis: int, type_: Type) -> Value:
    """Two e2m1 numbers a byte, the low half first, spread along an axis, as bf16 or, where the
    product is in a type that does not hold that, as f16; both hold them exactly.

    Sign, two bits of exponent, one of fraction: moved to their places in a bf16 or f16 they are the
    number times a small power of two, subnormals included.
    """
    halves, power = _halves_bf16(b, pairs) if type_ is BF16 else _halves_f16(b, pairs)
    joined: Value = b.join(*halves)
    assert isinstance(pairs.type, TileType)
    rank = pairs.type.rank
    if axis < rank - 1:
        joined = b.permute(joined, order=(*range(axis + 1), rank, *range(axis + 1, rank)))
    shape = list(pairs.type.shape)
    shape[axis] *= 2
    numbers = b.reshape(joined, result=TileType(tuple(shape), element_type(joined.type)))
    result: Value = b.mul(numbers, b.constant_like(numbers.type, power))
    return result


def _halves_f16(b: Builder, pairs: Value) -> tuple[list[Value], float]:
    """The bits of both numbers of each byte in the places of an f16's, and the factor that they
    lack."""
    codes = cast(b, pairs, U16)

    def field(mask: int, shift: int) -> Value:
        moved: Value = b.and_(codes, b.constant_like(codes.type, mask))
        amount = b.constant_like(codes.type, abs(shift))
        shifted: Value = b.shl(moved, amount) if shift > 0 else b.shr(moved, amount)
        return shifted

    low = b.or_(field(0x8, 12), field(0x7, 9))
    high = b.or_(field(0x80, 8), field(0x70, 5))
    return [b.bitcast(bits, result=with_element(codes.type, F16)) for bits in (low, high)], 2.0**14


def _halves_bf16(b: Builder, pairs: Value) -> tuple[list[Value], float]:
    """Do the same for bf16, two numbers in a word: one product moves the fields of both."""
    codes = cast(b, pairs, U32)

    def fields(factor: int, mask: int) -> Value:
        moved = b.mul(codes, b.constant_like(codes.type, factor))
        taken: Value = b.and_(moved, b.constant_like(codes.type, mask))
        return taken

    # by 12 and 24 places; by 6 and 18
    word = b.or_(fields(1 << 12 | 1 << 24, 0x80008000), fields(1 << 6 | 1 << 18, 0x01C001C0))
    high = b.shr(word, b.constant_like(codes.type, 16))
    return [
        b.bitcast(cast(b, half, U16), result=with_element(codes.type, BF16))
        for half in (word, high)
    ], 2.0**126


def spread_scales(b: Builder, operand: ScaledOperand, factors: Value, value: Value) -> Value:
    """Return scales [..., M or N, groups] in the shape of an operand's unpacked elements, one for
    each."""
    assert isinstance(value.type, TileType) and isinstance(factors.type, TileType)
    k_axis = operand.k_axis
    rank, (*batches, outer, groups) = factors.type.rank, factors.type.shape
    size = value.type.shape[rank - 2 + k_axis] // groups
    if k_axis == 0:
        factors = b.permute(factors, order=(*range(rank - 2), rank - 1, rank - 2))
    grouped = (*batches, outer, groups, size) if k_axis else (*batches, groups, size, outer)
    element = element_type(factors.type)
    repeated = b.broadcast(
        b.expand_dims(factors, axis=rank if k_axis else rank - 1), result=TileType(grouped, element)
    )
    result: Value = b.reshape(repeated, result=with_element(value.type, element))
    return result
