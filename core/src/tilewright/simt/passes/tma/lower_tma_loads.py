"""Loads and stores through descriptors that are left to the machine's TMA copies, and that no
pipelined loop has taken:

    %x = descriptor_load %d, %i, %j

becomes a buffer, an mbarrier that counts its bytes, and a load from there,

    %slot = ...                                                     (where it is loaded)
    simt.expect %full, %n {bytes = ...}
    simt.block_load_start %slot, %d, [%i, %j], %full, %n
    simt.await %full, %n, %phase
    %x = simt.load %slot                                            (matmuls read the slot themselves where their plan can)

Each load has an mbarrier of its own, and a phase whose parity changes each time that it is
run: all that is around the load carries it. A second load cannot start before all threads have seen
the end of the first: what they read of its slot comes between, and a barrier after that. Slots may
share memory (:mod:`tilewright.simt.passes.allocate_shared`): then a proxy fence stands before that
barrier (:mod:`tilewright.simt.passes.insert_membar`), without which the second copy could overtake
the reads.

Rows that numbers name are loaded in the same way (``simt.rows_load_start``), from a slot of those
numbers (:mod:`.lower_tma_rows`).

Stores, and updates by an atomic for each element, go the other way (:mod:`.lower_tma_stores`); what
makes their descriptors is written out at last (:mod:`.device_tensor_maps`).
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
from tilewright.simt.target.tma_mechanism import block_buffer, block_mechanism, block_slot, create, no_layout

_Load = DescriptorLoad | DescriptorGather


def write_block_copies(function: Function, target: SimtTarget) -> None:
    """Write out what is loaded and stored through descriptors.

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
    write_row_stores([operation for operation in operations if isinstance(operation, DescriptorScatter)], function, target)
    write_block_stores([operation for operation in operations if isinstance(operation, BLOCK_STORES)], function, target)
    write_device_descriptors(function, target)
    if loads:
        dce_function(function)


def _write_load(load: _Load, full: Value, number: int, function: Function, target: SimtTarget) -> None:
    part = part_of(load)
    region = part.regions[0] if part is not None else function.body
    # a scalar of the function's may be read in a part
    false = Builder(function.body, function.body.first, load.location).constant(value=False, result=I1)

    def write(place: _Load, values: tuple[Value, ...]) -> list[Value]:
        (phase,) = values
        builder = Builder.at(place)
        slot = _start_load(builder, place, full, number, phase, target)
        _read(builder, place, slot, target)
        flipped: Value = builder.xor(phase, builder.constant(value=True, result=I1))
        place.erase()
        return [flipped]

    thread_values(region, [load], [false], write)


def _start_load(builder: Builder, load: _Load, full: Value, number: int, phase: Value, target: SimtTarget) -> Value:
    """Copy a block, or rows, and wait for it; its slot."""
    (result,) = load.results
    assert isinstance(result.type, TileType)
    mechanism = block_mechanism(load, target)
    shared = wished_layout(load, mechanism, target)
    if shared is None:
        raise no_layout(load, mechanism, target)
    slot = block_slot(builder, block_buffer(builder, 1, result.type, shared, mechanism), 0)
    which = builder.constant(value=number, result=I32)
    create(builder, "simt.expect", [full], [which], bytes=result.type.numel * storage_size(result.type.element))
    if isinstance(load, DescriptorGather):
        create(builder, "simt.rows_load_start", [slot], [load.descriptor], *numbers_and_column(builder, load), [full], [which], by=mechanism.name)
    else:
        create(builder, "simt.block_load_start", [slot], [load.descriptor], load.offsets, [full], [which], by=mechanism.name)
    create(builder, "simt.await", [full], [which], [phase])
    return slot


def _read(builder: Builder, load: _Load, slot: Value, target: SimtTarget) -> None:
    """Let the readers of a load have its slot: matmuls beside it, or in loops and branches beside
    it, the slot itself, others a tile."""
    (result,) = load.results
    assert isinstance(slot.type, SlotType)
    for view in list(views_of(result)):
        seen = _seen(slot.type, view.value.type, view.shared(slot.type.layout))
        readers = [view.value, *(user.results[0] for user in view.value.uses if user.name == "simt.convert")]
        for matmul in [user for reader in readers for user in reader.uses if isinstance(user, Multiplication) and _is_inside(user, load.parent)]:
            plan = plan_of(matmul, target)
            for position, operand in enumerate((matmul.a, matmul.b)):
                if operand in readers and plan.can_read(position, seen.layout):
                    place = slot if seen is slot.type else create(Builder.at(matmul), "simt.view", [slot], result=seen).results[0]
                    matmul.set_operand(position, place)
    tile = create(builder, "simt.load", [slot]).results[0]
    tile.layout = result.layout
    result.replace_all_uses(tile)


def _is_inside(operation: Operation, region: Region | None) -> bool:
    return operation.parent is region or any(outer.parent is region for outer in operation.ancestors())


def _seen(slot: SlotType, tile: Any, shared: SharedLayout) -> SlotType:
    """The type of a slot as a view of the tile in it is seen."""
    assert isinstance(tile, TileType)
    return SlotType(tile.shape, slot.element, shared)
