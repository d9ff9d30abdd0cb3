"""Tensor descriptors: blocks of a strided tensor in memory, with bounds.

Bounds are checked in 64 bits, along the leading axes once a row and along the last axis as a range
of columns. A row that lies inside as a whole is moved by vectors where its elements are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.memory import (
    DescriptorBlocks,
    DescriptorExtent,
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorRows,
    DescriptorScatter,
    DescriptorStore,
    DescriptorStride,
    MakeDescriptor,
)
from tilewright.ir.types import I64, DescriptorType, FloatType, Type, element_type
from tilewright.llvm.emission.atomics import atomic_update
from tilewright.llvm.emission.registers import constant, storage_size, storage_type
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_cpu.codegen.context import Buffer, Context
from tilewright_cpu.codegen.loops.strip_loop import for_each, for_strips, viewed
from tilewright_cpu.codegen.ops.rearrange import result_type
from tilewright_cpu.codegen.sanitizer.bounds import checked_span, is_checked


@dataclass(frozen=True, slots=True)
class Descriptor:
    """LLVM operands of a descriptor.

    They are the base address (ptr), extents and strides (i64, counting elements), and whether a
    load of floats yields NaN outside (i1; else zero).
    """

    base: str
    shape: tuple[str, ...]
    strides: tuple[str, ...]
    pads_nan: str = "false"


def lower_make_descriptor(context: Context, operation: MakeDescriptor) -> None:
    """Nothing is written: a descriptor is its parts."""
    context.descriptors[operation.result] = Descriptor(
        context.scalar(operation.base),
        tuple(context.scalar(value) for value in operation.shape),
        tuple(context.scalar(value) for value in operation.strides),
        "true" if operation.padding == "nan" else "false",
    )


def lower_descriptor_extent(context: Context, operation: DescriptorExtent) -> None:
    """The tensor's extent along an axis."""
    context.bind_scalar(operation.result, _descriptor(context, operation)[0].shape[operation.axis])


def lower_descriptor_stride(context: Context, operation: DescriptorStride) -> None:
    """The distance of neighbours along an axis."""
    context.bind_scalar(
        operation.result, _descriptor(context, operation)[0].strides[operation.axis]
    )


# ---- rows of a block


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a block.

    It has the address of its first column, whether the leading coordinates are inside, and the
    columns [first, last) that are.
    """

    address: str
    inside: str
    first: str
    last: str


#: Writes what is done with a row, given its number in the block (row-major over the leading axes).
RowBody = Callable[[str, _Row], None]


def _offsets(context: Context, operation: DescriptorBlocks) -> list[str]:
    """The block's first coordinates as i64."""
    return [_as_i64(context, value) for value in operation.offsets]


def _as_i64(context: Context, value: Value) -> str:
    name = context.scalar(value)
    return name if not name.startswith("%") else context.convert(name, value.type, I64)


def _descriptor(
    context: Context,
    operation: DescriptorExtent | DescriptorStride | DescriptorBlocks | DescriptorRows,
) -> tuple[Descriptor, DescriptorType]:
    value = operation.descriptor
    assert isinstance(value.type, DescriptorType)
    found = context.descriptors[value]
    assert isinstance(found, Descriptor)
    return found, value.type


def _within(w: FunctionWriter, coordinate: str, extent: str) -> str:
    """0 <= coordinate < extent, as one unsigned comparison; extents are not negative."""
    return w.emit(f"icmp ult i64 {coordinate}, {extent}")


def _columns(w: FunctionWriter, offset: str, extent: str, block: int) -> tuple[str, str]:
    """Columns [first, last) of a block of ``block`` columns at ``offset`` within the extent."""
    zero, size = ("i64", "0"), ("i64", str(block))
    before = w.intrinsic("llvm.smax", "i64", [("i64", w.emit(f"sub i64 0, {offset}")), zero])
    behind = w.intrinsic("llvm.smax", "i64", [("i64", w.emit(f"sub i64 {extent}, {offset}")), zero])
    return w.intrinsic("llvm.smin", "i64", [("i64", before), size]), w.intrinsic(
        "llvm.smin", "i64", [("i64", behind), size]
    )


def _each_row(
    context: Context,
    operation: Operation,
    descriptor: Descriptor,
    type_: DescriptorType,
    offsets: Sequence[str],
    body: RowBody,
) -> None:
    """Run ``body`` for every row of the block at ``offsets``."""
    w, stored = context.writer, storage_type(type_.element)
    first, last = _columns(w, offsets[-1], descriptor.shape[-1], type_.block_shape[-1])
    start = w.gep(stored, descriptor.base, _times(w, offsets[-1], descriptor.strides[-1]))

    def axis(position: int, row: str, address: str, inside: str) -> None:
        if position == type_.rank - 1:
            body(
                row,
                _checked(context, operation, _Row(address, inside, first, last), descriptor, type_),
            )
            return

        def step(index: str) -> None:
            coordinate = _plus(w, offsets[position], index)
            holds = _and(w, inside, _within(w, coordinate, descriptor.shape[position]))
            moved = w.gep(stored, address, _times(w, coordinate, descriptor.strides[position]))
            axis(
                position + 1,
                _plus(w, _times(w, row, str(type_.block_shape[position])), index),
                moved,
                holds,
            )

        for_each(w, type_.block_shape[position], step)

    axis(0, "0", start, "true")


def _each_listed_row(
    context: Context,
    operation: Operation,
    descriptor: Descriptor,
    type_: DescriptorType,
    rows: Buffer,
    column: str,
    body: RowBody,
) -> None:
    """Run ``body`` for every row named by a tile of row numbers."""
    w, stored = context.writer, storage_type(type_.element)
    first, last = _columns(w, column, descriptor.shape[1], type_.block_shape[1])
    start = w.gep(stored, descriptor.base, _times(w, column, descriptor.strides[1]))

    def step(index: str) -> None:
        number = context.convert(context.load_element(rows, (index,)), rows.element, I64)
        address = w.gep(stored, start, _times(w, number, descriptor.strides[0]))
        body(
            index,
            _checked(
                context,
                operation,
                _Row(address, _within(w, number, descriptor.shape[0]), first, last),
                descriptor,
                type_,
            ),
        )

    for_each(w, rows.shape[0], step)


def _checked(
    context: Context, operation: Operation, row: _Row, descriptor: Descriptor, type_: DescriptorType
) -> _Row:
    """Return the row, or an empty one if a bounds check finds columns out of bounds."""
    if not is_checked(context, operation):
        return row
    w, stored, stride = context.writer, storage_type(type_.element), descriptor.strides[-1]
    first, last = (
        _element_address(w, stored, row, column, stride)
        for column in (row.first, w.emit(f"sub i64 {row.last}, 1"))
    )
    wanted = _and(w, row.inside, w.emit(f"icmp slt i64 {row.first}, {row.last}"))
    return replace(
        row,
        inside=checked_span(context, operation, first, last, storage_size(type_.element), wanted),
    )


def _times(w: FunctionWriter, a: str, b: str) -> str:
    if a == "0" or b == "0":
        return "0"
    if a == "1" or b == "1":
        return b if a == "1" else a
    return w.emit(f"mul i64 {a}, {b}")


def _plus(w: FunctionWriter, a: str, b: str) -> str:
    if a == "0" or b == "0":
        return b if a == "0" else a
    return w.emit(f"add i64 {a}, {b}")


def _and(w: FunctionWriter, a: str, b: str) -> str:
    return b if a == "true" else w.emit(f"and i1 {a}, {b}")


# ---- moving rows


def _is_whole(w: FunctionWriter, row: _Row, stride: str, block: int) -> str:
    """Return whether a row is inside from end to end and contiguous."""
    starts = w.emit(f"icmp eq i64 {row.first}, 0")
    ends = w.emit(f"icmp eq i64 {row.last}, {block}")
    whole = _and(w, row.inside, w.emit(f"and i1 {starts}, {ends}"))
    return (
        whole if stride == "1" else w.emit(f"and i1 {whole}, {w.emit(f'icmp eq i64 {stride}, 1')}")
    )


def _branch(
    w: FunctionWriter, condition: str, then: Callable[[], None], otherwise: Callable[[], None]
) -> None:
    yes, no, join = w.new_block("whole"), w.new_block("partial"), w.new_block("join")
    w.branch_if(condition, yes, no, likely=True)
    w.place(yes)
    then()
    w.branch(join)
    w.place(no)
    otherwise()
    w.branch(join)
    w.place(join)


def _element_address(w: FunctionWriter, stored: str, row: _Row, column: str, stride: str) -> str:
    return w.gep(stored, row.address, _times(w, column, stride))


def _load_row(
    context: Context, target: Buffer, number: str, row: _Row, stride: str, padding: str
) -> None:
    """Fill a row of the result from memory, padding where it is outside."""
    w, stored, size, block = (
        context.writer,
        storage_type(target.element),
        storage_size(target.element),
        target.shape[1],
    )
    to = w.gep(stored, target.pointer, _times(w, number, str(block)))
    width = context.elements_for(target.element)

    def move(column: str, lanes: int) -> None:
        type_ = f"<{lanes} x {stored}>" if lanes else stored
        w.store(
            type_,
            w.load(type_, w.gep(stored, row.address, column), size),
            w.gep(stored, to, column),
            size,
        )

    def fill(column: str, lanes: int) -> None:
        type_ = f"<{lanes} x {stored}>" if lanes else stored
        w.store(
            type_,
            w.splat(stored, padding, lanes) if lanes else padding,
            w.gep(stored, to, column),
            size,
        )

    def partial() -> None:
        for_strips(w, block, width, fill)
        with w.when(row.inside), w.loop(row.first, row.last, 1) as loop:
            w.store(
                stored,
                w.load(stored, _element_address(w, stored, row, loop.index, stride), size),
                w.gep(stored, to, loop.index),
                size,
            )

    _branch(w, _is_whole(w, row, stride, block), lambda: for_strips(w, block, width, move), partial)


def _store_row(context: Context, source: Buffer, number: str, row: _Row, stride: str) -> None:
    """Write a row of a tile to memory where it is inside."""
    w, stored, size, block = (
        context.writer,
        storage_type(source.element),
        storage_size(source.element),
        source.shape[1],
    )
    from_ = w.gep(stored, source.pointer, _times(w, number, str(block)))

    def move(column: str, lanes: int) -> None:
        type_ = f"<{lanes} x {stored}>" if lanes else stored
        w.store(
            type_,
            w.load(type_, w.gep(stored, from_, column), size),
            w.gep(stored, row.address, column),
            size,
        )

    def partial() -> None:
        with w.when(row.inside), w.loop(row.first, row.last, 1) as loop:
            w.store(
                stored,
                w.load(stored, w.gep(stored, from_, loop.index), size),
                _element_address(w, stored, row, loop.index, stride),
                size,
            )

    _branch(
        w,
        _is_whole(w, row, stride, block),
        lambda: for_strips(w, block, context.elements_for(source.element), move),
        partial,
    )


def _padding(w: FunctionWriter, descriptor: Descriptor, element: Type) -> str:
    """Value of a load outside the tensor, in storage form. Integers have no NaN and load zero."""
    stored = storage_type(element)
    zero = "0" if stored[0] == "i" else constant(element, 0.0)
    if descriptor.pads_nan == "false" or not isinstance(element, FloatType):
        return zero
    nan = constant(element, float("nan"))
    if descriptor.pads_nan == "true":
        return nan
    return w.emit(f"select i1 {descriptor.pads_nan}, {stored} {nan}, {stored} {zero}")


def _rows_of(buffer: Buffer) -> Buffer:
    return viewed(buffer, buffer.numel // buffer.shape[-1], buffer.shape[-1])


# ---- operations


def lower_descriptor_load(context: Context, operation: DescriptorLoad) -> None:
    """The block at offsets; padding outside the tensor."""
    descriptor, type_ = _descriptor(context, operation)
    offsets = _offsets(context, operation)
    result = context.new_buffer(type_.block_shape, type_.element)
    padding, rows = _padding(context.writer, descriptor, type_.element), _rows_of(result)
    _each_row(
        context,
        operation,
        descriptor,
        type_,
        offsets,
        lambda number, row: _load_row(context, rows, number, row, descriptor.strides[-1], padding),
    )
    context.bind_buffer(operation.result, result)


def lower_descriptor_store(context: Context, operation: DescriptorStore) -> None:
    """Write the block at offsets where it is in the tensor."""
    descriptor, type_ = _descriptor(context, operation)
    source = _rows_of(context.materialize(operation.value))
    offsets = _offsets(context, operation)
    _each_row(
        context,
        operation,
        descriptor,
        type_,
        offsets,
        lambda number, row: _store_row(context, source, number, row, descriptor.strides[-1]),
    )


def lower_descriptor_reduce(context: Context, operation: DescriptorReduce) -> None:
    """Update the block at offsets atomically, element by element, where it is in the tensor."""
    descriptor, type_ = _descriptor(context, operation)
    value, kind = operation.value, operation.kind
    source, w, stored = (
        _rows_of(context.materialize(value)),
        context.writer,
        storage_type(type_.element),
    )
    offsets = _offsets(context, operation)

    def update(number: str, row: _Row) -> None:
        with w.when(row.inside), w.loop(row.first, row.last, 1) as loop:
            address = _element_address(w, stored, row, loop.index, descriptor.strides[-1])
            atomic_update(
                context,
                kind,
                element_type(value.type),
                address,
                context.load_element(source, (number, loop.index)),
                "relaxed",
            )

    _each_row(context, operation, descriptor, type_, offsets, update)


def lower_descriptor_gather(context: Context, operation: DescriptorGather) -> None:
    """The given rows of the tensor, from a column on."""
    descriptor, type_ = _descriptor(context, operation)
    numbers, first = context.materialize(operation.rows), _as_i64(context, operation.column)
    shape = result_type(operation).shape
    result = context.new_buffer(shape, type_.element)
    padding = _padding(context.writer, descriptor, type_.element)
    _each_listed_row(
        context,
        operation,
        descriptor,
        type_,
        numbers,
        first,
        lambda number, row: _load_row(
            context, result, number, row, descriptor.strides[-1], padding
        ),
    )
    context.bind_buffer(operation.result, result)


def lower_descriptor_scatter(context: Context, operation: DescriptorScatter) -> None:
    """Write the given rows of the tensor, from a column on."""
    descriptor, type_ = _descriptor(context, operation)
    numbers, source, first = (
        context.materialize(operation.rows),
        context.materialize(operation.value),
        _as_i64(context, operation.column),
    )
    _each_listed_row(
        context,
        operation,
        descriptor,
        type_,
        numbers,
        first,
        lambda number, row: _store_row(context, source, number, row, descriptor.strides[-1]),
    )


LOWERINGS: dict[str, Callable[[Context, Any], None]] = {
    "make_descriptor": lower_make_descriptor,
    "descriptor_extent": lower_descriptor_extent,
    "descriptor_stride": lower_descriptor_stride,
    "descriptor_load": lower_descriptor_load,
    "descriptor_store": lower_descriptor_store,
    "descriptor_reduce": lower_descriptor_reduce,
    "descriptor_gather": lower_descriptor_gather,
    "descriptor_scatter": lower_descriptor_scatter,
}
