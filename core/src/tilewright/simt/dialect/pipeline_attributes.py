"""Attributes that hold the decisions of software pipelining."""

from __future__ import annotations

from typing import Final

from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import DescriptorLoad, Load
from tilewright.simt.layouts.linear_layout import SharedLayout

#: Of a load: the copy mechanism that prefetches its tile to shared memory.
BY: Final = "simt.by"
#: Of such a load: the layout of the tile in shared memory.
SHARED: Final = "simt.shared"
#: Of a load copied by commit groups (cp.async): the number of elements per copy.
WIDTH: Final = "simt.width"
#: Of a loop: the number of slots (stages) of each of its loads; loops without it are not pipelined.
SLOTS: Final = "simt.slots"
#: Of a loop whose loads go through registers: the prefetch distance, in iterations.
DISTANCE: Final = "simt.distance"
#: Of such a loop: its loads are serialized, each in flight while a part of the matmuls is
#: computed.
IN_TURN: Final = "simt.in_turn"
#: Of a matmul of such a loop: the indices of loop-invariant operands that are read from
#: shared memory instead of registers.
KEPT: Final = "simt.kept"
#: Of a loop: the form of its expansion: a kind of :mod:`tilewright.simt.pipeline.completion`, or a
#: key of ``PARTITIONS`` of :mod:`tilewright.simt.pipeline.expand`.
FORM: Final = "simt.form"
#: Of a matmul: it is computed in K steps, with the fragments of the first step prefetched in the
#: iteration before (``early``) or in its own (``late``); or all fragments are loaded first, by one
#: half of the warps while the other half multiplies (``alternating``).
STEPS: Final = "simt.steps"
#: Of a matmul: its wait is deferred to the first matmul of the next iteration.
DEFERRED_WAIT: Final = "simt.deferred_wait"
#: Of a matmul in a loop: it is in flight until the next iteration has started its own, so that what
#: threads stage for it in each iteration alternates between two slots.
ALTERNATES: Final = "simt.alternates"

#: Of a load around warp-specialized loops: the number of slots that the producer fills for it.
TILE_SLOTS: Final = "simt.tile_slots"

EARLY, LATE, ALTERNATING = "early", "late", "alternating"

#: Forms besides the ones named after the completion of copies: loads and arithmetic in
#: warp-specialized partitions; the same, with back-to-back matmuls in software-pipelined halves.
PARTS: Final = "parts"
CHAIN: Final = "chain"


#: Load that may be prefetched.
Ahead = Load | DescriptorLoad


def selected(loop: For) -> list[Ahead]:
    """Prefetched loads of a loop's body, in order."""
    return [
        operation
        for operation in loop.body
        if isinstance(operation, Ahead) and BY in operation.attributes
    ]


def shared_layout(load: Ahead) -> SharedLayout:
    """Return the shared layout of a prefetched load."""
    layout = load.attributes[SHARED]
    assert isinstance(layout, SharedLayout)
    return layout


def forget(loop: For) -> None:
    """Leave a loop as it is."""
    for load in selected(loop):
        deselect(load)


def deselect(load: Ahead) -> None:
    """Leave a load where it is."""
    for name in (BY, SHARED, WIDTH):
        load.attributes.pop(name, None)
