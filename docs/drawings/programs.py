"""Drawings of programs, tiles, masks and addresses."""

from __future__ import annotations

from drawings.svg import FAINT, FILLS, MASKED, Drawing


def grid_of_programs(elements: int = 10, block: int = 4) -> Drawing:
    """Draw which elements of an array each program of a grid has, with the last one's mask."""
    programs = -(-elements // block)
    cell, left, top = 44, 90, 44
    drawing = Drawing(
        left + programs * block * cell + 20,
        top + cell + 92,
        f"{programs} programs of {block} lanes cover an array of {elements} elements; the last "
        f"{programs * block - elements} lanes of the last program are masked off.",
    )
    drawing.text(left - 10, top + cell / 2 + 5, "x", anchor="end", is_code=True)
    for lane in range(programs * block):
        inside = lane < elements
        x = left + lane * cell
        fill = FILLS[lane // block] if inside else MASKED
        drawing.cell(x, top, cell, cell, f"x{lane}" if inside else "", fill, 13)
        drawing.text(x + cell / 2, top - 8, str(lane), size=11, color=FAINT, is_code=True)
        drawing.text(x + cell / 2, top + cell + 18, "1" if inside else "0", is_code=True)
    drawing.text(left - 10, top - 8, "offsets", anchor="end", size=11, color=FAINT)
    drawing.text(left - 10, top + cell + 18, "mask", anchor="end")
    for program in range(programs):
        x = left + program * block * cell
        y = top + cell + 32
        drawing.line(x + 3, y, x + block * cell - 3, y)
        drawing.text(x + block * cell / 2, y + 20, f"program {program}")
    drawing.text(
        left + programs * block * cell / 2,
        top + cell + 80,
        f"offsets = program_id(0) * {block} + arange(0, {block})",
        size=12,
        is_code=True,
    )
    return drawing


def tile_of_addresses(
    rows: int = 4, columns: int = 8, stride: int = 12, corner: int = 26
) -> Drawing:
    """Draw the offsets of a tile within a matrix of a larger stride."""
    cell, left, top = 46, 130, 52
    drawing = Drawing(
        left + columns * cell + 20,
        top + rows * cell + 60,
        f"The offsets of a tile of {rows} by {columns} elements in a matrix with {stride} elements "
        "from one row to the next: a column of rows times the stride plus a row of columns.",
    )
    drawing.text(left + columns * cell / 2, 18, "columns[None, :]", is_code=True)
    drawing.text(left - 12, top + rows * cell + 14, "rows[:, None]", anchor="end", is_code=True)
    drawing.text(left - 12, top + rows * cell + 30, "* stride", anchor="end", is_code=True)
    first_row, first_column = divmod(corner, stride)
    for column in range(columns):
        drawing.text(
            left + (column + 0.5) * cell, top - 12, str(first_column + column), is_code=True
        )
    for row in range(rows):
        y = top + row * cell
        start = (first_row + row) * stride
        drawing.text(left - 12, y + cell / 2 + 5, f"{start}", anchor="end", is_code=True)
        for column in range(columns):
            drawing.cell(
                left + column * cell,
                y,
                cell,
                cell,
                str(start + first_column + column),
                FILLS[0] if row % 2 == 0 else FILLS[2],
                13,
            )
    drawing.text(
        left + columns * cell / 2,
        top + rows * cell + 34,
        "p + rows[:, None] * stride + columns[None, :]",
        size=12,
        is_code=True,
    )
    return drawing
