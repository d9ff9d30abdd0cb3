"""Words of shared memory that each warp has for itself."""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.types import TileType
from tilewright.simt.dialect.attributes import layout_of


def repeated_lanes(value: Value, warp_size: int) -> int:
    """Return the mask of lane bits that a tile's or scalar's elements do not depend on."""
    if not isinstance(value.type, TileType):
        return warp_size - 1
    return layout_of(value).redundant_threads()[0]
