"""Drawings of layouts, from the text that the compiler prints."""

from __future__ import annotations

from drawings.svg import FAINT, FILLS, Drawing
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, row_major


def owners(layout: LinearLayout) -> dict[int, tuple[int, int, int]]:
    """Return element -> the warp, lane and register that hold it, the first ones of several."""
    found: dict[int, tuple[int, int, int]] = {}
    for warp in range(1 << len(layout.warps)):
        for lane in range(1 << len(layout.lanes)):
            for register in range(layout.register_count):
                element = layout.element(register, lane, warp)
                found.setdefault(element, (warp, lane, register))
    return found


def layout_drawing(
    text: str, title: str, *, rows: int | None = None, columns: int | None = None, cell: float = 34
) -> Drawing:
    """Draw the lane and the register of each element of a tile, in the color of its warp.

    Args:
        text: the layout of a tile with two axes, as the compiler prints it.
        title: says what there is to see.
        rows: those that are drawn; all if None.
        columns: those that are drawn; all if None.
        cell: width of an element, in pixels.
    """
    layout = LinearLayout.parse(text.removeprefix("layout<").removesuffix(">"))
    height, width = layout.shape
    rows, columns = rows or height, columns or width
    left, top, high = 34, 46, 24
    drawing = Drawing(left + columns * cell + 16, top + rows * high + 34, title)
    held = owners(layout)
    for column in range(columns):
        drawing.text(
            left + (column + 0.5) * cell, top - 6, str(column), size=9, color=FAINT, is_code=True
        )
    for row in range(rows):
        y = top + row * high
        drawing.text(left - 6, y + 16, str(row), size=9, anchor="end", color=FAINT, is_code=True)
        for column in range(columns):
            warp, lane, register = held[row_major((row, column), layout.shape)]
            drawing.cell(
                left + column * cell, y, cell, high, f"{lane}:{register}", FILLS[warp % 8], 9
            )
    drawing.text(
        left, 20, "lane:register of each element, a color for each warp", size=12, anchor="start"
    )
    cut = [
        name
        for name, drawn, whole in (("rows", rows, height), ("columns", columns, width))
        if drawn < whole
    ]
    if cut:
        drawing.text(
            left,
            top + rows * high + 22,
            f"the first {' and '.join(cut)} of {height} x {width}",
            size=11,
            anchor="start",
            color=FAINT,
        )
    return drawing


def swizzle_drawing(text: str, element_bytes: int, title: str, *, rows: int = 8) -> Drawing:
    """Draw which of the 8 groups of 4 banks each 16 bytes of a tile in shared memory lie in.

    Args:
        text: the layout of a tile with two axes in shared memory, as the compiler prints it.
        element_bytes: of an element.
        title: says what there is to see.
        rows: those that are drawn.
    """
    layout = SharedLayout.parse(text.removeprefix("shared<").removesuffix(">"))
    per_group = 16 // element_bytes
    columns = layout.shape[1] // per_group
    cell, left, top, high = 62, 34, 46, 26
    drawing = Drawing(left + columns * cell + 16, top + rows * high + 16, title)
    drawing.text(
        left,
        20,
        "the group of 4 banks that holds 16 bytes: a row of the tile from left to right",
        size=12,
        anchor="start",
    )
    for row in range(rows):
        y = top + row * high
        drawing.text(left - 6, y + 17, str(row), size=9, anchor="end", color=FAINT, is_code=True)
        for group in range(columns):
            element = row_major((row, group * per_group), layout.shape)
            bank = layout.offset(element) * element_bytes // 16 % 8
            drawing.cell(left + group * cell, y, cell, high, str(bank), FILLS[bank], 12)
    return drawing
