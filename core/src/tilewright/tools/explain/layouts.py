"""The layouts of a kernel's tiles, as the page's pictures need them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tilewright.ir.core import Function
from tilewright.ir.types import TileType
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.report import describe


def numbered(stage: str) -> dict[LinearLayout, int]:
    """Return the layouts in a stage's header with their numbers: that of ``#L3`` is 3."""
    return {
        LinearLayout.parse(text): int(number)
        for number, text in re.findall(r"^#L(\d+) = layout<(.*)>$", stage, re.M)
    }


def pictures(function: Function, numbers: Mapping[LinearLayout, int]) -> list[dict[str, Any]]:
    """Describe each layout of a kernel in the toolkit's IR.

    It has its name, extents, images of register, lane, warp and block bits, a description in words,
    and its tiles.
    """
    return [
        {
            "name": f"L{numbers[layout]}",
            "shape": list(layout.shape),
            "registers": list(layout.registers),
            "lanes": list(layout.lanes),
            "warps": list(layout.warps),
            "blocks": list(layout.blocks),
            "text": describe(layout),
            "tiles": tiles,
        }
        for layout, tiles in sorted(_tiles(function).items(), key=lambda item: numbers[item[0]])
    ]


def _tiles(function: Function) -> dict[LinearLayout, list[str]]:
    """The tiles of each layout, by name and the line that made them."""
    found: dict[LinearLayout, dict[str, None]] = {}
    for operation in function.walk():
        for result in operation.results:
            if isinstance(result.type, TileType) and isinstance(result.layout, LinearLayout):
                line = (
                    f" (line {operation.location.line})" if operation.location is not None else ""
                )
                found.setdefault(result.layout, {})[f"{result.name or operation.name}{line}"] = None
    return {layout: list(tiles) for layout, tiles in found.items()}
