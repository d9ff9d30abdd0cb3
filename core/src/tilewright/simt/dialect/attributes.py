"""What the passes of the toolkit decide, as the IR holds it: nothing is kept beside the module, so
that each stage can be printed and read back.

A tile's layout is on its value. A function's attributes say how many warps run it and how much
shared memory it takes; an operation's say where its memory begins and what is to be said of it.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.simt.dialect.ops.warp_specialize import Part
from tilewright.simt.layouts.linear_layout import LinearLayout

#: Of a function: warps that run it, those of all parts where it has parts; and bytes of shared
#: memory of a program.
WARPS: Final = "warps"
SHARED_BYTES: Final = "shared_bytes"
#: Of a function: programs that are to share a multiprocessor; without it there may be any number.
PROGRAMS: Final = "programs"
#: Of a function: CTAs that run a program together, each of :data:`WARPS` warps; without it, one.
CLUSTER: Final = "cluster"
#: Of a load of a tile: all blocks of a cluster need all of it.
WHOLE: Final = "simt.whole"
#: Of an operation: where its scratch space, or what it allocates, begins in shared memory, in
#: bytes.
OFFSET: Final = "simt.offset"
#: Of a matmul of a chain whose accumulator is in tensor memory: which of its loop's matmuls it is.
#: All copies of one have one place for their sums.
SUMS: Final = "simt.sums"
#: Of an ``if``: its first region hardly ever runs, so that registers which only that region lacks
#: may be spilled.
COLD: Final = "simt.cold"
#: Of an operation: what left the fast path there, and why.
NOTES: Final = "simt.notes"


def layout_of(value: Value) -> LinearLayout:
    """The layout of a tile that has one."""
    layout = value.layout
    assert isinstance(layout, LinearLayout), f"{value} has no layout"
    return layout


def function_of(operation: Operation | Region) -> Function:
    """The function that an operation or region is in."""
    place: Operation | Region | Function | None = operation
    while not isinstance(place, Function):
        assert place is not None
        place = place.parent if isinstance(place, Operation) else place.owner
    return place


def is_made_in(value: Value, operation: Operation) -> bool:
    """Return whether a value is made in the regions of an operation, or is an argument there."""
    owner = value.owner
    maker = owner.parent if isinstance(owner, Operation) else owner
    while isinstance(maker, Region) and isinstance(maker.owner, Operation):
        if maker.owner is operation:
            return True
        maker = maker.owner.parent
    return False


def part_of(operation: Operation) -> Part | None:
    """The part of a partition that an operation is in; None outside of partitions."""
    return next((outer for outer in operation.ancestors() if isinstance(outer, Part)), None)


def warps_of(operation: Operation) -> int:
    """The warps that run an operation."""
    part = part_of(operation)
    return part.warps if part is not None else int(function_of(operation).attributes[WARPS])


def offset_of(operation: Operation) -> int:
    """Where the shared memory of an operation begins, in bytes."""
    return int(operation.attributes[OFFSET])


def note(operation: Operation, text: str) -> None:
    """Say what left the fast path at an operation, and why."""
    told = operation.attributes.get(NOTES, ())
    if text not in told:
        operation.attributes[NOTES] = (*told, text)


def notes_of(function: Function) -> list[tuple[Operation, str]]:
    """What left the fast path in a function, in order."""
    return [(operation, text) for operation in function.walk() for text in operation.attributes.get(NOTES, ())]
