"""Memory: loads and stores through pointers of every kind, in order, of every element type; expected values are bits that NumPy moved.

The samples of Tile IR's loads and stores, and dense arrays, are in the family ``access``; gathers from a tile and histograms in ``gathers``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.case import Case
from tilewright_conformance.cases import _memory_access, _memory_blocks, _memory_order, _memory_pointers, _memory_views


def cases() -> Iterator[Case]:
    yield from _memory_views.case
    yield from _memory_access.case
    yield from _memory_order.case
    yield from _memory_pointers.case
    yield from _memory_blocks.case
