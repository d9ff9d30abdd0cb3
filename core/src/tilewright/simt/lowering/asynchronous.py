"""What is started and waited for: copies from pointers and of blocks, loads into registers, groups.

``simt.copy_start`` starts copies into shared memory, in some order, at any time until a ``simt.wait`` of the same thread for their group. Then this thread
may read what *it* copied. What the other threads copied may be read after a barrier that follows everyone's wait. Before a copy into (or a store to)
memory that other threads may still read, a barrier is needed after their reads. One barrier after the wait serves both in a ring of buffers: it comes after
all reads of the slot read in the iteration before, which is the one filled next.

A wait for a token becomes a wait until so many groups are under way as were ended after the token's (:mod:`tilewright.simt.tokens`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation, Value
from tilewright.ir.types import DescriptorType, PointerType, Type, element_type
from tilewright.llvm.registers import constant, storage_size
from tilewright.passes.axis import AxisInfo
from tilewright.simt import layout_rules
from tilewright.simt.context import SimtContext
from tilewright.simt.copies import BlockCopy, CopyMechanism
from tilewright.simt.costs import access_width, element_size
from tilewright.simt.facts import layout_of
from tilewright.simt.interface import Interface, Reader, SharedEffects
from tilewright.simt.linear_layout import LinearLayout, SharedLayout, combine
from tilewright.simt.lowering.accesses import groups
from tilewright.simt.lowering.barrier_objects import barrier_address, in_one_thread
from tilewright.simt.lowering.shared import slot_address, slot_type
from tilewright.simt.lowering.shared_accesses import places, when, write_tile
from tilewright.simt.swizzle import Accesses
from tilewright.simt.target import Access, SimtTarget
from tilewright.simt.types import TokenType


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


def width_of(operation: Operation, mechanism: CopyMechanism, pointer: AxisInfo, mask: AxisInfo | None) -> int:
    """How many elements a copy of a ``simt.copy_start`` moves; 0 where it has to go through registers."""
    slot, pointers = operation.operands[:2]
    layout, shared = layout_of(pointers), slot_type(slot).layout
    width = copy_width(layout, shared, pointer, mask, element_size(pointers), mechanism.widths)
    if mechanism.lanes_side_by_side and shared.through(layout.lanes) != tuple(width << bit for bit in range(len(layout.lanes))):
        return 0
    return width


def copies_of(operation: Operation, target: SimtTarget, axes: Mapping[Value, AxisInfo]) -> int:
    """How many copies each thread starts by a ``simt.copy_start``, at least: none where not all do."""
    pointer, mask = operation.operand("pointer"), operation.operand("mask")
    assert pointer is not None
    width = width_of(operation, target.mechanism(operation.attribute("by")), axes[pointer], axes[mask] if mask is not None else None)
    layout = layout_of(pointer)
    return layout.register_count // width if width and layout.redundant_threads() == (0, 0) else 0


def lower_copy_start(context: SimtContext, operation: Operation) -> None:
    slot, pointer = operation.operands[:2]
    mask = operation.operand("mask")
    layout, shared, element = context.layout(pointer), slot_type(slot).layout, slot_type(slot).element
    base, size = slot_address(context, slot), storage_size(element)
    mechanism = context.target.mechanism(operation.attribute("by"))
    width = width_of(operation, mechanism, context.axes[pointer], context.axes[mask] if mask is not None else None)
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
        () if mechanism.lanes_side_by_side else shared.through(layout.lanes),
        shared.through(layout.warps),
    )
    found = places(context, base, plan, element)

    def copy() -> None:
        w, target = context.writer, context.target
        assert mechanism.start is not None
        if mechanism.around is not None:
            mechanism.around(context, False)
        for place in found:
            first = place.registers[0]
            to = w.emit(f"getelementptr i8, {target.shared_pointer} {place.base}, i32 {place.offset}") if place.offset else place.base
            mechanism.start(context, to, pointers[first], width * size, masks[first] if masks is not None else None)
        if mechanism.around is not None:
            mechanism.around(context, True)

    when(context, context.is_owner(layout), copy)


def _load_and_store(context: SimtContext, operation: Operation, pointer: Value, mask: Value | None, base: str) -> None:
    """What cannot be copied asynchronously: through registers."""
    slot = operation.operands[0]
    element, layout = slot_type(slot).element, context.layout(pointer)
    names = _loaded(context, operation, pointer, mask, element, [constant(element, 0)] * layout.register_count)
    write_tile(context, base, layout, slot_type(slot).layout, element, names)


def _loaded(context: SimtContext, operation: Operation, pointer: Value, mask: Value | None, element: Type, others: list[str] | None) -> list[str]:
    """The registers of a tile at pointers."""
    parts = groups(context, operation, pointer, mask, element)
    pointers = _addresses(context, operation, pointer, [part.start for part in parts])
    masks = context.registers[mask] if mask is not None else None
    access = Access(operation.attribute("cache"), operation.attribute("eviction") or "normal")
    names: list[str] = []
    for part in parts:
        other = [others[i] for i in part] if masks is not None and others is not None else None
        names += context.target.load(context.writer, pointers[part.start], element, len(part), masks[part.start] if masks is not None else None, other, access)
    return names


def _addresses(context: SimtContext, operation: Operation, pointer: Value, wanted: Sequence[int]) -> list[str]:
    """The addresses of the registers of pointers, of those that are wanted at the least."""
    names, steps = list(context.registers[pointer]), context.steps.of(operation)
    for register in wanted if steps is not None else ():
        assert steps is not None
        names[register] = names[0]
        if steps[register].terms:
            distance = context.steps.distance(context, steps[register], element_size(pointer))
            names[register] = context.writer.emit(f"getelementptr i8, ptr {names[0]}, i64 {distance}")
    return names


def lower_load_start(context: SimtContext, operation: Operation) -> None:
    pointer, mask, other = (operation.operand(name) for name in ("pointer", "mask", "other"))
    assert pointer is not None
    tile, token = operation.results
    element, others = element_type(tile.type), context.registers[other] if other is not None else None
    if mask is not None and other is None and not operation.attribute("unseen"):
        others = [constant(element, 0)] * len(context.registers[pointer])
    names = _loaded(context, operation, pointer, mask, element, others)
    context.bind(tile, names)
    context.bind(token, ["0"])


def lower_keep_order(context: SimtContext, operation: Operation) -> None:
    context.target.keep_order(context.writer, everything=operation.attribute("everything"))


def lower_commit(context: SimtContext, operation: Operation) -> None:
    (token,) = operation.results
    assert isinstance(token.type, TokenType)
    context.target.commit(context, token.type.queue)
    context.bind(token, ["0"])


def lower_wait(context: SimtContext, operation: Operation) -> None:
    tiles = operation.group("tiles")
    names = [context.registers[tile] for tile in tiles]
    for queue, pending in context.tokens.pending(operation):
        names = context.target.wait(context, queue, pending, names)
    for result, registers in zip(operation.results, names, strict=True):
        context.bind(result, registers)


# ---- blocks of descriptors, and rows

_ROW_COPIES = frozenset({"simt.rows_load_start", "simt.rows_store_start"})


def _block(context: SimtContext, operation: Operation, barrier: str) -> BlockCopy:
    slot, descriptor = operation.operands[:2]
    type_ = slot_type(slot)
    assert isinstance(descriptor.type, DescriptorType)
    offsets, of_rows = [], operation.name in _ROW_COPIES
    for offset in operation.group("column" if of_rows else "offsets"):
        name, llvm_type = context.scalar(offset), context.llvm_type(offset.type)
        if llvm_type != "i32":
            name = context.writer.emit(f"{'trunc' if llvm_type == 'i64' else 'sext'} {llvm_type} {name} to i32")
        offsets.append(name)
    made = descriptor.definition
    if made is not None and made.name == "simt.make_descriptor":
        padding = made.attribute("padding")
    else:
        padding = context.argument_facts(descriptor).get("padding", "zero")
    bytes_ = math.prod(type_.shape) * storage_size(type_.element)
    rows = slot_address(context, operation.operands[2]) if of_rows else ""
    there = slot_address(context, slot)
    return BlockCopy(there, type_.layout, type_.element, context.scalar(descriptor), tuple(offsets), barrier, bytes_, padding, rows=rows)


def lower_tensor(context: SimtContext, operation: Operation) -> None:
    context.bind(operation.result, [context.target.tensor(context, operation)])


def lower_block_load_start(context: SimtContext, operation: Operation) -> None:
    mechanism = context.target.mechanism(operation.attribute("by"))
    assert mechanism.start is not None
    copy, start = _block(context, operation, barrier_address(context, operation)), mechanism.start
    if operation.attributes.get("to_all"):
        copy = replace(copy, parts=context.cluster)
    in_one_thread(context, operation, lambda: start(context, copy))


def lower_block_store_start(context: SimtContext, operation: Operation) -> None:
    mechanism = context.target.mechanism(operation.attribute("by"))
    assert mechanism.store is not None
    copy, store = replace(_block(context, operation, ""), reduction=operation.attributes.get("reduction", "")), mechanism.store
    in_one_thread(context, operation, lambda: store(context, copy))


def _not_written_out(context: SimtContext, operation: Operation) -> None:
    raise LoweringError(f"{operation.name} at {operation.location} is to be written out as copies of blocks first (stage blocks)")


# ---- what passes are told


def _check_start(operation: Operation, target: object) -> str:
    pointer, mask = operation.operand("pointer"), operation.operand("mask")
    assert pointer is not None
    return "" if mask is None or mask.layout == pointer.layout else "pointers and mask must have one layout"


def _copies(operation: Operation) -> SharedEffects:
    return SharedEffects(copies=(operation.operands[0],), ordered=operation.attribute("ordered"))


def _blocks(operation: Operation) -> SharedEffects:
    return SharedEffects(blocks=(operation.operands[0],), ordered=operation.attribute("ordered"))


def _rows_loaded(operation: Operation) -> SharedEffects:
    slot, _, rows = operation.operands[:3]
    return SharedEffects(blocks=(slot,), reads=(rows,))


def _rows_stored(operation: Operation) -> SharedEffects:
    slot, _, rows = operation.operands[:3]
    return SharedEffects(stores=(slot,), reads=(rows,))


def _stored(operation: Operation) -> SharedEffects:
    return SharedEffects(stores=(operation.operands[0],))


def _describe_copy(report: Reader, operation: Operation) -> list[str]:
    pointer, mask = operation.operands[1], operation.operand("mask")
    size = element_size(pointer)
    mechanism = report.target.mechanism(operation.attribute("by"))
    width = width_of(operation, mechanism, report.axes[pointer], report.axes[mask] if mask is not None else None)
    if not width:
        return [report.layout(pointer), "through registers"]
    return [report.layout(pointer), f"{layout_of(pointer).register_count // width} asynchronous copies of {width * size} bytes a thread"]


def _describe_load(report: Reader, operation: Operation) -> list[str]:
    pointer, mask = operation.operands[0], operation.operand("mask")
    size, layout = element_size(pointer), layout_of(pointer)
    width = access_width(layout, report.axes[pointer], report.axes[mask] if mask is not None else None, size, report.target.max_access)
    return [f"{layout.register_count // width} accesses of {width * size} bytes a thread"]


def _describe_wait(report: Reader, operation: Operation) -> list[str]:
    return [f"until at most {pending} groups of {queue} are under way" for queue, pending in report.tokens.pending(operation)]


def pointee(pointer: Value) -> Type:
    """What a pointer, or a tile of pointers, points to."""
    element = element_type(pointer.type)
    assert isinstance(element, PointerType)
    return element.pointee


INTERFACES: dict[str, Interface] = {
    "descriptor_load": Interface(_not_written_out, layout_rules.block),
    "descriptor_store": Interface(_not_written_out, layout_rules.block),
    "descriptor_reduce": Interface(_not_written_out, layout_rules.block),
    "descriptor_gather": Interface(_not_written_out, layout_rules.each_own),
    "descriptor_scatter": Interface(_not_written_out, layout_rules.each_own),
    "simt.tensor": Interface(lower_tensor),
    "simt.copy_start": Interface(lower_copy_start, check=_check_start, effects=_copies, describe=_describe_copy),
    "simt.load_start": Interface(lower_load_start, check=_check_start, describe=_describe_load),
    "simt.block_load_start": Interface(lower_block_load_start, effects=_blocks),
    "simt.block_store_start": Interface(lower_block_store_start, effects=_stored),
    "simt.rows_load_start": Interface(lower_block_load_start, effects=_rows_loaded),
    "simt.rows_store_start": Interface(lower_block_store_start, effects=_rows_stored),
    "simt.keep_order": Interface(lower_keep_order),
    "simt.commit": Interface(lower_commit),
    "simt.wait": Interface(lower_wait, describe=_describe_wait),
}
