"""Tiles of swizzle atoms against the swizzles of TMA and of matrix descriptors, as addresses."""

from __future__ import annotations

import itertools
import math

import pytest
from swizzled_addresses import exchanged

from tilewright.ir.types import BF16, F8E5M2, F16, F32, F64, I8
from tilewright.simt.layouts.linear_layout import SharedLayout, coordinates, row_major
from tilewright_nvidia.async_copy.swizzle_atoms import (
    SPANS,
    SwizzleAtoms,
    swizzle_atoms_of,
    swizzled_layout,
    widest_swizzle_atoms,
)
from tilewright_nvidia.async_copy.tma_boxes import boxes


@pytest.mark.each_value
@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("shape", "inner"), [((64, 256), 1), ((256, 16), 0), ((2, 8, 128), 2), ((8, 128, 4), 1)]
)
def test_slabs_are_rows_in_order_with_chunks_exchanged(
    shape: tuple[int, ...], inner: int, size: int, span: int
) -> None:
    found = swizzled_layout(shape, size, SwizzleAtoms(inner, span))
    assert found is not None
    across, rows = span // size, math.prod(shape) // shape[inner]
    others = [extent for axis, extent in enumerate(shape) if axis != inner]
    for element in range(math.prod(shape)):
        point = coordinates(element, shape)
        row = row_major([at for axis, at in enumerate(point) if axis != inner], tuple(others))
        slab, column = divmod(point[inner], across)
        assert size * found.offset(element) == exchanged(
            (slab * rows + row) * span + column * size, span
        )
    assert swizzle_atoms_of(found, size) == SwizzleAtoms(inner, span)


def test_what_is_in_no_slabs_is_told() -> None:
    assert swizzle_atoms_of(SharedLayout.row_major((64, 64)), 2) == SwizzleAtoms(1, 0)
    assert swizzle_atoms_of(SharedLayout((8, 8), (2, 1, 4, 8, 16, 32)), 2) is None
    # a swizzle of 128 bytes for elements of two is none for elements of four
    swizzled = swizzled_layout((64, 64), 2, SwizzleAtoms(1, 128))
    assert swizzled is not None and swizzle_atoms_of(swizzled, 4) is None


def test_slabs_are_as_wide_as_the_tile() -> None:
    for columns, span in ((64, 128), (256, 128), (32, 64), (16, 32)):
        found = widest_swizzle_atoms((64, columns), 2, 1)
        assert found is not None and swizzle_atoms_of(found, 2) == SwizzleAtoms(1, span)
    assert widest_swizzle_atoms((64, 8), 2, 1) is None
    # an atom with fewer rows than a swizzle's period would begin within it
    assert widest_swizzle_atoms((4, 64), 2, 1) is None


@pytest.mark.parametrize(
    ("shape", "element", "slabs"),
    [
        ((64, 64), F16, SwizzleAtoms(1, 128)),
        ((128, 256), BF16, SwizzleAtoms(1, 128)),
        ((512, 32), F16, SwizzleAtoms(1, 64)),
        ((64, 64), F8E5M2, SwizzleAtoms(1, 32)),
        ((2, 512, 64), I8, SwizzleAtoms(2, 64)),
        ((4, 8, 32), F32, SwizzleAtoms(2, 128)),
        ((1024,), F32, SwizzleAtoms(0, 0)),
        ((32,), F32, SwizzleAtoms(0, 0)),
        ((1, 512), F32, SwizzleAtoms(1, 0)),
        ((1, 1, 64), F16, SwizzleAtoms(2, 0)),
        ((16, 512), F16, SwizzleAtoms(1, 0)),
        ((2, 2, 4, 8, 16), F64, SwizzleAtoms(4, 0)),
    ],
)
def test_boxes_fill_a_tile(shape: tuple[int, ...], element: object, slabs: SwizzleAtoms) -> None:
    """Every element of a tile is written once, where its layout says: a box lies in order from its
    beginning on, its chunks exchanged by address."""
    size = {F16: 2, BF16: 2, F8E5M2: 1, I8: 1, F32: 4, F64: 8}[element]  # type: ignore[index]
    shared = swizzled_layout(shape, size, slabs)
    assert shared is not None
    found = boxes(shared, element)  # type: ignore[arg-type]
    assert found is not None and max(found.shape) <= 256 and found.span == slabs.span
    assert not slabs.span or found.shape[-1] * size == slabs.span
    written = {}
    for start, corner in found.starts:
        assert start % 128 == 0
        for number, inside in enumerate(itertools.product(*map(range, found.shape))):
            address = start + number * size
            point = tuple(a + b for a, b in zip(corner, inside, strict=True))
            assert point not in written
            written[point] = exchanged(address, slabs.span) if slabs.span else address
    assert len(written) == math.prod(shape)
    assert all(
        size * shared.offset(row_major(point, shape)) == address
        for point, address in written.items()
    )


def test_what_the_engine_cannot_fill_is_refused() -> None:
    transposed = swizzled_layout((64, 64), 2, SwizzleAtoms(0, 128))
    assert transposed is not None and boxes(transposed, F16) is None
    assert (
        boxes(SharedLayout((64, 64), tuple(reversed(SharedLayout.row_major((64, 64)).images))), F16)
        is None
    )
    assert (
        boxes(SharedLayout.row_major((8, 8)), F16) is None
    )  # slots of 128 bytes: a ring's would not be aligned for every swizzle
    for shape in ((32,), (1, 32)):
        assert boxes(SharedLayout.row_major(shape), F16) is None  # a vector of 64 bytes
    assert boxes(SharedLayout.row_major((512, 4)), F16) is None  # rows of 8 bytes
    assert boxes(SharedLayout.row_major((2, 2, 2, 2, 2, 64)), F16) is None  # six axes
