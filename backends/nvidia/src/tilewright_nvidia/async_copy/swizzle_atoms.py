"""Shared-memory layouts in swizzle atoms, which TMA writes and ``wgmma`` and ``tcgen05`` read.

Along the tile's *inner* axis, a column of swizzle atoms is one swizzle width (``span``) wide: 128,
64 or 32 bytes. It holds one such row for each element of the other axes, row by row, and columns of
atoms follow each other. Within a column the hardware permutes the 16-byte chunks of a row, with a
period of 1,024, 512 or 256 bytes. It xors address bits 4 to 6 (or 4 and 5, or 4 alone) with bits 7
to 9 (or 7 and 8, or 7). A column must therefore start at a multiple of the period.

A tile without swizzle is row-major; TMA writes such tiles too.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Final

from tilewright.simt.layouts.linear_layout import SharedLayout, axis_shifts, log2

#: Swizzle widths in bytes, in order of preference: wider ones have fewer bank conflicts.
SPANS: Final = (128, 64, 32)
_CHUNK: Final = 16
_LINE: Final = 128
#: The maximum number of rows after which a swizzle repeats.
_ROWS: Final = 8


@dataclass(frozen=True, slots=True)
class SwizzleAtoms:
    """A tile's arrangement in swizzle atoms.

    Attributes:
        inner: the axis along which an atom is ``span`` bytes wide.
        span: swizzle width, 128, 64 or 32 bytes; 0 for a row-major tile.
    """

    inner: int
    span: int

    @property
    def period(self) -> int:
        """Bytes after which the swizzle repeats, and to which columns of atoms are aligned."""
        return _ROWS * self.span or _CHUNK


@dataclass(frozen=True, slots=True)
class MatrixOffsets:
    """The fields of an operand's matrix descriptor, without its address.

    See "Matrix descriptor" in the PTX ISA.

    Attributes:
        leading, stride: the byte offsets.
        span: swizzle width in bytes.
        transposed: whether the operand is transposed: its inner axis is not K.
    """

    leading: int
    stride: int
    span: int
    transposed: bool

    @property
    def bits(self) -> int:
        """The offsets at their positions in a descriptor."""
        return self.leading // _CHUNK << 16 | self.stride // _CHUNK << 32


def matrix_offsets(shared: SharedLayout, size: int, k_axis: int) -> MatrixOffsets | None:
    """Return an operand's descriptor fields, with K as axis ``k_axis``; None if not swizzled."""
    atoms = swizzle_atoms_of(shared, size)
    if atoms is None or not atoms.span:
        return None
    if atoms.inner == k_axis:
        # an instruction never reads beyond an atom's row, so the hardware ignores the leading
        # offset
        return MatrixOffsets(_CHUNK, atoms.period, atoms.span, transposed=False)
    return MatrixOffsets(
        shared.shape[k_axis] * atoms.span, atoms.period, atoms.span, transposed=True
    )


@functools.lru_cache(maxsize=1024)
def swizzled_layout(shape: tuple[int, ...], size: int, atoms: SwizzleAtoms) -> SharedLayout | None:
    """Return a tile's shared layout in swizzle atoms; None if the tile is too small for them.

    ``size`` is the number of bytes of an element.
    """
    if not atoms.span:
        return SharedLayout.row_major(shape)
    inner, across = atoms.inner % len(shape), atoms.span // size
    rows = math.prod(shape) // shape[inner]
    if shape[inner] < across or rows < _ROWS or not across:
        return None
    shifts = axis_shifts(shape)
    images = [0] * log2(math.prod(shape))
    for bit in range(log2(shape[inner])):
        # a bit of the offset in an atom's row, or of the column's number
        images[shifts[inner] + bit] = 1 << bit if bit < log2(across) else 1 << bit + log2(rows)
    row = 0
    for axis in reversed(range(len(shape))):
        if axis == inner:
            continue
        for bit in range(log2(shape[axis])):
            place = across << row
            images[shifts[axis] + bit] = place | _turn(place * size, atoms.span) // size
            row += 1
    return SharedLayout(shape, tuple(images))


def _turn(offset: int, span: int) -> int:
    """Return the offset, in bytes, that the hardware's swizzle xors into the offset of a row."""
    chunks = span // _CHUNK - 1
    return (offset // _LINE & chunks) * _CHUNK


@functools.lru_cache(maxsize=1024)
def swizzle_atoms_of(shared: SharedLayout, size: int) -> SwizzleAtoms | None:
    """Return the swizzle atoms of a shared layout, for elements of ``size`` bytes.

    None if the layout is neither swizzled nor row-major.
    """
    for inner in reversed(range(len(shared.shape))):
        for span in SPANS:
            atoms = SwizzleAtoms(inner, span)
            if swizzled_layout(shared.shape, size, atoms) == shared:
                return atoms
    return (
        SwizzleAtoms(len(shared.shape) - 1, 0)
        if shared == SharedLayout.row_major(shared.shape)
        else None
    )


def widest_swizzle_atoms(shape: tuple[int, ...], size: int, inner: int) -> SharedLayout | None:
    """Return the layout with the widest swizzle that fits along an axis; None if none fits."""
    found = (swizzled_layout(shape, size, SwizzleAtoms(inner, span)) for span in SPANS)
    return next((layout for layout in found if layout is not None), None)
