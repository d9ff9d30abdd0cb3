"""Matmuls of block-scaled operands: each element times the scale of its block, in f32.

Both operands are brought to f32 in memory and multiplied there. Batches lie one after the other in
memory, so that an operand is brought to f32 as one matrix with the rows of all of them.

An element times its scale is exact in f32 for the 8-bit and 4-bit formats, short of f32's range.
Scales that may lead out of it are found at run time: by their codes alone where the format bounds
the elements, and by the results for bf16 elements. The operands are then brought to f32 as they
are, and a plain loop in f64 multiplies elements and scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tilewright.ir.core import Value
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import F32, FloatType, TileType, Type
from tilewright.llvm.emission.writer import float_constant
from tilewright_cpu.codegen.context import Buffer, Context
from tilewright_cpu.codegen.loops.strip_loop import for_each, for_strips, viewed
from tilewright_cpu.codegen.ops.dot import accumulator_of, location_of_buffer, multiply

#: Returns the vector of scales for ``lanes`` elements from (row, column) on.
Scale = Callable[[str, str, int], str]

#: The minimum and maximum codes of scales with which every element of a format stays in f32's range
#: and keeps its bits.
_SAFE_CODES: Final = {"e2m1": (0, 251), "e4m3": (0, 245), "e5m2": (0, 238), "fp16": (2, 238)}


@dataclass(frozen=True)
class _Operand:
    """One operand of the matmul.

    Attributes:
        source: its elements as they are stored, the rows of all batches below each other.
        codes: its scales, [batches, M or N, groups]; None without.
        scales: the memory of its scales in f32, in the layout that its rows require.
        wide: the memory of its elements in f32.
        batches: how many matrices there are.
        format: of its elements; e2m1 is packed in pairs along ``pack_axis``.
        k_axis: the axis of K: 1 for the left side, 0 for the right one.
    """

    source: Buffer
    codes: Buffer | None
    scales: Buffer | None
    wide: Buffer
    batches: int
    format: str
    pack_axis: int
    k_axis: int

    @property
    def k(self) -> int:
        return self.wide.shape[1] if self.k_axis else self.wide.shape[0] // self.batches

    @property
    def group(self) -> int:
        """Number of elements along K that share a scale."""
        assert self.codes is not None
        return self.k // self.codes.shape[2]

    @property
    def is_guarded(self) -> bool:
        """Return whether scales may lead out of the range of f32: powers of two may."""
        return self.codes is not None and not isinstance(self.codes.element, FloatType)

    @property
    def matrices(self) -> Buffer:
        return viewed(
            self.wide, self.batches, self.wide.shape[0] // self.batches, self.wide.shape[1]
        )


def lower_dot_scaled(context: Context, operation: DotScaled) -> None:
    """``(a * a_scale) @ (b * b_scale) + c``."""
    a = _operand(
        context,
        operation.a,
        operation.a_scale,
        operation.a_format,
        pack_k=operation.a_pack_k,
        k_axis=1,
    )
    b = _operand(
        context,
        operation.b,
        operation.b_scale,
        operation.b_format,
        pack_k=operation.b_pack_k,
        k_axis=0,
    )
    target, zero = accumulator_of(context, operation.c, ())
    shape = target.shape[:-2]

    def by_matrices() -> None:
        left, right = (viewed(side.wide, *shape, *side.matrices.shape[1:]) for side in (a, b))
        multiply(
            context, (F32, F32), location_of_buffer(left), location_of_buffer(right), target, zero
        )

    if a.is_guarded or b.is_guarded:
        _guarded(
            context,
            a,
            b,
            by_matrices,
            lambda: _multiply_wide(
                context, a, b, viewed(target, a.batches, *target.shape[-2:]), zero
            ),
        )
    else:
        for side in (a, b):
            _scale_codes(context, side, None)
            _upcast(context, side, None)
        by_matrices()
    context.bind_buffer(operation.result, target)


def _operand(
    context: Context, value: Value, scales: Value | None, format_: str, *, pack_k: bool, k_axis: int
) -> _Operand:
    whole = context.materialize(value)
    batches = math.prod(whole.shape[:-2])
    source = viewed(whole, batches * whole.shape[-2], whole.shape[-1])
    shape = list(source.shape)
    pack_axis = k_axis if pack_k else 1 - k_axis
    if format_ == "e2m1":
        shape[pack_axis] *= 2
    codes = scaled = None
    if scales is not None:
        assert isinstance(scales.type, TileType)
        outer, groups = scales.type.shape[-2:]
        codes = viewed(context.materialize(scales), batches, outer, groups)
        scaled = context.new_buffer(
            (batches * outer, groups) if k_axis else (batches * groups, outer), F32
        )
    return _Operand(
        source, codes, scaled, context.new_buffer(shape, F32), batches, format_, pack_axis, k_axis
    )


def _guarded(
    context: Context,
    a: _Operand,
    b: _Operand,
    by_matrices: Callable[[], None],
    widely: Callable[[], None],
) -> None:
    """Bring both operands to f32, scaled, and multiply.

    Where scales lead out of f32's range, they are brought there unscaled, and multiplied
    ``widely``.
    """
    w = context.writer
    # whether the elements stay unscaled, and whether scaling one has lost something
    plain, lost = w.alloca("i1", 1, 1), _LaneFlag(context)
    for side in (a, b):
        if side.is_guarded and side.format in _SAFE_CODES:
            _find_unsafe_codes(context, side, lost)
    w.store("i1", lost.anywhere(), plain, 1)
    again, matrices, wide, done = (
        w.new_block(name) for name in ("upcast", "matrices", "wide", "multiplied")
    )
    w.branch(again)
    w.place(again)
    lost.clear()
    for side in (a, b):
        _scale_codes(context, side, w.load("i1", plain, 1))
        _upcast(context, side, lost if side.is_guarded and side.format not in _SAFE_CODES else None)
    stays = w.load("i1", plain, 1)
    scaled = w.new_block("scaled")
    w.branch_if(stays, wide, scaled, likely=False)
    w.place(scaled)
    retry = w.new_block("retry")
    w.branch_if(lost.anywhere(), retry, matrices, likely=False)
    w.place(retry)
    w.store("i1", "true", plain, 1)
    w.branch(again)
    w.place(matrices)
    by_matrices()
    w.branch(done)
    w.place(wide)
    widely()
    w.branch(done)
    w.place(done)


class _LaneFlag:
    """A flag that lanes of many strips set: an i32 for each lane in memory, nonzero if set."""

    def __init__(self, context: Context) -> None:
        self._writer, self._lanes = context.writer, context.elements_for(F32)
        self._memory = self._writer.alloca("i32", self._lanes)
        self.clear()

    def clear(self) -> None:
        self._writer.store(f"<{self._lanes} x i32>", "zeroinitializer", self._memory, 4)

    def add(self, found: str, lanes: int) -> None:
        """Add an i1 a lane."""
        w = self._writer
        while lanes > self._lanes:
            lanes //= 2
            low, high = (
                ", ".join(f"i32 {start + lane}" for lane in range(lanes)) for start in (0, lanes)
            )
            type_ = f"<{2 * lanes} x i1>"
            halves = (
                w.emit(f"shufflevector {type_} {found}, {type_} poison, <{lanes} x i32> <{half}>")
                for half in (low, high)
            )
            found = w.emit(f"or <{lanes} x i1> {next(halves)}, {next(halves)}")
        wide = w.emit(f"sext <{lanes} x i1> {found} to <{lanes} x i32>")
        w.store(
            f"<{lanes} x i32>",
            w.emit(f"or <{lanes} x i32> {w.load(f'<{lanes} x i32>', self._memory, 4)}, {wide}"),
            self._memory,
            4,
        )

    def anywhere(self) -> str:
        """An i1: whether any lane found something."""
        w, type_ = self._writer, f"<{self._lanes} x i32>"
        both = w.intrinsic(
            "llvm.vector.reduce.or", "i32", [(type_, w.load(type_, self._memory, 4))], [type_]
        )
        return w.emit(f"icmp ne i32 {both}, 0")


def _find_unsafe_codes(context: Context, side: _Operand, found: _LaneFlag) -> None:
    """Find scales outside of what is safe for the elements' format, NaN among them."""
    assert side.codes is not None
    w, (minimum, largest) = context.writer, _SAFE_CODES[side.format]
    codes = viewed(side.codes, 1, math.prod(side.codes.shape))

    def check(column: str, lanes: int) -> None:
        lanes = lanes or 1
        type_ = f"<{lanes} x i8>"
        moved = w.emit(
            f"sub {type_} {context.load_vector(codes, ('0', column), lanes)}, splat (i8 {minimum})"
        )
        found.add(w.emit(f"icmp ugt {type_} {moved}, splat (i8 {largest - minimum})"), lanes)

    for_strips(w, codes.shape[1], context.elements_for(F32), check)


def _upcast(context: Context, side: _Operand, lost: _LaneFlag | None) -> None:
    """Write an operand's elements in f32, unpacked and scaled.

    ``lost`` is set where an element was not 0 and is no normal number.
    """
    source, wide = side.source, side.wide
    scale = _scales(context, side) if side.scales is not None else None
    w, lanes_of_f32 = context.writer, context.elements_for(F32)

    def put(row: str, column: str, text: str, lanes: int) -> None:
        type_ = f"<{lanes} x float>"
        if scale is not None:
            element, text = text, w.emit(f"fmul {type_} {text}, {scale(row, column, lanes)}")
            if lost is not None:
                # the exponent's bits are all 0 or all 1
                ints = f"<{lanes} x i32>"
                next_ = w.emit(
                    f"add {ints} {w.emit(f'bitcast {type_} {text} to {ints}')}, splat "
                    f"(i32 {1 << 23})"
                )
                odd = w.emit(
                    f"icmp eq {ints} {w.emit(f'and {ints} {next_}, splat (i32 {0x7F000000})')}, "
                    "zeroinitializer"
                )
                some = w.emit(f"fcmp une {type_} {element}, zeroinitializer")
                lost.add(w.emit(f"and <{lanes} x i1> {odd}, {some}"), lanes)
        context.store_vector(wide, (row, column), text, lanes)

    def plain(row: str, column: str, lanes: int) -> None:
        lanes = lanes or 1
        put(
            row,
            column,
            context.convert(
                context.load_vector(source, (row, column), lanes), source.element, F32, lanes
            ),
            lanes,
        )

    def pairs(row: str, column: str, lanes: int) -> None:
        lanes = lanes or 1
        bytes_ = context.load_vector(source, (row, column), lanes)
        low = decode_e2m1(context, w.emit(f"and <{lanes} x i8> {bytes_}, splat (i8 15)"), lanes)
        high = decode_e2m1(context, w.emit(f"lshr <{lanes} x i8> {bytes_}, splat (i8 4)"), lanes)
        if side.pack_axis == 0:
            even = _double(context, row)
            put(even, column, low, lanes)
            put(w.emit(f"add nuw nsw i64 {even}, 1"), column, high, lanes)
            return
        order = ", ".join(f"i32 {i // 2 + lanes * (i % 2)}" for i in range(2 * lanes))
        both = w.emit(
            f"shufflevector <{lanes} x float> {low}, <{lanes} x float> {high}, <{2 * lanes} x "
            f"i32> <{order}>"
        )
        put(row, _double(context, column), both, 2 * lanes)

    packed = side.format == "e2m1"
    body = pairs if packed else plain
    width = lanes_of_f32 // 2 if packed and side.pack_axis == 1 else lanes_of_f32
    for_each(
        w,
        source.shape[0],
        lambda row: for_strips(
            w, source.shape[1], width, lambda column, lanes: body(row, column, lanes)
        ),
    )


def _double(context: Context, index: str) -> str:
    return (
        str(2 * int(index))
        if index.isdigit()
        else context.writer.emit(f"shl nuw nsw i64 {index}, 1")
    )


def decode_e2m1(context: Context, codes: str, lanes: int) -> str:
    """The f32 of 4-bit codes (sign, two bits of exponent of bias 1, one of fraction) in bytes.

    Twice the value is an integer: 0 1 2 3 4 6 8 12 for the eight magnitudes, which is (2 +
    fraction) << exponent >> 1, and the fraction itself for exponent 0.
    """
    w, ints, floats = context.writer, f"<{lanes} x i32>", f"<{lanes} x float>"

    def op(name: str, a: str, b: int | str) -> str:
        return w.emit(f"{name} {ints} {a}, {f'splat (i32 {b})' if isinstance(b, int) else b}")

    code = w.emit(f"zext <{lanes} x i8> {codes} to {ints}")
    fraction, exponent = op("and", code, 1), op("and", op("lshr", code, 1), 3)
    normal = op("lshr", op("shl", op("or", fraction, 2), exponent), 1)
    is_normal = w.emit(f"icmp ne {ints} {exponent}, zeroinitializer")
    doubled = w.emit(f"select <{lanes} x i1> {is_normal}, {ints} {normal}, {ints} {fraction}")
    magnitude = w.emit(
        f"fmul {floats} {w.emit(f'uitofp {ints} {doubled} to {floats}')}, splat (float "
        f"{float_constant('float', 0.5)})"
    )
    sign = op("shl", op("lshr", code, 3), 31)
    bits = op("or", w.emit(f"bitcast {floats} {magnitude} to {ints}"), sign)
    return w.emit(f"bitcast {ints} {bits} to {floats}")


def _scale_codes(context: Context, side: _Operand, plain: str | None) -> None:
    """Write an operand's scales in f32, or 1 for each where the i1 ``plain`` holds.

    [M, groups] as they are, [N, groups] transposed, so that a row of B has a row of scales.
    """
    if side.codes is None or side.scales is None:
        return
    w, codes, (batches, outer, groups) = context.writer, side.codes, side.codes.shape
    placed = viewed(side.scales, batches, *((outer, groups) if side.k_axis else (groups, outer)))
    one = float_constant("float", 1.0)

    def element(batch: str, row: str, column: str) -> None:
        number = scale_number(
            context, context.load_element(codes, (batch, row, column)), codes.element
        )
        if plain is not None:
            number = w.emit(f"select i1 {plain}, float {one}, float {number}")
        context.store_element(
            placed, (batch, row, column) if side.k_axis else (batch, column, row), number
        )

    for_each(
        w,
        batches,
        lambda batch: for_each(
            w, outer, lambda row: for_each(w, groups, lambda column: element(batch, row, column))
        ),
    )


def _scales(context: Context, side: _Operand) -> Scale:
    w, wide = context.writer, side.scales
    assert wide is not None

    def of_a(row: str, column: str, lanes: int) -> str:
        return w.splat(
            "float", context.load_element(wide, (row, _divided(context, column, side.group))), lanes
        )

    def of_b(row: str, column: str, lanes: int) -> str:
        return context.load_vector(wide, (_divided(context, row, side.group), column), lanes)

    return of_a if side.k_axis else of_b


def _divided(context: Context, index: str, divisor: int) -> str:
    return (
        str(int(index) // divisor)
        if index.isdigit()
        else context.writer.emit(f"udiv i64 {index}, {divisor}")
    )


def _multiply_wide(context: Context, a: _Operand, b: _Operand, target: Buffer, zero: bool) -> None:
    """Write, or add, the matmul of elements in f32 that are not scaled yet, in f64."""
    w = context.writer

    def widened(buffer: Buffer, index: tuple[str, str, str]) -> str:
        return w.emit(f"fpext float {context.load_element(buffer, index)} to double")

    def factor(side: _Operand, batch: str, outer: str, k: str) -> str | None:
        if side.codes is None:
            return None
        code = context.load_element(side.codes, (batch, outer, _divided(context, k, side.group)))
        return w.emit(f"fpext float {scale_number(context, code, side.codes.element)} to double")

    def element(batch: str, row: str, column: str) -> None:
        with w.loop(
            "0", str(a.k), 1, [("double", float_constant("double", 0.0))], nonempty=True
        ) as loop:
            k = loop.index
            term = w.emit(
                f"fmul double {widened(a.matrices, (batch, row, k))}, "
                f"{widened(b.matrices, (batch, k, column))}"
            )
            factors = [
                one
                for one in (factor(a, batch, row, k), factor(b, batch, column, k))
                if one is not None
            ]
            scale = (
                factors[0]
                if len(factors) == 1
                else w.emit(f"fmul double {factors[0]}, {factors[1]}")
            )
            loop.next_values = [
                w.emit(f"fadd double {loop.values[0]}, {w.emit(f'fmul double {term}, {scale}')}")
            ]
        total = loop.results[0]
        if not zero:
            total = w.emit(f"fadd double {total}, {widened(target, (batch, row, column))}")
        context.store_element(
            target, (batch, row, column), w.emit(f"fptrunc double {total} to float")
        )

    for_each(
        w,
        a.batches,
        lambda batch: for_each(
            w,
            target.shape[1],
            lambda row: for_each(w, target.shape[2], lambda column: element(batch, row, column)),
        ),
    )


def scale_number(context: Context, code: str, element: Type) -> str:
    """The f32 of one scale: an f8e4m3fn number, or 2**(code - 127) of a byte, NaN for 255."""
    if isinstance(element, FloatType):
        return context.convert(code, element, F32)
    w = context.writer
    exponent = w.emit(f"shl i32 {w.emit(f'zext i8 {code} to i32')}, 23")
    # 2**-127 is subnormal in f32: half of its smallest normal number.
    is_smallest, is_nan = w.emit(f"icmp eq i8 {code}, 0"), w.emit(f"icmp eq i8 {code}, -1")
    bits = w.emit(f"select i1 {is_smallest}, i32 {1 << 22}, i32 {exponent}")
    bits = w.emit(f"select i1 {is_nan}, i32 {0x7FC00000}, i32 {bits}")
    return w.emit(f"bitcast i32 {bits} to float")


LOWERINGS: dict[str, Callable[[Context, Any], None]] = {"dot_scaled": lower_dot_scaled}
