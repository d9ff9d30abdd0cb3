"""Lowering of dot: where the operands and the accumulator lie, and a loop over batches.

:mod:`~tilewright_cpu.codegen.gemm.gemm` writes the matmul itself, of matrices in memory. Operands
are read where the kernel's data lies if that is possible; a transposition in front of a dot costs
nothing (the strides change places), nor does a widening cast of an operand (the micro-kernels'
packing does it). The result goes into the accumulator's own memory where the dot is its last
reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.control import For
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import DescriptorLoad, Load
from tilewright.ir.ops.shape import Moved, Permute
from tilewright.ir.order import ANY
from tilewright.ir.types import F32, FloatType, TileType, Type, element_type
from tilewright.llvm.emission.registers import storage_size, storage_type
from tilewright.passes.rewriter import constant_of
from tilewright_cpu.codegen.context import Buffer, Context
from tilewright_cpu.codegen.gemm.batched_k import BatchedAccumulation, can_be_batched
from tilewright_cpu.codegen.gemm.extent_limit import ALL, Limits
from tilewright_cpu.codegen.gemm.gemm import steps_at_once, write_gemm
from tilewright_cpu.codegen.gemm.loop_accumulator import LoopAccumulator
from tilewright_cpu.codegen.gemm.operand import Accumulator
from tilewright_cpu.codegen.gemm.pack import Matrix, scaled
from tilewright_cpu.codegen.gemm.pack_cache import WAYS, PackCache, can_be_cached
from tilewright_cpu.codegen.gemm.plan import IEEE, Extent
from tilewright_cpu.codegen.gemm.prepack_lookup import SLOT
from tilewright_cpu.codegen.gemm.problem import Gemm
from tilewright_cpu.codegen.gemm.remainder import limits_of
from tilewright_cpu.codegen.loops.materialize import copy_buffer, materialize_into


def lower_dot(context: Context, operation: Dot) -> None:
    """``a @ b + c``."""
    a, b, c = operation.a, operation.b, operation.c
    limits = limits_of(context, operation)
    limits = replace(limits, end=_end_along_k(context, operation, limits))
    place_a, place_b = (
        _operand(context, a, (limits.rows, limits.end)),
        _operand(context, b, (limits.end, limits.columns)),
    )
    carried = context.buffers.get(c)
    target, zero = accumulator_of(context, c, (place_a.pointer, place_b.pointer))
    loop = context.loop_accumulators.get(c)
    if loop is not None:
        assert carried is not None and carried.pointer == target.pointer
        loop = replace(loop, last=context.writer.is_last(context.loops[_loop_of(operation)]))
    in_loop = carried is not None and carried.pointer == target.pointer and place_a.stays != "false"
    batching = _batching(context, operation, place_a.stays, place_b.stays) if in_loop else None
    elements = element_type(a.type), element_type(b.type)
    pack_caches = (
        _pack_caches(context, operation, place_a.stays, place_b.stays)
        if len(target.shape) == 2
        else (None, None)
    )
    precision = operation.precision
    multiply(
        context,
        elements,
        place_a,
        place_b,
        target,
        zero,
        limits,
        _prepacked(context, b),
        batching,
        pack_caches,
        precision,
        _is_sequential(context, operation),
        loop,
    )
    context.bind_buffer(operation.result, target)


def _is_sequential(context: Context, operation: Dot) -> bool:
    """Return whether a dot adds one product after the other.

    Raises:
        LoweringError: the processor cannot do it with one rounding each.
    """
    if operation.order == ANY:
        return False
    element = element_type(operation.a.type)
    inexact = isinstance(element, FloatType) and element.bits >= 32
    if inexact and not context.state.hardware.can("fused"):
        raise LoweringError(
            f"dot at {operation.location}: order {operation.order!r} of {element} takes fused "
            "multiply-add, which the processor lacks; use order='any'"
        )
    return True


def _end_along_k(context: Context, dot: Dot, limits: Limits) -> str | None:
    """End along K of the elements of operands that are read, an i64.

    It is the limit, rounded up to the steps that are multiplied at once; None, which stands for the
    whole extent, where they are more than that or do not divide it.
    """
    assert isinstance(dot.a.type, TileType) and isinstance(dot.result.type, TileType)
    if limits.k is None:
        return None
    *_, rows, columns = dot.result.type.shape
    extents = rows, columns, dot.a.type.shape[-1]
    at_once = steps_at_once(
        (element_type(dot.a.type), element_type(dot.b.type)),
        extents,
        context.state.hardware,
        dot.precision,
    )
    if at_once is None or extents[-1] % at_once:
        return None
    w = context.writer
    return w.emit(f"and i64 {w.emit(f'add i64 {limits.k}, {at_once - 1}')}, {-at_once}")


def _loop_of(dot: Dot) -> Operation:
    """The operation in whose region a dot is."""
    assert dot.parent is not None and isinstance(dot.parent.owner, Operation)
    return dot.parent.owner


def _batching(context: Context, dot: Dot, stays: str, b_stays: str) -> BatchedAccumulation | None:
    """Batching of a dot with the loop's other iterations; None where there is none."""
    analysis = context.analysis
    if not can_be_batched(analysis, dot):
        return None
    loop = _loop_of(dot)
    end = analysis.end[loop]
    return BatchedAccumulation(
        context.writer.is_last(context.loops[loop]),
        stays,
        b_stays,
        lambda size: context.lasting(size, end),
    )


def _pack_caches(
    context: Context, dot: Dot, *stay: str
) -> tuple[PackCache | None, PackCache | None]:
    """Packed-operand caches of a dot's operands; None where there are none."""
    analysis, hardware, w = context.analysis, context.state.hardware, context.writer
    if w.name != context.state.symbol or not can_be_cached(analysis, dot):
        return None, None
    owner = dot.parent.owner if dot.parent is not None else None
    turns = w.turns(context.loops[owner]) if isinstance(owner, For) else ("0", "0")
    others = sum(isinstance(operation, Dot) for operation in analysis.start)
    a, b = (
        None
        if stays == "false"
        else PackCache(turns, stays, ways, most // others, context.in_arena, context.cleared)
        for stays, ways, most in zip(
            stay, (WAYS, 1), (hardware.kept_bytes, hardware.packed_bytes), strict=True
        )
    )
    return a, b


@dataclass(frozen=True, slots=True)
class TileLocation:
    """Address of a tile of rank 2 or more, and its strides.

    Element ``i`` lies at ``pointer`` + sum(strides[d] * i[d]), in elements of ``element``.
    ``stays``: an i1, whether it is memory of the kernel's arguments, which nothing writes but
    stores.
    """

    pointer: str
    shape: tuple[int, ...]
    strides: tuple[Extent, ...]
    element: Type
    stays: str = "false"

    def swapped(self) -> TileLocation:
        """The tile with its last two axes exchanged."""
        return TileLocation(
            self.pointer, _swapped(self.shape), _swapped(self.strides), self.element, self.stays
        )

    def matrix(self, pointer: str) -> Matrix:
        """One batch, at ``pointer``."""
        return Matrix(
            pointer,
            self.element,
            self.shape[-2],
            self.shape[-1],
            self.strides[-2],
            self.strides[-1],
        )


_T = TypeVar("_T")

#: How many rows and columns of an operand of rank 2 count: i64s, None where all do.
Ends = tuple[str | None, ...]


def _swapped(items: tuple[_T, ...]) -> tuple[_T, ...]:
    return (*items[:-2], items[-1], items[-2])


def location_of_buffer(buffer: Buffer) -> TileLocation:
    return TileLocation(buffer.pointer, buffer.shape, buffer.strides, buffer.element)


def _operand(context: Context, value: Value, ends: Ends = (None, None)) -> TileLocation:
    """Location of an operand, which is put into memory if it must be.

    It may have a narrower type that packing widens. Beyond ``ends`` it is not read.
    """
    value = context.resolve(value)
    operation = value.definition
    if (
        value not in context.buffers
        and operation is not None
        and not context.analysis.is_kept_at_once(value)
    ):
        if isinstance(operation, Permute):
            rank = len(operation.order)
            if operation.order == (*range(rank - 2), rank - 1, rank - 2):
                return _operand(context, operation.x, _swapped(ends)).swapped()
        if isinstance(operation, Cast) and element_type(value.type) is F32:
            narrow = element_type(operation.x.type)
            if isinstance(narrow, FloatType) and narrow.bits < 32:
                return _operand(context, operation.x, ends)
    strided = context.in_place(value)
    if strided is None or (strided.valid != "true" and "1" not in strided.strides[-2:]):
        return location_of_buffer(context.materialize(value))
    assert isinstance(value.type, TileType)
    stays = strided.valid if _is_loaded(context, value) else "false"
    place = TileLocation(
        strided.pointer,
        value.type.shape,
        tuple(_extent(stride) for stride in strided.strides),
        strided.element,
        stays,
    )
    return (
        place
        if strided.valid == "true"
        else _in_place_or_copied(context, value, place, strided.valid, ends)
    )


def _is_loaded(context: Context, value: Value) -> bool:
    """Return whether a tile that is read in place lies in the kernel's arguments."""
    while value not in context.buffers:
        definition = value.definition
        if not isinstance(definition, Moved | Hint):
            return isinstance(definition, Load | DescriptorLoad)
        value = context.resolve(definition.x)
    return False


def _in_place_or_copied(
    context: Context, value: Value, place: TileLocation, valid: str, ends: Ends
) -> TileLocation:
    """A masked load in place if no lane is masked off, else a copy with the same contiguous axis.

    An i1 decides it when the kernel runs, once a tile.
    """
    w, copy = context.writer, context.new_buffer(place.shape, place.element)
    if place.strides[-1] != 1:
        copy = replace(copy, transposed=True)
    whole, edge = w.current, w.new_block("edge")
    join = w.new_block("join")
    w.branch_if(valid, join, edge, likely=True)
    w.place(edge)
    with context.on_one_way():
        materialize_into(
            context,
            value,
            copy,
            {axis: end for axis, end in enumerate(ends) if end is not None},
            brief=True,
        )
    edge = w.current
    w.branch(join)
    w.place(join)

    def either(type_: str, here: Extent, there: Extent) -> Extent:
        return here if here == there else w.phi(type_, ((str(here), whole), (str(there), edge)))

    strides = tuple(
        either("i64", here, there) for here, there in zip(place.strides, copy.strides, strict=True)
    )
    return TileLocation(
        str(either("ptr", place.pointer, copy.pointer)),
        place.shape,
        strides,
        place.element,
        place.stays,
    )


def _extent(text: str) -> Extent:
    return int(text) if text.lstrip("-").isdigit() else text


def accumulator_of(context: Context, c: Value, operands: tuple[str, ...]) -> tuple[Buffer, bool]:
    """Buffer of the result, and whether its accumulators start at zero instead of its contents."""
    assert isinstance(c.type, TileType)
    if constant_of(context.resolve(c)) == 0:
        return context.new_buffer(c.type.shape, c.type.element), True
    owned = context.materialize_owned(c)
    if owned.pointer not in operands:
        return owned, False
    # The accumulator is an operand too: the blocks would overwrite what others still read.
    copy = context.new_buffer(c.type.shape, c.type.element)
    copy_buffer(context, owned, copy)
    return copy, False


def _prepacked(context: Context, b: Value) -> str | None:
    """The list of matrices that were packed before the launch.

    It is None where B is computed, so that none of them holds it.
    """
    definition = context.resolve(b).definition
    while isinstance(definition, Permute | Cast):
        definition = context.resolve(definition.x).definition
    if not isinstance(definition, Load | DescriptorLoad):
        return None
    context.state.prepackable = True
    return context.writer.load("ptr", context.writer.gep("i64", "%args", SLOT), 8)


def multiply(
    context: Context,
    elements: tuple[Type, Type],
    a: TileLocation,
    b: TileLocation,
    target: Buffer,
    zero: bool,
    limits: Limits = ALL,
    prepacked: str | None = None,
    batching: BatchedAccumulation | None = None,
    pack_caches: tuple[PackCache | None, PackCache | None] = (None, None),
    precision: str = IEEE,
    sequential: bool = False,
    loop: LoopAccumulator | None = None,
) -> None:
    """Write the matmul of two tiles into ``target``, for each batch.

    It is added to what is there unless ``zero``. ``elements`` are the operands' own types, which
    those of the locations may be narrower than. The other arguments: see :class:`Gemm`.
    """
    w, hardware = context.writer, context.state.hardware

    def allocate(count: int, element: Type) -> str:
        return context.scratch(count * storage_size(element))

    def batch(axis: int, a_at: str, b_at: str, c_at: str) -> None:
        if axis == len(target.shape) - 2:
            accumulator = Accumulator(
                c_at, target.element, target.shape[-1], storage_size(target.element), zero
            )
            write_gemm(
                Gemm(
                    w,
                    hardware,
                    elements,
                    a.matrix(a_at),
                    b.matrix(b_at),
                    accumulator,
                    allocate,
                    limits,
                    prepacked,
                    batching,
                    pack_caches,
                    precision,
                    sequential,
                    bool(context.state.options.get("invariant")),
                    loop,
                )
            )
            return
        with w.loop("0", str(target.shape[axis]), 1, nonempty=True) as matrices:
            moved = []
            for pointer, strides, element in (
                (a_at, a.strides, a.element),
                (b_at, b.strides, b.element),
                (c_at, target.strides, target.element),
            ):
                moved.append(
                    w.gep(storage_type(element), pointer, scaled(w, matrices.index, strides[axis]))
                )
            batch(axis + 1, *moved)

    batch(0, a.pointer, b.pointer, target.pointer)


LOWERINGS: dict[str, Callable[[Context, Any], None]] = {"dot": lower_dot}
