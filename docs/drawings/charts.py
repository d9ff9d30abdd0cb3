"""Charts of how fast an operation is beside a rival."""

from __future__ import annotations

import math
from collections.abc import Mapping

from drawings.svg import FAINT, FILLS, INK, Drawing


def ratio_chart(ratios: Mapping[str, float], title: str) -> Drawing:
    """Draw a bar for each case, from 1 to the rival's time divided by ours.

    The scale is logarithmic. Bars to the right of 1 are cases in which ours is faster.
    """
    left, high, top, width = 290, 20, 30, 360
    reach = max(2.0, *(max(each, 1 / each) for each in ratios.values())) * 1.1
    drawing = Drawing(left + width + 70, top + len(ratios) * high + 34, title)

    def place(ratio: float) -> float:
        return left + width * (math.log(ratio) / math.log(reach) + 1) / 2

    ticks = [
        each for each in (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0, 50.0) if 1 / reach < each < reach
    ]
    for tick in ticks:
        drawing.line(place(tick), top - 4, place(tick), top + len(ratios) * high, color=FAINT)
        drawing.text(place(tick), top - 10, f"{tick:g}", size=11, color=FAINT)
    for number, (case, ratio) in enumerate(ratios.items()):
        y = top + number * high
        start, end = sorted((place(1.0), place(ratio)))
        fill = FILLS[2] if ratio >= 1 else FILLS[4]
        drawing.rectangle(start, y + 2, max(end - start, 1), high - 5, fill)
        drawing.text(left - 8, y + 14, case, size=11, anchor="end")
        drawing.text(left + width + 8, y + 14, f"{ratio:.2f}", size=11, anchor="start")
    drawing.line(place(1.0), top - 4, place(1.0), top + len(ratios) * high, color=INK)
    y = top + len(ratios) * high + 22
    drawing.text(place(1.0) - 10, y, "← the rival is faster", size=11, anchor="end", color=FAINT)
    drawing.text(place(1.0) + 10, y, "Tilewright is faster →", size=11, anchor="start", color=FAINT)
    return drawing
