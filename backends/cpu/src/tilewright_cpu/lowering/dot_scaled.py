"""Products of block-scaled operands: both are brought to f32 in memory, each element times the scale of its group, and multiplied there.

Batches lie one after the other in memory, so that an operand is brought to f32 as one matrix with the rows of all of them.

An element times its scale is exact in f32 for the 8-bit and 4-bit formats, short of f32's range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.ir.core import Value
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import F32, FloatType, TileType, Type
from tilewright.llvm.writer import float_constant
from tilewright_cpu.lowering.chunks import for_chunks, for_each, viewed
from tilewright_cpu.lowering.context import Buffer, Context
from tilewright_cpu.lowering.dot import multiply, place_of_buffer, sums_of

#: Gives the vector of scales for ``lanes`` elements from (row, column) on.
Scale = Callable[[str, str, int], str]


def lower_dot_scaled(context: Context, operation: DotScaled) -> None:
    """``(a * a_scale) @ (b * b_scale) + c``."""
    wide_a = _upcast(context, operation.a, operation.a_scale, packed=operation.a_format == "e2m1", pack_k=operation.a_pack_k, k_axis=1)
    wide_b = _upcast(context, operation.b, operation.b_scale, packed=operation.b_format == "e2m1", pack_k=operation.b_pack_k, k_axis=0)
    target, zero = sums_of(context, operation.c, ())
    multiply(context, (F32, F32), place_of_buffer(wide_a), place_of_buffer(wide_b), target, zero)
    context.bind_buffer(operation.result, target)


def _upcast(context: Context, value: Value, scales: Value | None, *, packed: bool, pack_k: bool, k_axis: int) -> Buffer:
    """An operand in f32, unpacked where it is ``packed`` (along K, or the other axis) and scaled."""
    whole = context.materialize(value)
    batches = math.prod(whole.shape[:-2])
    source = viewed(whole, batches * whole.shape[-2], whole.shape[-1])
    shape = list(source.shape)
    pack_axis = k_axis if pack_k else 1 - k_axis
    if packed:
        shape[pack_axis] *= 2
    wide = context.new_buffer(shape, F32)
    k = shape[1] if k_axis else shape[0] // batches
    scale = _scale(context, scales, batches, k, k_axis) if scales is not None else None
    w, lanes_of_f32 = context.writer, context.elements_for(F32)

    def put(row: str, column: str, text: str, lanes: int) -> None:
        if scale is not None:
            text = w.emit(f"fmul <{lanes} x float> {text}, {scale(row, column, lanes)}")
        context.store_vector(wide, (row, column), text, lanes)

    def plain(row: str, column: str, lanes: int) -> None:
        lanes = lanes or 1
        put(row, column, context.convert(context.load_vector(source, (row, column), lanes), source.element, F32, lanes), lanes)

    def pairs(row: str, column: str, lanes: int) -> None:
        lanes = lanes or 1
        bytes_ = context.load_vector(source, (row, column), lanes)
        low = decode_e2m1(context, w.emit(f"and <{lanes} x i8> {bytes_}, splat (i8 15)"), lanes)
        high = decode_e2m1(context, w.emit(f"lshr <{lanes} x i8> {bytes_}, splat (i8 4)"), lanes)
        if pack_axis == 0:
            even = _double(context, row)
            put(even, column, low, lanes)
            put(w.emit(f"add nuw nsw i64 {even}, 1"), column, high, lanes)
            return
        order = ", ".join(f"i32 {i // 2 + lanes * (i % 2)}" for i in range(2 * lanes))
        both = w.emit(f"shufflevector <{lanes} x float> {low}, <{lanes} x float> {high}, <{2 * lanes} x i32> <{order}>")
        put(row, _double(context, column), both, 2 * lanes)

    body = pairs if packed else plain
    width = lanes_of_f32 // 2 if packed and pack_axis == 1 else lanes_of_f32
    for_each(w, source.shape[0], lambda row: for_chunks(w, source.shape[1], width, lambda column, lanes: body(row, column, lanes)))
    return viewed(wide, *whole.shape[:-2], shape[0] // batches, shape[1])


def _double(context: Context, index: str) -> str:
    return str(2 * int(index)) if index.isdigit() else context.writer.emit(f"shl nuw nsw i64 {index}, 1")


def decode_e2m1(context: Context, codes: str, lanes: int) -> str:
    """The f32 of 4-bit codes (sign, two bits of exponent of bias 1, one of fraction) in bytes.

    Twice the value is an integer: 0 1 2 3 4 6 8 12 for the eight magnitudes, which is (2 + fraction) << exponent >> 1, and the fraction itself for exponent 0.
    """
    w, ints, floats = context.writer, f"<{lanes} x i32>", f"<{lanes} x float>"

    def op(name: str, a: str, b: int | str) -> str:
        return w.emit(f"{name} {ints} {a}, {f'splat (i32 {b})' if isinstance(b, int) else b}")

    code = w.emit(f"zext <{lanes} x i8> {codes} to {ints}")
    fraction, exponent = op("and", code, 1), op("and", op("lshr", code, 1), 3)
    normal = op("lshr", op("shl", op("or", fraction, 2), exponent), 1)
    is_normal = w.emit(f"icmp ne {ints} {exponent}, zeroinitializer")
    doubled = w.emit(f"select <{lanes} x i1> {is_normal}, {ints} {normal}, {ints} {fraction}")
    magnitude = w.emit(f"fmul {floats} {w.emit(f'uitofp {ints} {doubled} to {floats}')}, splat (float {float_constant('float', 0.5)})")
    sign = op("shl", op("lshr", code, 3), 31)
    bits = op("or", w.emit(f"bitcast {floats} {magnitude} to {ints}"), sign)
    return w.emit(f"bitcast {ints} {bits} to {floats}")


def _scale(context: Context, value: Value, batches: int, k: int, k_axis: int) -> Scale:
    """Scales in f32, in the layout that the operand's rows ask for: [M, groups] as they are, [N, groups] transposed, so that a row of B has a row of scales."""
    assert isinstance(value.type, TileType)
    w = context.writer
    outer, groups = value.type.shape[-2:]
    group = k // groups
    source = viewed(context.materialize(value), batches, outer, groups)
    wide = context.new_buffer((batches * outer, groups) if k_axis else (batches * groups, outer), F32)
    placed = viewed(wide, batches, *((outer, groups) if k_axis else (groups, outer)))

    def element(batch: str, row: str, column: str) -> None:
        number = scale_number(context, context.load_element(source, (batch, row, column)), source.element)
        context.store_element(placed, (batch, row, column) if k_axis else (batch, column, row), number)

    for_each(w, batches, lambda batch: for_each(w, outer, lambda row: for_each(w, groups, lambda column: element(batch, row, column))))

    def divided(index: str) -> str:
        return str(int(index) // group) if index.isdigit() else w.emit(f"udiv i64 {index}, {group}")

    def of_a(row: str, column: str, lanes: int) -> str:
        return w.splat("float", context.load_element(wide, (row, divided(column))), lanes)

    def of_b(row: str, column: str, lanes: int) -> str:
        return context.load_vector(wide, (divided(row), column), lanes)

    return of_a if k_axis else of_b


def scale_number(context: Context, code: str, element: Type) -> str:
    """The f32 of one scale: an f8e4m3fn number, or 2**(code - 127) of a byte, NaN for 255."""
    if isinstance(element, FloatType):
        return context.convert(code, element, F32)
    w = context.writer
    exponent = w.emit(f"shl i32 {w.emit(f'zext i8 {code} to i32')}, 23")
    # 2**-127 is subnormal in f32: half of its least normal number.
    is_least, is_nan = w.emit(f"icmp eq i8 {code}, 0"), w.emit(f"icmp eq i8 {code}, -1")
    bits = w.emit(f"select i1 {is_least}, i32 {1 << 22}, i32 {exponent}")
    bits = w.emit(f"select i1 {is_nan}, i32 {0x7FC00000}, i32 {bits}")
    return w.emit(f"bitcast i32 {bits} to float")


LOWERINGS: dict[str, Callable[[Context, Any], None]] = {"dot_scaled": lower_dot_scaled}
