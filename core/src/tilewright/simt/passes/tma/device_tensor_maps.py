"""Lowering of device-side tensor maps.

    %d = make_descriptor %p, shape=[%m, %n], strides=[%s, %one]

becomes, if TMA copies read it, a tensor map in global memory of the program's own, which is
allocated at the beginning and freed at the end:

    %memory = simt.descriptors
    ...
    %d = simt.make_descriptor %memory, %slot, %p, shape=[%m, %n], strides=[%s, %one]
    simt.show_descriptor %d
    ...
    simt.free_descriptors %memory

Each ``make_descriptor`` has a fixed place in that memory. A loop overwrites it in each iteration,
and after the end other programs may reuse it: by then, no copy in flight may still read the
previous one. Loads with an immediate wait, and loops that wait for all of their copies, leave none
in flight. A partition that only issues copies waits for them
(:mod:`tilewright.simt.pipeline.partitions.warp_specialize`), and so does a program that stores
(:mod:`.lower_tma_stores`).
"""

from __future__ import annotations

from tilewright.errors import LoweringError
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Region, Value
from tilewright.ir.ops.memory import MakeDescriptor
from tilewright.ir.types import I32, U8, TileType
from tilewright.simt.dialect.attributes import part_of
from tilewright.simt.dialect.loop_carried import operations_of_program, terminator
from tilewright.simt.dialect.types import BufferType
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.target.simt_target import SimtTarget, required
from tilewright.simt.target.tma_mechanism import create


def write_device_descriptors(function: Function, target: SimtTarget) -> None:
    """Lower the descriptors that the kernel makes for TMA copies.

    Raises:
        LoweringError: one part of the program is to copy by what another one makes.
    """
    memory: dict[Region, Value] = {}
    for made in [
        operation
        for operation in operations_of_program(function.body)
        if isinstance(operation, MakeDescriptor)
    ]:
        (descriptor,) = made.results
        if not descriptor.uses:
            made.erase()
            continue
        part = part_of(made)
        if any(part_of(user) is not part for user in descriptor.uses):
            raise LoweringError(
                f"the descriptor made at {made.location} is read by copies that another part of "
                "the program starts"
            )
        region = part.regions[0] if part is not None else function.body
        if region not in memory:
            memory[region] = create(
                Builder(region, region.first, made.location), "simt.descriptors", result=I32
            ).results[0]
            create(Builder.at(terminator(region)), "simt.free_descriptors", [memory[region]])
        _write(made, memory[region], target)


def _write(made: MakeDescriptor, memory: Value, target: SimtTarget) -> None:
    builder = Builder.at(made)
    tma = required(target.tma, target, "TMA")
    size = required(tma.device_maps, target, "device-side tensor maps").bytes
    place = TileType((size,), U8)
    buffer = BufferType(1, place.shape, place.element, SharedLayout.row_major(place.shape))
    room = create(builder, "simt.buffer", result=buffer, alignment=size).results[0]
    slot = create(builder, "simt.slot", [room], [builder.constant(value=0, result=I32)]).results[0]
    groups = [memory], [slot], [made.base], made.shape, made.strides
    again = create(
        builder, "simt.make_descriptor", *groups, result=made.results[0].type, padding=made.padding
    )
    again.results[0].name = made.results[0].name
    create(builder, "simt.show_descriptor", [again.results[0]])
    made.results[0].replace_all_uses(again.results[0])
    made.erase()
