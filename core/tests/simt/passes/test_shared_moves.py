"""Layouts in which threads move a tile from one place in shared memory to another."""

from __future__ import annotations

import pytest

from tilewright.simt.layouts.linear_layout import SharedLayout, log2
from tilewright.simt.layouts.swizzle import transactions
from tilewright.simt.passes.shared_moves import moving_layout

BANKS, WIDEST = 32, 16


def swizzled(shape: tuple[int, int], size: int, inner: int) -> SharedLayout:
    """A layout of swizzle atoms with rows of 128 bytes along an axis.

    The row number permutes the 16-byte chunks of a row.
    """
    rows, chunk, across = shape[1 - inner], 16 // size, 128 // size
    images = []
    for bit in range(log2(shape[0] * shape[1])):
        axis, place = (1, bit) if bit < log2(shape[1]) else (0, bit - log2(shape[1]))
        if axis == inner:
            images.append(1 << place if 1 << place < across else rows << place)
        else:
            images.append(across << place | (chunk << place if place < 3 else 0))
    return SharedLayout(shape, tuple(images))


@pytest.mark.parametrize(
    ("shape", "size", "warps"),
    [
        ((128, 128), 1, 8),
        ((128, 256), 1, 8),
        ((256, 128), 1, 4),
        ((32, 128), 4, 8),
        ((64, 64), 4, 4),
        ((128, 64), 2, 4),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_matrix_is_turned_without_conflicts(
    shape: tuple[int, int], size: int, warps: int, turned: bool
) -> None:
    source, target = swizzled(shape, size, 1), swizzled(shape, size, 0 if turned else 1)
    layout = moving_layout(source, target, size, 32, warps, WIDEST, BANKS)
    assert layout is not None and layout.shape == shape
    # each element is one thread's
    elements = sorted(
        layout.element(r, t % 32, t // 32)
        for t in range(32 * warps)
        for r in range(layout.register_count)
    )
    assert elements == list(range(shape[0] * shape[1]))
    least = shape[0] * shape[1] * size // warps // (4 * BANKS)
    for side in (source, target):
        count, turns = transactions(layout, side, size, WIDEST, BANKS)
        assert turns == least
        # words at least, and as wide as there are elements for
        assert count * 32 * 4 <= shape[0] * shape[1] * size // warps


def test_small_tiles_leave_threads_without_elements() -> None:
    source, target = SharedLayout.row_major((8, 8)), SharedLayout.row_major((8, 8))
    assert moving_layout(source, target, 4, 32, 4, WIDEST, BANKS) is None
    layout = moving_layout(source, target, 4, 32, 2, WIDEST, BANKS)
    assert layout is not None and layout.register_count == 1
