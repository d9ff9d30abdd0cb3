"""Attributes that hold the decisions of passes.

All state is in the module, so that each stage can be printed and read back. A tile's layout is
stored on its value. A function's attributes hold its number of warps and its bytes of shared
memory; an operation's attributes hold the offset of its shared memory and its remarks.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.simt.dialect.ops.warp_specialize import Part
from tilewright.simt.layouts.linear_layout import LinearLayout

#: Of a function: warps that run it, summed over its partitions if it has any; and bytes of shared
#: memory of a program.
WARPS: Final = "warps"
SHARED_BYTES: Final = "shared_bytes"
#: Of a function: required occupancy, in programs per SM; without it there may be any number.
PROGRAMS: Final = "programs"
#: Of a function: CTAs that run a program together, each of :data:`WARPS` warps; without it, one.
CLUSTER: Final = "cluster"
#: Of a load of a tile: all CTAs of a cluster need the whole tile.
WHOLE: Final = "simt.whole"
#: Of an operation: offset in shared memory of its scratch space, or of the memory it allocates, in
#: bytes.
OFFSET: Final = "simt.offset"
#: Of a back-to-back matmul with its accumulator in tensor memory: its index among its loop's.
#: All copies of one matmul share one accumulator.
ACCUMULATOR_INDEX: Final = "simt.accumulator_index"
#: Of an ``if``: its first region rarely runs, so that registers which only that region needs
#: may be spilled.
COLD: Final = "simt.cold"
#: Of an operation: its missed-optimization remarks.
NOTES: Final = "simt.notes"


def layout_of(value: Value) -> LinearLayout:
    """Return the layout of a tile that has one."""
    layout = value.layout
    assert isinstance(layout, LinearLayout), f"{value} has no layout"
    return layout


def function_of(operation: Operation | Region) -> Function:
    """Return the function that contains an operation or region."""
    place: Operation | Region | Function | None = operation
    while not isinstance(place, Function):
        assert place is not None
        place = place.parent if isinstance(place, Operation) else place.owner
    return place


def is_made_in(value: Value, operation: Operation) -> bool:
    """Return whether a value is defined in the regions of an operation."""
    owner = value.owner
    maker = owner.parent if isinstance(owner, Operation) else owner
    while isinstance(maker, Region) and isinstance(maker.owner, Operation):
        if maker.owner is operation:
            return True
        maker = maker.owner.parent
    return False


def part_of(operation: Operation) -> Part | None:
    """Return the warp-specialized partition that contains an operation, or None."""
    return next((outer for outer in operation.ancestors() if isinstance(outer, Part)), None)


def warps_of(operation: Operation) -> int:
    """Return the number of warps that run an operation."""
    part = part_of(operation)
    return part.warps if part is not None else int(function_of(operation).attributes[WARPS])


def offset_of(operation: Operation) -> int:
    """Return the offset of an operation's shared memory, in bytes."""
    return int(operation.attributes[OFFSET])


def note(operation: Operation, text: str) -> None:
    """Add a missed-optimization remark to an operation."""
    notes = operation.attributes.get(NOTES, ())
    if text not in notes:
        operation.attributes[NOTES] = (*notes, text)


def notes_of(function: Function) -> list[tuple[Operation, str]]:
    """Return the missed-optimization remarks of a function, in order."""
    return [
        (operation, text)
        for operation in function.walk()
        for text in operation.attributes.get(NOTES, ())
    ]
