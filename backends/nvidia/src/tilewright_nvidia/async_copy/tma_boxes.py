"""Boxes of TMA: the decomposition of a tile in shared memory into copies of one shape."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final

from tilewright.ir.types import Type
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.layouts.linear_layout import SharedLayout, row_major
from tilewright.simt.target.copy_mechanism import multicast_axis
from tilewright_nvidia.async_copy.swizzle_atoms import (
    SPANS,
    SwizzleAtoms,
    swizzle_atoms_of,
    swizzled_layout,
)
from tilewright_nvidia.async_copy.tensor_maps import ALIGNMENT, MOST_AXES, MOST_BOX

#: Alignment of a buffer's stages, sufficient for every swizzle.
SLOT_ALIGNMENT: Final = 1024
#: Rows of a gather4 or scatter4 instruction, and the alignment in bytes of their shared memory.
ROWS_AT_ONCE: Final = 4
_ROWS_ALIGNMENT: Final = 128


@dataclass(frozen=True, slots=True)
class Boxes:
    """The decomposition of a tile into boxes of one shape.

    Attributes:
        shape: extents of the map's box.
        span: swizzle width in bytes; 0 without a swizzle.
        starts: (offset in shared memory in bytes, coordinates in the tile) of each box.
    """

    shape: tuple[int, ...]
    span: int
    starts: tuple[tuple[int, tuple[int, ...]], ...]


def boxes(shared: SharedLayout, element: Type, parts: int = 1) -> Boxes | None:
    """Decompose a tile, or the first of ``parts`` equal multicast parts of it, into boxes.

    None if TMA cannot write the shared layout, or if the parts do not have the same layout.
    """
    shape, size = shared.shape, storage_size(element)
    atoms = swizzle_atoms_of(shared, size)
    if (
        atoms is None
        or atoms.inner != len(shape) - 1
        or len(shape) > MOST_AXES
        or shape[-1] * size % ALIGNMENT
    ):
        return None
    # vectors have no swizzle, for which a stage of a buffer would have to be aligned
    is_vector = shape[-1] == math.prod(shape)
    if math.prod(shape) * size % (_ROWS_ALIGNMENT if is_vector else SLOT_ALIGNMENT):
        return None
    if parts > 1:
        cut = multicast_axis(shape)
        if (
            cut == len(shape) - 1
            or shape[cut] % parts
            or part_bytes(shared, element, parts) is None
        ):
            return None
        shape = (*shape[:cut], shape[cut] // parts, *shape[cut + 1 :])
    box = [1] * len(shape)
    box[-1] = atoms.span // size or min(shape[-1], MOST_BOX)
    # a box is contiguous: an axis that is split leaves the outer axes an extent of 1
    whole = bool(atoms.span) or box[-1] == shape[-1]
    for axis in reversed(range(len(shape) - 1)):
        if whole:
            box[axis] = min(shape[axis], MOST_BOX)
            whole = box[axis] == shape[axis]
    points = itertools.product(
        *(range(0, extent, step) for extent, step in zip(shape, box, strict=True))
    )
    return Boxes(
        tuple(box),
        atoms.span,
        tuple((size * shared.offset(row_major(point, shared.shape)), point) for point in points),
    )


def part_bytes(shared: SharedLayout, element: Type, parts: int) -> int | None:
    """Return the distance in bytes between the multicast parts of a tile.

    None if it is not constant or if the parts' swizzles differ.
    """
    shape, cut = shared.shape, multicast_axis(shared.shape)

    def start(number: int) -> int:
        point = [0] * len(shape)
        point[cut] = number * shape[cut] // parts
        return shared.offset(row_major(tuple(point), shape)) * storage_size(element)

    step = start(1)
    return (
        step
        if step % SLOT_ALIGNMENT == 0 and all(start(n) == n * step for n in range(parts))
        else None
    )


def shares(shared: SharedLayout, element: Type, blocks: int) -> bool:
    """Return whether the CTAs of a cluster can multicast parts of a tile to each other."""
    return boxes(shared, element, blocks) is not None


def row_boxes(shared: SharedLayout, element: Type) -> Boxes | None:
    """Decompose a tile of gathered rows into boxes of one row, four per start.

    None if TMA cannot write the layout.
    """
    whole = boxes(shared, element)
    if whole is None or len(shared.shape) != 2 or shared.shape[0] % ROWS_AT_ONCE:
        return None
    (rows, columns), size = shared.shape, storage_size(element)
    width = whole.shape[-1]
    # without a swizzle, four rows are contiguous only if the box spans whole rows
    if (not whole.span and width != columns) or ROWS_AT_ONCE * width * size % _ROWS_ALIGNMENT:
        return None
    points = [
        (row, column) for row in range(0, rows, ROWS_AT_ONCE) for column in range(0, columns, width)
    ]
    # rows of a column of atoms are consecutive; the swizzle depends on the address in shared
    # memory, not on the row's index in the box
    starts = (
        (size * (shared.offset(row_major((0, column), shared.shape)) + row * width), (row, column))
        for row, column in points
    )
    return Boxes((1, width), whole.span, tuple(starts))


def can_fill(shared: SharedLayout, element: Type) -> bool:
    """Return whether TMA can write a tile of a shared layout."""
    return boxes(shared, element) is not None


def layouts(shape: tuple[int, ...], element: Type) -> list[SharedLayout]:
    """Return a tile's swizzled shared layouts that TMA can fill, the widest swizzle first.

    A swizzle of 32 bytes is only for tiles without a wider one: TMA writes one row of an atom at a
    time, whatever its width.
    """
    found = (
        swizzled_layout(shape, storage_size(element), SwizzleAtoms(len(shape) - 1, span))
        for span in SPANS
    )
    fitting = [layout for layout in found if layout is not None and can_fill(layout, element)]
    return fitting[:-1] if len(fitting) == len(SPANS) else fitting


def can_fill_rows(shared: SharedLayout, element: Type) -> bool:
    """Return whether TMA can write a tile of gathered rows of a shared layout."""
    return row_boxes(shared, element) is not None
