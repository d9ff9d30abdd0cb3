"""Products of block-scaled operands as plain products: unpack, scale, multiply.

Each operand is brought to the narrowest type that holds an element times its scale exactly, short of that type's range: bf16 for all formats of up to
eight significant bits, scaled or not; f16 for unscaled f16 and whatever it meets that has no more bits; f32 for scaled f16, or where bf16 and f16 meet.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import BF16, F16, F32, U8, U16, U32, FloatType, TileType, Type, element_type, with_element
from tilewright.simt.target import SimtTarget

#: Significant bits of an element of each format, of a power of two, and of an f8e4m3fn scale.
_BITS = {"e2m1": 2, "e4m3": 4, "e5m2": 3, "bf16": 8, "fp16": 11}
_SCALE_BITS = 4
_BF16_BITS = 8


def expand_scaled(function: Function, target: SimtTarget) -> bool:
    """Expand every ``dot_scaled`` but those that the target keeps; whether there was one."""
    found = [operation for operation in function.walk() if isinstance(operation, DotScaled) and not target.keeps_scaled(operation)]
    for operation in found:
        _expand(operation)
    return bool(found)


def _expand(operation: DotScaled) -> None:
    b = Builder.at(operation)
    type_ = _product_type(operation)
    left, right = (_operand(b, operation, name, k_axis, type_) for name, k_axis in (("a", 1), ("b", 0)))
    operation.results[0].replace_all_uses(b.dot(left, right, operation.c))
    operation.erase()


def _product_type(operation: DotScaled) -> Type:
    """The type both operands are brought to."""
    fitting = [_operand_types(operation, name) for name in ("a", "b")]
    return next(type_ for type_ in (BF16, F16, F32) if all(type_ in types for types in fitting))


def _operand_types(operation: DotScaled, name: str) -> tuple[Type, ...]:
    """The types that hold an operand's scaled elements; f16 has not the range of bf16."""
    scale, format_ = operation.operand(f"{name}_scale"), operation.attribute(f"{name}_format")
    if format_ == "fp16" and scale is None:
        return F16, F32
    bits = _BITS[format_] + (_SCALE_BITS if scale is not None and isinstance(element_type(scale.type), FloatType) else 0)
    if bits > _BF16_BITS:
        return (F32,)
    return (BF16, F32) if format_ == "bf16" else (BF16, F16, F32)


def _operand(b: Builder, operation: DotScaled, name: str, k_axis: int, type_: Type) -> Value:
    """Operand ``name``, unpacked and scaled, in a tile of ``type_``; ``k_axis`` is 1 or 0 of its last two."""
    value, scale = operation.operand(name), operation.operand(f"{name}_scale")
    assert value is not None and isinstance(value.type, TileType)
    if operation.attribute(f"{name}_format") == "e2m1":
        value = _unpack(b, value, value.type.rank - 2 + (k_axis if operation.attribute(f"{name}_pack_k") else 1 - k_axis), type_)
    if scale is None:
        return _cast(b, value, type_)
    # bf16 holds element, scale and product exactly, and has the range of f32
    through = BF16 if type_ is BF16 else F32
    factors = _spread(b, _cast(b, _factor(b, scale, fast=operation.fast_math), through), value, k_axis)
    return _cast(b, b.mul(_cast(b, value, through), factors), type_)


def _cast(b: Builder, value: Value, element: Type) -> Value:
    target = with_element(value.type, element)
    if value.type is target:
        return value
    result: Value = b.cast(value, result=target)
    return result


def _unpack(b: Builder, pairs: Value, axis: int, type_: Type) -> Value:
    """Two e2m1 numbers a byte, the low half first, spread along an axis, as bf16 or, where the product is in a type that does not hold that, as f16; both
    hold them exactly.

    Sign, two bits of exponent, one of fraction: moved to their places in a bf16 or f16 they are the number times a small power of two, subnormals included.
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
    """The bits of both numbers of each byte in the places of an f16's, and the factor that they lack."""
    codes = _cast(b, pairs, U16)

    def field(mask: int, shift: int) -> Value:
        moved: Value = b.and_(codes, b.constant_like(codes.type, mask))
        amount = b.constant_like(codes.type, abs(shift))
        shifted: Value = b.shl(moved, amount) if shift > 0 else b.shr(moved, amount)
        return shifted

    low = b.or_(field(0x8, 12), field(0x7, 9))
    high = b.or_(field(0x80, 8), field(0x70, 5))
    return [b.bitcast(bits, result=with_element(codes.type, F16)) for bits in (low, high)], 2.0**14


def _halves_bf16(b: Builder, pairs: Value) -> tuple[list[Value], float]:
    """The same for bf16, both numbers in one word: a product moves both fields of a kind at once."""
    codes = _cast(b, pairs, U32)

    def fields(factor: int, mask: int) -> Value:
        moved = b.mul(codes, b.constant_like(codes.type, factor))
        taken: Value = b.and_(moved, b.constant_like(codes.type, mask))
        return taken

    # by 12 and 24 places; by 6 and 18
    word = b.or_(fields(1 << 12 | 1 << 24, 0x80008000), fields(1 << 6 | 1 << 18, 0x01C001C0))
    high = b.shr(word, b.constant_like(codes.type, 16))
    return [b.bitcast(_cast(b, half, U16), result=with_element(codes.type, BF16)) for half in (word, high)], 2.0**126


def _factor(b: Builder, scale: Value, *, fast: bool) -> Value:
    """Scales as f32: an f8e4m3fn number, or 2**(code - 127) of a byte, NaN for 255."""
    assert isinstance(scale.type, TileType)
    if scale.type.element is not U8:
        return _cast(b, scale, F32)
    codes = _cast(b, scale, U32)

    def number(value: int) -> Value:
        return b.constant_like(codes.type, value)

    # 2**-127 is subnormal in f32: half of its least normal number
    bits = b.select(b.cmp(codes, number(0), predicate="eq"), number(1 << 22), b.shl(codes, number(23)))
    if not fast:
        bits = b.select(b.cmp(codes, number(255), predicate="eq"), number(0x7FC00000), bits)
    result: Value = b.bitcast(bits, result=with_element(codes.type, F32))
    return result


def _spread(b: Builder, factors: Value, value: Value, k_axis: int) -> Value:
    """Scales [..., M or N, groups] in the shape of the operand, a scale for each element."""
    assert isinstance(value.type, TileType) and isinstance(factors.type, TileType)
    rank, (*batches, outer, groups) = factors.type.rank, factors.type.shape
    size = value.type.shape[rank - 2 + k_axis] // groups
    if k_axis == 0:
        factors = b.permute(factors, order=(*range(rank - 2), rank - 1, rank - 2))
    grouped = (*batches, outer, groups, size) if k_axis else (*batches, groups, size, outer)
    element = element_type(factors.type)
    repeated = b.broadcast(b.expand_dims(factors, axis=rank if k_axis else rank - 1), result=TileType(grouped, element))
    result: Value = b.reshape(repeated, result=with_element(value.type, element))
    return result
