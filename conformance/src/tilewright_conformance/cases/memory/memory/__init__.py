"""Memory: ordered loads and stores through pointers of every kind, of every element type.

Expected values are bits that NumPy moved. The samples of Tile IR's loads and stores, and dense
arrays, are in the family ``access``; gathers from a tile and histograms in ``gathers``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.memory.memory import access, blocks, order, pointers, views
from tilewright_conformance.suite.case import Case


def cases() -> Iterator[Case]:
    yield from views.case
    yield from access.case
    yield from order.case
    yield from pointers.case
    yield from blocks.case
