"""What the stages of pipelining decide, as attributes of the operations concerned."""

from __future__ import annotations

from typing import Final

from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import DescriptorLoad, Load
from tilewright.simt.layouts.linear_layout import SharedLayout

#: Of a load: the copy mechanism that brings its elements to shared memory ahead of time.
BY: Final = "simt.by"
#: Of such a load: the layout that they have there.
SHARED: Final = "simt.shared"
#: Of a load that is copied by groups: how many elements one copy moves.
WIDTH: Final = "simt.width"
#: Of a loop: how many slots the ring of each of its loads has; loops without it stay as they are.
SLOTS: Final = "simt.slots"
#: Of a loop whose loads go through registers: how many iterations ahead they start.
DISTANCE: Final = "simt.distance"
#: Of such a loop: its loads are in flight one after the other, each while a part of the matmuls is
#: computed.
IN_TURN: Final = "simt.in_turn"
#: Of a matmul of such a loop: the positions of operands, made before the loop, that are read from
#: shared memory and not held in registers.
KEPT: Final = "simt.kept"
#: Of a loop: in which form it is written out, one of ``FORMS`` of
#: :mod:`tilewright.simt.pipeline.expand`.
FORM: Final = "simt.form"
#: Of a matmul: it is computed step by step along K, the fragments of its first step loaded in the
#: iteration before (``early``) or in its own (``late``); or all fragments are loaded first, by one
#: half of the warps while the other half multiplies (``alternating``).
STEPS: Final = "simt.steps"
#: Of a matmul: it is waited for in the next iteration, with the first matmul of that one.
TRAILS: Final = "simt.trails"

EARLY, LATE, ALTERNATING = "early", "late", "alternating"

#: Forms beside those that are called like the way in which copies end: loads and arithmetic in
#: parts of their own; the same, and the halves of a chain of matmuls side by side.
PARTS: Final = "parts"
CHAIN: Final = "chain"


#: A load that may be copied ahead.
Ahead = Load | DescriptorLoad


def selected(loop: For) -> list[Ahead]:
    """The loads of a loop's body that are copied ahead, in order."""
    return [operation for operation in loop.body if isinstance(operation, Ahead) and BY in operation.attributes]


def shared_layout(load: Ahead) -> SharedLayout:
    """The layout in shared memory of a load that is copied ahead."""
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
