"""Descriptors that the kernel makes, and the machine copies by:

    %d = make_descriptor %p, shape=[%m, %n], strides=[%s, %one]

becomes, where TMA copies read it, a descriptor in memory of the program's own, which is asked for
at the beginning and given back at the end,

    %memory = simt.descriptors
    ...
    %d = simt.make_descriptor %memory, %slot, %p, shape=[%m, %n], strides=[%s, %one]
    simt.show_descriptor %d
    ...
    simt.free_descriptors %memory

Each operation that makes one has a place in that memory. In a loop it makes another one there, and
at the end others may have the place: no copy may be under way then that still reads the one before.
Loads that are waited for where they stand, and loops that wait for all that they started, leave
none; the part of a program that only starts them waits
(:mod:`tilewright.simt.pipeline.warp_specialize`), and so does one that stores
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
from tilewright.simt.target.simt_target import SimtTarget
from tilewright.simt.target.tma_mechanism import create


def write_device_descriptors(function: Function, target: SimtTarget) -> None:
    """Write out how descriptors are made that TMA copies read.

    Raises:
        LoweringError: one part of the program is to copy by what another one makes.
    """
    memory: dict[Region, Value] = {}
    for made in [operation for operation in operations_of_program(function.body) if isinstance(operation, MakeDescriptor)]:
        (descriptor,) = made.results
        if not descriptor.uses:
            made.erase()
            continue
        part = part_of(made)
        if any(part_of(user) is not part for user in descriptor.uses):
            raise LoweringError(f"the descriptor made at {made.location} is read by copies that another part of the program starts")
        region = part.regions[0] if part is not None else function.body
        if region not in memory:
            memory[region] = create(Builder(region, region.first, made.location), "simt.descriptors", result=I32).results[0]
            create(Builder.at(terminator(region)), "simt.free_descriptors", [memory[region]])
        _write(made, memory[region], target)


def _write(made: MakeDescriptor, memory: Value, target: SimtTarget) -> None:
    builder = Builder.at(made)
    place = TileType((target.descriptor_bytes,), U8)
    buffer = BufferType(1, place.shape, place.element, SharedLayout.row_major(place.shape))
    room = create(builder, "simt.buffer", result=buffer, alignment=target.descriptor_bytes).results[0]
    slot = create(builder, "simt.slot", [room], [builder.constant(value=0, result=I32)]).results[0]
    groups = [memory], [slot], [made.base], made.shape, made.strides
    again = create(builder, "simt.make_descriptor", *groups, result=made.results[0].type, padding=made.padding)
    again.results[0].name = made.results[0].name
    create(builder, "simt.show_descriptor", [again.results[0]])
    made.results[0].replace_all_uses(again.results[0])
    made.erase()
