"""Lowering of asynchronous copies: cp.async, TMA, loads into registers, and waits for groups.

``simt.copy_start`` starts copies into shared memory, which may complete in any order until a
``simt.wait`` of the same thread for their group. Then this thread may read what *it* copied. The
copies of other threads may be read after a barrier that follows all threads' waits. Before a copy
into (or a store to) memory that other threads may still read, a barrier is needed after their
reads. In multi-buffered shared memory one barrier after the wait serves both purposes: it follows
all reads of the slot of the previous iteration, which is the next one to fill.

A wait for a token becomes a wait until the number of groups in flight is the number of groups that
were committed after the token's (:mod:`tilewright.simt.dialect.async_groups`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation, Value
from tilewright.ir.types import DescriptorType, PointerType, Type, element_type
from tilewright.llvm.emission.registers import constant, storage_size
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.dialect.attributes import layout_of, warps_of
from tilewright.simt.dialect.op_interface import Interface, Reader, SharedEffects
from tilewright.simt.dialect.ops.async_copy import (
    Commit,
    CopyStart,
    KeepOrder,
    LoadStart,
    OwnCopyStart,
    OwnLoad,
    Wait,
)
from tilewright.simt.dialect.ops.tensor_maps import MakeTensorMap, Tensor
from tilewright.simt.dialect.ops.tma import (
    BlockLoadStart,
    BlockStoreStart,
    RowCopy,
    RowsLoadStart,
    RowsStoreStart,
)
from tilewright.simt.dialect.ops.tma import TmaCopy as BlockCopyStart
from tilewright.simt.dialect.own_words import repeated_lanes
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.dialect.types import TokenType, slot_type
from tilewright.simt.layouts.linear_layout import LinearLayout, combine, log2
from tilewright.simt.layouts.swizzle import Accesses
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shared_access import places, read_tile, when, write_tile
from tilewright.simt.lowering.global_memory import groups
from tilewright.simt.lowering.mbarrier import barrier_address, in_one_thread
from tilewright.simt.lowering.shared_memory import slot_address
from tilewright.simt.target.capabilities.global_memory import Access
from tilewright.simt.target.copy_mechanism import BlockCopy, CopyMechanism
from tilewright.simt.target.cost_model import copy_width, element_size
from tilewright.simt.target.simt_target import SimtTarget, required


def width_of(
    operation: CopyStart, mechanism: CopyMechanism, pointer: AxisInfo, mask: AxisInfo | None
) -> int:
    """Return how many elements one copy of a ``simt.copy_start`` moves.

    It is 0 if the elements have to go through registers.
    """
    layout, shared = layout_of(operation.pointer), slot_type(operation.slot).layout
    width = copy_width(
        layout, shared, pointer, mask, element_size(operation.pointer), mechanism.widths
    )
    if mechanism.lanes_side_by_side and shared.through(layout.lanes) != tuple(
        width << bit for bit in range(len(layout.lanes))
    ):
        return 0
    return width


def copies_of(operation: CopyStart, target: SimtTarget, axes: Mapping[Value, AxisInfo]) -> int:
    """Return the minimum number of copies each thread starts by a ``simt.copy_start``.

    It is 0 if some threads may start none.
    """
    pointer, mask = operation.pointer, operation.mask
    width = width_of(
        operation,
        target.async_copy.mechanism(operation.by),
        axes[pointer],
        axes[mask] if mask is not None else None,
    )
    layout = layout_of(pointer)
    return layout.register_count // width if width and layout.redundant_threads() == (0, 0) else 0


def lower_copy_start(context: SimtContext, operation: CopyStart) -> None:
    slot, pointer, mask = operation.slot, operation.pointer, operation.mask
    layout, shared, element = (
        context.layout(pointer),
        slot_type(slot).layout,
        slot_type(slot).element,
    )
    base, size = slot_address(context, slot), storage_size(element)
    mechanism = context.target.async_copy.mechanism(operation.by)
    width = width_of(
        operation,
        mechanism,
        context.axes[pointer],
        context.axes[mask] if mask is not None else None,
    )
    masks = context.registers[mask] if mask is not None else None
    if not width:
        _load_and_store(context, operation, base)
        return
    images = shared.through(layout.registers)
    starts = range(0, layout.register_count, width)
    pointers = _addresses(context, operation, pointer, starts)
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
            to = (
                w.emit(
                    f"getelementptr i8, {target.shared.pointer} {place.base}, i32 {place.offset}"
                )
                if place.offset
                else place.base
            )
            mechanism.start(
                context,
                to,
                pointers[first],
                width * size,
                masks[first] if masks is not None else None,
            )
        if mechanism.around is not None:
            mechanism.around(context, True)

    when(context, context.is_owner(layout), copy)


def _own_words(
    context: SimtContext, operation: OwnCopyStart | OwnLoad, value: Value
) -> LinearLayout:
    """Return the layout of a slot of words of each warp's own, for a tile or a scalar.

    Lanes that hold the same elements share their words.
    """
    (words,) = slot_type(operation.slot).shape
    sizes = context.target.resources
    lanes, warps = log2(sizes.warp_size), log2(warps_of(operation))
    repeated = repeated_lanes(value, sizes.warp_size)
    bits = [1 << bit for bit in range(log2(words))]
    registers = len(bits) - (lanes - repeated.bit_count()) - warps
    rest = iter(bits[registers:])
    return LinearLayout(
        (words,),
        tuple(bits[:registers]),
        tuple(0 if repeated >> lane & 1 else next(rest) for lane in range(lanes)),
        tuple(rest),
    )


def lower_own_copy_start(context: SimtContext, operation: OwnCopyStart) -> None:
    pointer, type_ = operation.pointer, slot_type(operation.slot)
    layout = _own_words(context, operation, pointer)
    starts = range(layout.register_count)
    plan = Accesses(
        1,
        tuple(((start,), combine(layout.registers, start)) for start in starts),
        layout.lanes,
        layout.warps,
    )
    mask, size = operation.mask, storage_size(type_.element)
    pointers = context.registers[pointer]
    masks = None if mask is None else context.registers[mask]
    start = context.target.async_copy.mechanism(operation.by).start
    assert start is not None and len(pointers) == len(starts)
    found = places(context, slot_address(context, operation.slot), plan, type_.element)

    def copy() -> None:
        w, space = context.writer, context.target.shared.pointer
        for place in found:
            to = place.base
            if place.offset:
                to = w.emit(f"getelementptr i8, {space} {to}, i32 {place.offset}")
            (register,) = place.registers
            start(context, to, pointers[register], size, None if masks is None else masks[register])

    owner = context.is_owner(layout)
    if owner is not None:
        # all lanes have read what the copy overwrites
        context.warp_barrier()
    when(context, owner, copy)


def lower_own_load(context: SimtContext, operation: OwnLoad) -> None:
    type_, (result,) = slot_type(operation.slot), operation.results
    base, layout = slot_address(context, operation.slot), _own_words(context, operation, result)
    if context.is_owner(layout) is not None:
        # the lanes that copied have waited
        context.warp_barrier()
    names = read_tile(context, base, layout, type_.layout, type_.element)
    context.bind(result, names)


def _load_and_store(context: SimtContext, operation: CopyStart, base: str) -> None:
    """Load to registers and store to shared memory where no asynchronous copy is possible."""
    type_, layout = slot_type(operation.slot), context.layout(operation.pointer)
    names = _loaded(
        context, operation, type_.element, [constant(type_.element, 0)] * layout.register_count
    )
    write_tile(context, base, layout, type_.layout, type_.element, names)


def _loaded(
    context: SimtContext, operation: CopyStart | LoadStart, element: Type, others: list[str] | None
) -> list[str]:
    """Load a tile at pointers into registers."""
    pointer, mask = operation.pointer, operation.mask
    parts = groups(context, pointer, mask, context.target.resources.max_access)
    pointers = _addresses(context, operation, pointer, [part.start for part in parts])
    masks = context.registers[mask] if mask is not None else None
    access = Access(operation.cache, operation.eviction or "normal")
    names: list[str] = []
    for part in parts:
        other = [others[i] for i in part] if masks is not None and others is not None else None
        names += context.target.memory.load(
            context.writer,
            pointers[part.start],
            element,
            len(part),
            masks[part.start] if masks is not None else None,
            other,
            access,
        )
    return names


def _addresses(
    context: SimtContext, operation: CopyStart | LoadStart, pointer: Value, wanted: Sequence[int]
) -> list[str]:
    """Return the addresses of a tile's registers, at least of the ``wanted`` ones."""
    names, steps = list(context.registers[pointer]), context.steps.of(operation)
    for register in wanted if steps is not None else ():
        assert steps is not None
        names[register] = names[0]
        if steps[register].terms:
            distance = context.steps.distance(context, steps[register], element_size(pointer))
            names[register] = context.writer.emit(
                f"getelementptr i8, ptr {names[0]}, i64 {distance}"
            )
    return names


def lower_load_start(context: SimtContext, operation: LoadStart) -> None:
    other, (tile, token) = operation.other, operation.results
    element, others = (
        element_type(tile.type),
        context.registers[other] if other is not None else None,
    )
    if operation.mask is not None and other is None and not operation.unobserved:
        others = [constant(element, 0)] * len(context.registers[operation.pointer])
    names = _loaded(context, operation, element, others)
    context.bind(tile, names)
    context.bind(token, ["0"])


def lower_keep_order(context: SimtContext, operation: KeepOrder) -> None:
    context.target.async_copy.keep_order(context.writer, everything=operation.everything)


def lower_commit(context: SimtContext, operation: Commit) -> None:
    (token,) = operation.results
    assert isinstance(token.type, TokenType)
    context.target.async_copy.commit(context, token.type.queue)
    context.bind(token, ["0"])


def lower_wait(context: SimtContext, operation: Wait) -> None:
    names = [context.registers[tile] for tile in operation.tiles]
    for queue, pending in context.tokens.pending(operation):
        names = context.target.async_copy.wait(context, queue, pending, names)
    for result, registers in zip(operation.results, names, strict=True):
        context.bind(result, registers)


# ---- blocks of descriptors, and rows


def _block(context: SimtContext, operation: BlockCopyStart | RowCopy, barrier: str) -> BlockCopy:
    descriptor, type_ = operation.descriptor, slot_type(operation.slot)
    assert isinstance(descriptor.type, DescriptorType)
    offsets = []
    for offset in [operation.column] if isinstance(operation, RowCopy) else operation.offsets:
        name, llvm_type = context.scalar(offset), context.llvm_type(offset.type)
        if llvm_type != "i32":
            name = context.writer.emit(
                f"{'trunc' if llvm_type == 'i64' else 'sext'} {llvm_type} {name} to i32"
            )
        offsets.append(name)
    made = descriptor.definition
    padding = (
        made.padding
        if isinstance(made, MakeTensorMap)
        else context.argument_facts(descriptor).get("padding", "zero")
    )
    bytes_ = math.prod(type_.shape) * storage_size(type_.element)
    rows = slot_address(context, operation.rows) if isinstance(operation, RowCopy) else ""
    there = slot_address(context, operation.slot)
    return BlockCopy(
        there,
        type_.layout,
        type_.element,
        context.scalar(descriptor),
        tuple(offsets),
        barrier,
        bytes_,
        padding,
        rows=rows,
    )


def lower_tensor(context: SimtContext, operation: Tensor) -> None:
    context.bind(
        operation.result,
        [required(context.target.tma, context.target, "TMA").tensor(context, operation)],
    )


def lower_block_load_start(context: SimtContext, operation: BlockLoadStart) -> None:
    copy = _block(context, operation, barrier_address(context, operation))
    if operation.to_all:
        copy = replace(copy, parts=context.cluster)
    _start(context, operation, copy, operation.condition)


def lower_rows_load_start(context: SimtContext, operation: RowsLoadStart) -> None:
    _start(context, operation, _block(context, operation, barrier_address(context, operation)))


def lower_block_store_start(context: SimtContext, operation: BlockStoreStart) -> None:
    _store(
        context, operation, replace(_block(context, operation, ""), reduction=operation.reduction)
    )


def lower_rows_store_start(context: SimtContext, operation: RowsStoreStart) -> None:
    _store(context, operation, _block(context, operation, ""))


def _start(
    context: SimtContext,
    operation: BlockLoadStart | RowsLoadStart,
    copy: BlockCopy,
    condition: Value | None = None,
) -> None:
    start = context.target.async_copy.mechanism(operation.by).start
    assert start is not None
    in_one_thread(context, lambda: start(context, copy), condition)


def _store(
    context: SimtContext, operation: BlockStoreStart | RowsStoreStart, copy: BlockCopy
) -> None:
    store = context.target.async_copy.mechanism(operation.by).store
    assert store is not None
    in_one_thread(context, lambda: store(context, copy))


def _not_written_out(context: SimtContext, operation: Operation) -> None:
    raise LoweringError(
        f"{operation.name} at {operation.location} is to be written out as TMA copies first "
        "(stage blocks)"
    )


# ---- the interface to passes


def _check_start(operation: CopyStart | LoadStart | OwnCopyStart, target: object) -> str:
    mask = operation.mask
    return (
        ""
        if mask is None or mask.layout == operation.pointer.layout
        else "pointers and mask must have one layout"
    )


def _copies(operation: CopyStart) -> SharedEffects:
    return SharedEffects(copies=(operation.slot,), ordered=operation.ordered)


def _blocks(operation: BlockLoadStart) -> SharedEffects:
    return SharedEffects(blocks=(operation.slot,), ordered=operation.ordered)


def _rows_loaded(operation: RowsLoadStart) -> SharedEffects:
    return SharedEffects(blocks=(operation.slot,), reads=(operation.rows,))


def _rows_stored(operation: RowsStoreStart) -> SharedEffects:
    return SharedEffects(stores=(operation.slot,), reads=(operation.rows,))


def _stored(operation: BlockStoreStart) -> SharedEffects:
    return SharedEffects(stores=(operation.slot,))


def _describe_copy(report: Reader, operation: CopyStart) -> list[str]:
    pointer, mask = operation.pointer, operation.mask
    size = element_size(pointer)
    mechanism = report.target.async_copy.mechanism(operation.by)
    width = width_of(
        operation, mechanism, report.axes[pointer], report.axes[mask] if mask is not None else None
    )
    if not width:
        return [report.layout(pointer), "through registers"]
    return [
        report.layout(pointer),
        report.accesses(pointer, mask, width * size, f"asynchronous copies ({operation.by})"),
    ]


def _describe_load(report: Reader, operation: LoadStart) -> list[str]:
    widest = report.target.resources.max_access
    accesses = report.accesses(operation.pointer, operation.mask, widest)
    return [f"{accesses}, into registers, ahead of their use"]


def _describe_block(report: Reader, operation: BlockLoadStart | BlockStoreStart) -> list[str]:
    way = (
        "to global memory"
        if isinstance(operation, BlockStoreStart)
        else "from global to shared memory"
    )
    to_all = (
        ", to all CTAs of the cluster"
        if isinstance(operation, BlockLoadStart) and operation.to_all
        else ""
    )
    reduction = (
        f", which updates by {operation.reduction}"
        if isinstance(operation, BlockStoreStart) and operation.reduction
        else ""
    )
    return [
        (
            f"{_block_bytes(operation)} {way} by {operation.by}, started by one "
            f"thread{to_all}{reduction}"
        )
    ]


def _describe_rows(report: Reader, operation: RowsLoadStart | RowsStoreStart) -> list[str]:
    way = (
        "to global memory"
        if isinstance(operation, RowsStoreStart)
        else "from global to shared memory"
    )
    return [f"{_block_bytes(operation)} in rows that are anywhere, {way} by {operation.by}"]


def _block_bytes(operation: BlockCopyStart | RowCopy) -> str:
    """Describe the bytes of a slot's elements and the argument they are copied from or to."""
    type_, place = slot_type(operation.slot), operation.descriptor
    if isinstance(place.definition, Tensor | MakeTensorMap):
        place = place.definition.base
    of = f" of `{place.name}`" if place.definition is None and place.name else ""
    return f"{math.prod(type_.shape) * storage_size(type_.element)} bytes{of}"


def _describe_wait(report: Reader, operation: Wait) -> list[str]:
    return [
        f"until at most {pending} groups of {queue} are in flight"
        for queue, pending in report.tokens.pending(operation)
    ]


def pointee(pointer: Value) -> Type:
    """Return the pointee type of a pointer, or of a tile of pointers."""
    element = element_type(pointer.type)
    assert isinstance(element, PointerType)
    return element.pointee


INTERFACES = register_interfaces(
    {
        "descriptor_load": Interface(_not_written_out, shape_rules.block),
        "descriptor_store": Interface(_not_written_out, shape_rules.block),
        "descriptor_reduce": Interface(_not_written_out, shape_rules.block),
        "descriptor_gather": Interface(_not_written_out, shape_rules.each_own),
        "descriptor_scatter": Interface(_not_written_out, shape_rules.each_own),
        "simt.tensor": Interface(lower_tensor),
        "simt.copy_start": Interface(
            lower_copy_start, check=_check_start, effects=_copies, describe=_describe_copy
        ),
        "simt.own_copy_start": Interface(lower_own_copy_start, check=_check_start),
        "simt.own_load": Interface(lower_own_load),
        "simt.load_start": Interface(lower_load_start, check=_check_start, describe=_describe_load),
        "simt.block_load_start": Interface(
            lower_block_load_start, effects=_blocks, describe=_describe_block
        ),
        "simt.block_store_start": Interface(
            lower_block_store_start, effects=_stored, describe=_describe_block
        ),
        "simt.rows_load_start": Interface(
            lower_rows_load_start, effects=_rows_loaded, describe=_describe_rows
        ),
        "simt.rows_store_start": Interface(
            lower_rows_store_start, effects=_rows_stored, describe=_describe_rows
        ),
        "simt.keep_order": Interface(lower_keep_order),
        "simt.commit": Interface(lower_commit),
        "simt.wait": Interface(lower_wait, describe=_describe_wait),
    }
)
