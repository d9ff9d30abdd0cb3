"""Explicit shared memory: allocation, tiles to and from it, asynchronous copies from global memory.

What the operations guarantee, and what the barriers are for:

``simt.async_load`` starts copies into shared memory, in some order, at any time until an ``simt.async_wait`` of the same thread lets no more than the
groups after theirs be under way. Then this thread may read what *it* copied. What the other threads copied may be read after a barrier that follows
everyone's wait. Before a copy into (or a store to) memory that other threads may still read, a barrier is needed after their reads. One barrier after
the wait serves both in a ring of buffers: it comes after all reads of the buffer read in the iteration before, which is the one filled next.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Operation, Value
from tilewright.ir.types import PointerType, TileType, Type, element_type
from tilewright.llvm.registers import constant, storage_size
from tilewright.passes.axis import AxisInfo
from tilewright.simt.context import SimtContext
from tilewright.simt.costs import access_width
from tilewright.simt.linear_layout import LinearLayout, SharedLayout, combine
from tilewright.simt.lowering.accesses import groups
from tilewright.simt.lowering.shared_accesses import places, read_tile, when, write_tile
from tilewright.simt.swizzle import Accesses
from tilewright.simt.target import Access


def copy_width(layout: LinearLayout, shared: SharedLayout, pointer: AxisInfo, mask: AxisInfo | None, size: int, widths: tuple[int, ...]) -> int:
    """How many elements one asynchronous copy moves: consecutive in registers, in global memory and in shared memory, under one mask, as many bytes as
    the machine can copy (``widths``). 0 where there is no such copy."""
    if not widths:
        return 0
    width = access_width(layout, pointer, mask, size, max(widths))
    images = shared.through(layout.registers)
    threads = shared.through((*layout.lanes, *layout.warps))
    while width > 1:
        bits = width.bit_length() - 1
        if images[:bits] == tuple(1 << bit for bit in range(bits)) and not any(image & (width - 1) for image in (*images[bits:], *threads)):
            break
        width //= 2
    while width and width * size not in widths:
        width //= 2
    return width


def lower_shared_alloc(context: SimtContext, operation: Operation) -> None:
    context.bind(operation.results[0], [str(context.assignment.offsets[operation])])


def buffer_address(context: SimtContext, operation: Operation) -> str:
    """The address of the tile that an operation accesses."""
    buffer = operation.operand("buffer")
    assert buffer is not None
    return context.shared_address(context.scalar(buffer))


def lower_shared_load(context: SimtContext, operation: Operation) -> None:
    if read_by_dot(operation):
        return
    (result,) = operation.results
    shared = context.assignment.shared[operation]
    context.bind(result, read_tile(context, buffer_address(context, operation), context.layout(result), shared, element_type(result.type)))


def read_by_dot(operation: Operation) -> bool:
    """Whether a ``simt.shared_load`` is left to the ``dot`` that is its only reader: it loads the fragments as it needs them. Between the two nothing
    may write to memory, or need scratch memory, or wait for other threads."""
    (result,) = operation.results
    if len(result.uses) != 1:
        return False
    (reader,) = result.uses
    if reader.name != "dot" or reader.operands[2] is result or reader.parent is not operation.parent:
        return False
    following = operation.next
    while following is not None and following is not reader:
        if following.name != "simt.shared_load" and not (following.spec.pure and not following.regions and following.name not in _WITH_SCRATCH):
            return False
        following = following.next
    return following is reader


#: Operations without effects of their own whose lowering may use shared memory.
_WITH_SCRATCH = frozenset({"simt.convert", "reduce", "scan", "gather", "histogram", "dot"})


def lower_shared_store(context: SimtContext, operation: Operation) -> None:
    x = operation.operand("x")
    assert x is not None
    shared = context.assignment.shared[operation]
    write_tile(context, buffer_address(context, operation), context.layout(x), shared, element_type(x.type), context.registers[x])


def lower_async_load(context: SimtContext, operation: Operation) -> None:
    pointer, mask = operation.operand("pointer"), operation.operand("mask")
    assert pointer is not None and isinstance(pointer.type, TileType)
    layout, shared, element = context.layout(pointer), context.assignment.shared[operation], pointee(pointer)
    base = buffer_address(context, operation)
    size = storage_size(element)
    width = copy_width(layout, shared, context.axes[pointer], context.axes[mask] if mask is not None else None, size, context.target.copy_widths)
    pointers = context.registers[pointer]
    masks = context.registers[mask] if mask is not None else None
    if not width:
        _load_and_store(context, operation, pointer, mask, base)
        return
    images = shared.through(layout.registers)
    starts = range(0, layout.register_count, width)
    plan = Accesses(
        width,
        tuple((tuple(range(start, start + width)), combine(images, start)) for start in starts),
        shared.through(layout.lanes),
        shared.through(layout.warps),
    )
    found = places(context, base, plan, element)

    def copy() -> None:
        w, target = context.writer, context.target
        for place in found:
            first = place.registers[0]
            to = w.emit(f"getelementptr i8, {target.shared_pointer} {place.base}, i32 {place.offset}") if place.offset else place.base
            target.async_copy(w, to, pointers[first], width * size, masks[first] if masks is not None else None)

    when(context, context.is_owner(layout), copy)


def _load_and_store(context: SimtContext, operation: Operation, pointer: Value, mask: Value | None, base: str) -> None:
    """What cannot be copied asynchronously: through registers."""
    element, layout = pointee(pointer), context.layout(pointer)
    pointers = context.registers[pointer]
    masks = context.registers[mask] if mask is not None else None
    access = Access(operation.attribute("cache"), operation.attribute("eviction") or "normal")
    names: list[str] = []
    for part in groups(context, operation, pointer, mask, element):
        zeros = [_zero(element)] * len(part) if masks is not None else None
        names += context.target.load(context.writer, pointers[part.start], element, len(part), masks[part.start] if masks is not None else None, zeros, access)
    write_tile(context, base, layout, context.assignment.shared[operation], element, names)


def _zero(element: Type) -> str:
    return constant(element, 0)


def pointee(pointer: Value) -> Type:
    """What a pointer, or a tile of pointers, points to."""
    element = element_type(pointer.type)
    assert isinstance(element, PointerType)
    return element.pointee


def lower_async_commit(context: SimtContext, operation: Operation) -> None:
    context.target.async_commit(context.writer)


def lower_async_wait(context: SimtContext, operation: Operation) -> None:
    context.target.async_wait(context.writer, operation.attribute("pending"))


LOWERINGS: dict[str, Callable[[SimtContext, Operation], None]] = {
    "simt.shared_alloc": lower_shared_alloc,
    "simt.shared_load": lower_shared_load,
    "simt.shared_store": lower_shared_store,
    "simt.async_load": lower_async_load,
    "simt.async_commit": lower_async_commit,
    "simt.async_wait": lower_async_wait,
}
