"""Lowering of TMA loads that no pipelined loop contains.

    %x = descriptor_load %d, %i, %j

becomes a buffer, an mbarrier that counts its bytes, and a load from shared memory:

    %slot = ...                                                     (where it is loaded)
    simt.expect %full, %n {bytes = ...}
    simt.block_load_start %slot, %d, [%i, %j], %full, %n
    simt.await %full, %n, %phase
    %x = simt.load %slot (matmuls read the slot themselves where their plan can)

Each load has its own mbarrier, with a phase whose parity flips at each execution; all control flow
around the load carries the parity. A second load cannot start before all threads have observed the
end of the first one: their reads of the slot come in between, and then a barrier. If slots share
memory (:mod:`tilewright.simt.passes.allocate_shared`), a proxy fence stands before that barrier
(:mod:`tilewright.simt.passes.insert_membar`); without it the second copy could overtake the reads.

Gathers of rows are lowered in the same way (``simt.rows_load_start``), with the row indices in a
slot of their own (:mod:`.lower_tma_rows`).

Stores and reductions go in the other direction (:mod:`.lower_tma_stores`). Device-side tensor maps
are lowered last (:mod:`.device_tensor_maps`).
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.memory import DescriptorGather, DescriptorLoad, DescriptorScatter
from tilewright.ir.types import I1, I32, TileType
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.dce import dce_function
from tilewright.simt.analysis.pipelined_loads import wished_layout
from tilewright.simt.analysis.shared_views import views_of
from tilewright.simt.dialect.attributes import part_of
from tilewright.simt.dialect.loop_carried import operations_of_program
from tilewright.simt.dialect.ops.buffers import Convert
from tilewright.simt.dialect.ops.dot import Multiplication
from tilewright.simt.dialect.types import BarriersType, SlotType
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.passes.ssa_repair import thread_values
from tilewright.simt.passes.tma.device_tensor_maps import write_device_descriptors
from tilewright.simt.passes.tma.lower_tma_rows import numbers_and_column, write_row_stores
from tilewright.simt.passes.tma.lower_tma_stores import write_block_stores
from tilewright.simt.target.copy_mechanism import BLOCK_STORES
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget
from tilewright.simt.target.tma_mechanism import (
    block_buffer,
    block_mechanism,
    block_slot,
    create,
    no_layout,
)

_Load = DescriptorLoad | DescriptorGather


def write_block_copies(function: Function, target: SimtTarget) -> None:
    """Lower loads and stores through descriptors.

    Raises:
        LoweringError: the target keeps a descriptor that it has no mechanism for, or whose block
            its mechanisms cannot lay out.
    """
    operations = operations_of_program(function.body)
    loads = [operation for operation in operations if isinstance(operation, _Load)]
    if loads:
        start = Builder(function.body, function.body.first, loads[0].location)
        full = create(start, "simt.barriers", result=BarriersType(len(loads)), count=1).results[0]
        for number, load in enumerate(loads):
            _write_load(load, full, number, function, target)
    write_row_stores(
        [operation for operation in operations if isinstance(operation, DescriptorScatter)],
        function,
        target,
    )
    write_block_stores(
        [operation for operation in operations if isinstance(operation, BLOCK_STORES)],
        function,
        target,
    )
    write_device_descriptors(function, target)
    if loads:
        dce_function(function)


def _write_load(
    load: _Load, full: Value, number: int, function: Function, target: SimtTarget
) -> None:
    part = part_of(load)
    region = part.regions[0] if part is not None else function.body
    # partitions may read scalars of the function
    false = Builder(function.body, function.body.first, load.location).constant(
        value=False, result=I1
    )

    def write(place: _Load, values: tuple[Value, ...]) -> list[Value]:
        (phase,) = values
        builder = Builder.at(place)
        slot = _start_load(builder, place, full, number, phase, target)
        read_slot(builder, place, slot, target)
        flipped: Value = builder.xor(phase, builder.constant(value=True, result=I1))
        place.erase()
        return [flipped]

    thread_values(region, [load], [false], write)


def _start_load(
    builder: Builder, load: _Load, full: Value, number: int, phase: Value, target: SimtTarget
) -> Value:
    """Issue a TMA load or gather, and wait for it; return its slot."""
    (result,) = load.results
    assert isinstance(result.type, TileType)
    mechanism = block_mechanism(load, target)
    shared = wished_layout(load, mechanism, target)
    if shared is None:
        raise no_layout(load, mechanism, target)
    slot = block_slot(builder, block_buffer(builder, 1, result.type, shared, mechanism), 0)
    which = builder.constant(value=number, result=I32)
    create(
        builder,
        "simt.expect",
        [full],
        [which],
        bytes=result.type.numel * storage_size(result.type.element),
    )
    if isinstance(load, DescriptorGather):
        create(
            builder,
            "simt.rows_load_start",
            [slot],
            [load.descriptor],
            *numbers_and_column(builder, load),
            [full],
            [which],
            by=mechanism.name,
        )
    else:
        create(
            builder,
            "simt.block_load_start",
            [slot],
            [load.descriptor],
            load.offsets,
            [full],
            [which],
            by=mechanism.name,
        )
    create(builder, "simt.await", [full], [which], [phase])
    return slot


def read_slot(builder: Builder, load: _Load, slot: Value, target: SimtTarget) -> None:
    """Replace the result of a load in its users.

    Matmuls in the load's region, or nested in it, read the slot itself if their plan can; all other
    users read a tile.
    """
    (result,) = load.results
    assert isinstance(slot.type, SlotType)
    for view in list(views_of(result)):
        seen = _seen(slot.type, view.value.type, view.shared(slot.type.layout))
        readers = [
            view.value,
            *(user.results[0] for user in view.value.uses if isinstance(user, Convert)),
        ]
        for matmul in [
            user
            for reader in readers
            for user in reader.uses
            if isinstance(user, Multiplication) and _is_inside(user, load.parent)
        ]:
            plan = plan_of(matmul, target)
            for position, operand in enumerate((matmul.a, matmul.b)):
                if operand in readers and plan.can_read(position, seen.layout):
                    place = (
                        slot
                        if seen is slot.type
                        else create(Builder.at(matmul), "simt.view", [slot], result=seen).results[0]
                    )
                    matmul.set_operand(position, place)
    tile = create(builder, "simt.load", [slot]).results[0]
    tile.layout = result.layout
    result.replace_all_uses(tile)


def _is_inside(operation: Operation, region: Region | None) -> bool:
    return operation.parent is region or any(
        outer.parent is region for outer in operation.ancestors()
    )


def _seen(slot: SlotType, tile: Any, shared: SharedLayout) -> SlotType:
    """Return the type of a slot as seen through a view of its tile."""
    assert isinstance(tile, TileType)
    return SlotType(tile.shape, slot.element, shared)
