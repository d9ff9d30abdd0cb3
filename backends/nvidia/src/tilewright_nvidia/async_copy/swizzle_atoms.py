"""Shared-memory layouts in swizzle atoms, which TMA writes and ``wgmma`` and ``tcgen05`` read.

Along the tile's *inner* axis a slab has ``span`` bytes: 128, 64 or 32. It holds one row of so many bytes for each element of the other axes, in order, row by
row; slabs follow each other. Within a slab the hardware exchanges the 16-byte chunks of a row by the number of the row, over a period of 8 rows of 128
bytes (1,024 bytes), 512 or 256: bits 4 to 6 of an address, or 4 and 5, or 4 alone, by exclusive or with bits 7 to 9, 7 and 8, or 7. So a slab begins at
a multiple of its period.

A tile without slabs lies row-major and is not swizzled: the copy engine writes such tiles too.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Final

from tilewright.simt.layouts.linear_layout import SharedLayout, axis_shifts, log2

#: Bytes of a row of a slab, those preferred first: the wider, the fewer bank conflicts.
SPANS: Final = (128, 64, 32)
_CHUNK: Final = 16
_LINE: Final = 128
#: Rows after which a swizzle repeats, at the most.
_ROWS: Final = 8


@dataclass(frozen=True, slots=True)
class SwizzleAtoms:
    """How a tile lies in shared memory.

    Attributes:
        inner: the axis along which slabs have ``span`` bytes.
        span: 128, 64 or 32; 0 for a tile that lies row-major.
    """

    inner: int
    span: int

    @property
    def period(self) -> int:
        """Bytes after which the swizzle repeats, of which slabs' addresses must be multiples."""
        return _ROWS * self.span or _CHUNK


@dataclass(frozen=True, slots=True)
class MatrixOffsets:
    """What matrix instructions are told of an operand in slabs but for its address (PTX ISA, "Matrix descriptor").

    Attributes:
        leading, stride: the byte offsets.
        span: bytes of a slab's row.
        turned: whether the inner axis is not the one that is summed over.
    """

    leading: int
    stride: int
    span: int
    turned: bool

    @property
    def bits(self) -> int:
        """The offsets, where descriptors have them."""
        return self.leading // _CHUNK << 16 | self.stride // _CHUNK << 32


def matrix_offsets(shared: SharedLayout, size: int, k_axis: int) -> MatrixOffsets | None:
    """Those of an operand whose axis ``k_axis`` the product sums over; None where its layout is not one in slabs."""
    slabs = swizzle_atoms_of(shared, size)
    if slabs is None or not slabs.span:
        return None
    if slabs.inner == k_axis:
        # one instruction never reads beyond a slab, and the leading offset is not looked at
        return MatrixOffsets(_CHUNK, slabs.period, slabs.span, turned=False)
    return MatrixOffsets(shared.shape[k_axis] * slabs.span, slabs.period, slabs.span, turned=True)


@functools.lru_cache(maxsize=1024)
def swizzled_layout(shape: tuple[int, ...], size: int, slabs: SwizzleAtoms) -> SharedLayout | None:
    """The shared layout of a tile in slabs of elements of ``size`` bytes; None where the tile is too small for them."""
    if not slabs.span:
        return SharedLayout.row_major(shape)
    inner, across = slabs.inner % len(shape), slabs.span // size
    rows = math.prod(shape) // shape[inner]
    if shape[inner] < across or rows < _ROWS or not across:
        return None
    shifts = axis_shifts(shape)
    images = [0] * log2(math.prod(shape))
    for bit in range(log2(shape[inner])):
        # a bit within the slab's row, or of the slab's number
        images[shifts[inner] + bit] = 1 << bit if bit < log2(across) else 1 << bit + log2(rows)
    row = 0
    for axis in reversed(range(len(shape))):
        if axis == inner:
            continue
        for bit in range(log2(shape[axis])):
            place = across << row
            images[shifts[axis] + bit] = place | _turn(place * size, slabs.span) // size
            row += 1
    return SharedLayout(shape, tuple(images))


def _turn(offset: int, span: int) -> int:
    """What the hardware's swizzle adds to the offset, in bytes, of a row."""
    chunks = span // _CHUNK - 1
    return (offset // _LINE & chunks) * _CHUNK


@functools.lru_cache(maxsize=1024)
def swizzle_atoms_of(shared: SharedLayout, size: int) -> SwizzleAtoms | None:
    """How the tile of a shared layout lies, for elements of ``size`` bytes; None where it is in no slabs and not row-major."""
    for inner in reversed(range(len(shared.shape))):
        for span in SPANS:
            slabs = SwizzleAtoms(inner, span)
            if swizzled_layout(shared.shape, size, slabs) == shared:
                return slabs
    return SwizzleAtoms(len(shared.shape) - 1, 0) if shared == SharedLayout.row_major(shared.shape) else None


def widest_swizzle_atoms(shape: tuple[int, ...], size: int, inner: int) -> SharedLayout | None:
    """The layout in the widest slabs that fit along an axis."""
    found = (swizzled_layout(shape, size, SwizzleAtoms(inner, span)) for span in SPANS)
    return next((layout for layout in found if layout is not None), None)
