"""Operations that move elements of tiles in memory: cat, join, split, gather, unsplat.

Those that a change of coordinates can express (broadcast, permute, reshape …) are evaluated lazily
and are not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.core import Operation
from tilewright.ir.ops.shape import Cat, Gather, Join, Split, Unsplat
from tilewright.ir.types import I64, IntType, TileType
from tilewright.llvm.emission.registers import storage_size, storage_type
from tilewright.llvm.emission.writer import FunctionWriter, mangle
from tilewright_cpu.codegen.context import Buffer, Context
from tilewright_cpu.codegen.loops.strip_loop import around_axis, for_each, for_strips, viewed


def result_type(operation: Operation, index: int = 0) -> TileType:
    """The type of a result that is a tile."""
    type_ = operation.results[index].type
    assert isinstance(type_, TileType)
    return type_


def lower_unsplat(context: Context, operation: Unsplat) -> None:
    """The element of a tile that has one."""
    buffer = context.materialize(operation.x)
    context.bind_scalar(operation.result, context.load_element(viewed(buffer, 1), (0,)))


def lower_cat(context: Context, operation: Cat) -> None:
    """a, then b, along an axis: runs of a and of b take turns."""
    parts = [context.materialize(operand) for operand in (operation.a, operation.b)]
    type_, w = result_type(operation), context.writer
    result = context.new_buffer(type_.shape, type_.element)
    before, extent, after = around_axis(type_.shape, operation.axis)
    stored, size = storage_type(type_.element), storage_size(type_.element)
    w.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])

    def copy(outer: str) -> None:
        start = 0
        for part in parts:
            run = part.numel // before
            source, target = (
                w.gep(stored, pointer, _times(w, outer, stride))
                for pointer, stride in ((part.pointer, run), (result.pointer, extent * after))
            )
            w.do(
                f"call void @llvm.memcpy.p0.p0.i64(ptr align {size} "
                f"{w.gep(stored, target, start)}, ptr align {size} {source}, i64 {run * size}, "
                "i1 false)"
            )
            start += run

    for_each(w, before, copy)
    context.bind_buffer(operation.result, result)


def _times(w: FunctionWriter, index: str, factor: int) -> str:
    return index if index == "0" or factor == 1 else w.emit(f"mul nuw nsw i64 {index}, {factor}")


def lower_join(context: Context, operation: Join) -> None:
    """a and b side by side in a new last axis: interleaved."""
    a, b = context.materialize(operation.a), context.materialize(operation.b)
    type_, w = result_type(operation), context.writer
    result = context.new_buffer(type_.shape, type_.element)
    stored, size = storage_type(type_.element), storage_size(type_.element)

    def interleave(index: str, lanes: int) -> None:
        target = w.gep(stored, result.pointer, _times(w, index, 2))
        vector = f"<{lanes} x {stored}>" if lanes else stored
        x, y = (w.load(vector, w.gep(stored, part.pointer, index), size) for part in (a, b))
        if not lanes:
            w.store(stored, x, target, size)
            w.store(stored, y, w.gep(stored, target, 1), size)
            return
        order = ", ".join(f"i32 {i // 2 + lanes * (i % 2)}" for i in range(2 * lanes))
        mixed = w.emit(f"shufflevector {vector} {x}, {vector} {y}, <{2 * lanes} x i32> <{order}>")
        w.store(f"<{2 * lanes} x {stored}>", mixed, target, size)

    for_strips(w, a.numel, context.elements_for(type_.element), interleave)
    context.bind_buffer(operation.result, result)


def lower_split(context: Context, operation: Split) -> None:
    """The two halves of a last axis of 2."""
    source = context.materialize(operation.x)
    w, element = context.writer, source.element
    first, second = operation.results
    if not isinstance(first.type, TileType):
        for position, value in enumerate((first, second)):
            context.bind_scalar(value, context.load_element(source, (position,)))
        return
    halves = [context.new_buffer(first.type.shape, element) for _ in range(2)]
    stored, size = storage_type(element), storage_size(element)

    def part(index: str, lanes: int) -> None:
        pair = w.gep(stored, source.pointer, _times(w, index, 2))
        if not lanes:
            for position, half in enumerate(halves):
                w.store(
                    stored,
                    w.load(stored, w.gep(stored, pair, position), size),
                    w.gep(stored, half.pointer, index),
                    size,
                )
            return
        both = w.load(f"<{2 * lanes} x {stored}>", pair, size)
        for position, half in enumerate(halves):
            order = ", ".join(f"i32 {2 * i + position}" for i in range(lanes))
            chosen = w.emit(
                f"shufflevector <{2 * lanes} x {stored}> {both}, <{2 * lanes} x {stored}> poison, "
                f"<{lanes} x i32> <{order}>"
            )
            w.store(f"<{lanes} x {stored}>", chosen, w.gep(stored, half.pointer, index), size)

    for_strips(w, halves[0].numel, context.elements_for(element), part)
    for value, half in zip((first, second), halves, strict=True):
        context.bind_buffer(value, half)


def lower_gather(context: Context, operation: Gather) -> None:
    """Pick x along an axis by index.

    An index out of range, which is undefined, picks the last element: it must not reach other
    memory.
    """
    source, index, axis = (
        context.materialize(operation.x),
        context.materialize(operation.index),
        operation.axis,
    )
    type_ = result_type(operation)
    result = context.new_buffer(type_.shape, type_.element)
    before, extent, after = around_axis(source.shape, axis)
    picked = index.shape[axis]
    # Along the axis itself where it is the last one, across it otherwise.
    along = after == 1
    size = storage_size(source.element)
    width = context.elements_for(I64) if size >= 4 else 1

    def outer(o: str) -> None:
        if along:
            for_strips(context.writer, picked, width, lambda j, lanes: pick(o, j, "0", lanes))
        else:
            for_each(
                context.writer,
                picked,
                lambda j: for_strips(
                    context.writer, after, width, lambda i, lanes: pick(o, j, i, lanes)
                ),
            )

    def pick(o: str, j: str, i: str, lanes: int) -> None:
        at = (o, j, i)
        view, target = viewed(index, before, picked, after), viewed(result, before, picked, after)
        place = _positions(context, source, view, at, lanes, extent, after, along)
        stored = storage_type(source.element)
        base = context.writer.gep(stored, source.pointer, _times(context.writer, o, extent * after))
        if not lanes:
            _store_raw(
                context,
                target,
                at,
                context.writer.load(stored, context.writer.gep(stored, base, place), size),
                0,
            )
            return
        w, pointers, vector = context.writer, f"<{lanes} x ptr>", f"<{lanes} x {stored}>"
        addresses = w.emit(f"getelementptr {stored}, ptr {base}, <{lanes} x i64> {place}")
        name = f"llvm.masked.gather.{mangle(vector)}.v{lanes}p0"
        w.module.declare(name, vector, [pointers, f"<{lanes} x i1>", vector])
        value = w.emit(
            f"call {vector} @{name}({pointers} align {size} {addresses}, <{lanes} x i1> splat (i1 "
            f"true), {vector} poison)"
        )
        _store_raw(context, target, at, value, lanes)

    for_each(context.writer, before, outer)
    context.bind_buffer(operation.result, result)


def _positions(
    context: Context,
    source: Buffer,
    index: Buffer,
    at: tuple[str, str, str],
    lanes: int,
    extent: int,
    after: int,
    along: bool,
) -> str:
    """Positions, in elements from the start of the outer coordinate, that the indices pick."""
    w = context.writer
    i64 = f"<{lanes} x i64>" if lanes else "i64"
    number = context.load_vector(index, at, lanes) if lanes else context.load_element(index, at)
    number = context.convert(number, index.element, I64, lanes)
    assert isinstance(index.element, IntType)
    last = context.constant(I64, extent - 1, lanes)
    number = w.intrinsic("llvm.umin", i64, [(i64, number), (i64, last)])
    if along:
        return number
    number = w.emit(f"mul nuw nsw {i64} {number}, {context.constant(I64, after, lanes)}")
    if not lanes:
        return w.emit(f"add nuw nsw i64 {number}, {at[2]}")
    columns = w.emit(f"add nuw nsw {i64} {w.splat('i64', at[2], lanes)}, {w.iota('i64', lanes)}")
    return w.emit(f"add nuw nsw {i64} {number}, {columns}")


def _store_raw(
    context: Context, target: Buffer, at: tuple[str, str, str], value: str, lanes: int
) -> None:
    """Store elements in storage form."""
    stored = storage_type(target.element)
    context.writer.store(
        f"<{lanes} x {stored}>" if lanes else stored,
        value,
        context._address(target, at),
        storage_size(target.element),
    )


LOWERINGS: dict[str, Callable[[Context, Any], None]] = {
    "unsplat": lower_unsplat,
    "cat": lower_cat,
    "join": lower_join,
    "split": lower_split,
    "gather": lower_gather,
}
