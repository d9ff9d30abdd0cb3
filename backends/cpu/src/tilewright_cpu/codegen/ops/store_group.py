"""Groups of stores: one loop nest stores several tiles that are computed from the same loads.

Each strip is loaded once and stays in registers for all stores. Where a strip that is stored may
lie in a later one that is read, or that an earlier store of the program writes, the stores have
loop nests of their own; that is found when the kernel runs (see :mod:`.alias_check`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Value
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.types import PointerType, TileType, shape_of
from tilewright.llvm.emission.registers import storage_size
from tilewright_cpu.codegen.analysis.strides import stride_along
from tilewright_cpu.codegen.context import Context
from tilewright_cpu.codegen.loops.materialize import materialize, settle
from tilewright_cpu.codegen.ops.alias_check import is_comparable, may_meet
from tilewright_cpu.codegen.ops.memory import (
    before_write,
    is_in_place,
    lower_store,
    plan_stores,
    reads_by_strips,
    write_stores,
)
from tilewright_cpu.codegen.sanitizer.bounds import is_checked


def lower_store_group(context: Context, stores: Sequence[Store]) -> None:
    """Lower stores that :func:`~.analysis.store_groups.store_groups` found, at the last of them."""
    if not _is_one_nest(context, stores):
        for number, store in enumerate(stores):
            context.operation = store
            before_write(context, store, stores[number + 1 :])
            lower_store(context, store)
        return
    pairs = _pairs_to_compare(context, stores)
    for store in stores:
        for operand in store.operands:
            settle(context, operand)
    context.compared = []
    plan, stopping = plan_stores(context, stores)
    writer = context.writer
    overlap = "false"
    with context.nest():
        for earlier, later in pairs:
            text = may_meet(context, earlier, later)
            overlap = text if overlap == "false" else writer.emit(f"or i1 {overlap}, {text}")
    if overlap == "false":
        write_stores(context, stores, plan, stopping)
        return
    together, apart, done = (
        writer.new_block(name) for name in ("together", "overlapping", "stored")
    )
    writer.branch_if(writer.emit(f"xor i1 {overlap}, true"), together, apart, likely=True)
    writer.place(apart)
    with context.on_one_way():
        _store_apart(context, stores)
    writer.branch(done)
    writer.place(together)
    write_stores(context, stores, plan, stopping)
    writer.branch(done)
    writer.place(done)


def _is_one_nest(context: Context, stores: Sequence[Store]) -> bool:
    """Return whether all stores have contiguous elements along one axis, and can be compared."""
    if any(store in context.stored_in_loops or is_checked(context, store) for store in stores):
        return False
    shape = shape_of(stores[0].pointer.type)
    return all(is_comparable(context, store.pointer) for store in stores) and any(
        all(_is_contiguous(context, store.pointer, axis) for store in stores)
        for axis, extent in enumerate(shape)
        if extent > 1
    )


def _is_contiguous(context: Context, pointer: Value, axis: int) -> bool:
    assert isinstance(pointer.type, TileType) and isinstance(pointer.type.element, PointerType)
    return stride_along(context, pointer, axis) == storage_size(pointer.type.element.pointee)


def _pairs_to_compare(context: Context, stores: Sequence[Store]) -> list[tuple[Value, Value]]:
    """Find pointers of loads and stores with those of stores that must not be in their way.

    What cannot be compared, or is read later, is put into memory.
    """
    group_end = context.analysis.end[stores[-1]]
    pairs: dict[tuple[Value, Value], None] = {}
    for value, load in list(context.pending.items()):
        last = context.analysis.last_use.get(value, -1)
        if value in context.buffers or last < context.position:
            del context.pending[value]
            continue
        others = [store for store in stores if not is_in_place(context, store, value)]
        if not others:
            continue
        assert isinstance(load, Load)
        pointer = load.pointer
        if (
            last > group_end
            or shape_of(pointer.type) != shape_of(stores[0].pointer.type)
            or not is_comparable(context, pointer)
            or not all(reads_by_strips(context, store, value) for store in stores)
        ):
            materialize(context, value)
            continue
        pairs.update(
            {(context.resolve(pointer), context.resolve(store.pointer)): None for store in others}
        )
    for number, store in enumerate(stores):
        for later in stores[number + 1 :]:
            pair = context.resolve(store.pointer), context.resolve(later.pointer)
            if pair[0] is not pair[1]:
                pairs[pair] = None
    return list(pairs)


def _store_apart(context: Context, stores: Sequence[Store]) -> None:
    """Write a loop nest for each store, in little code: they are seldom needed."""
    lines, mark = context.lines, context.writer.mark
    if lines is not None:
        context.lines, context.writer.mark = None, lines.generated
    for value in list(context.pending):
        if value not in context.buffers:
            materialize(context, value)
    for store in stores:
        plan, stopping = plan_stores(context, [store])
        plan.unroll = 1
        if context.state.hardware.can("mask"):
            plan.without_versions()
        write_stores(context, [store], plan, stopping)
    context.lines, context.writer.mark = lines, mark
