"""Charts of how fast an operation is beside a rival."""

from __future__ import annotations

import math
from collections.abc import Mapping

from drawings.svg import FAINT, FILLS, INK, Drawing


def ratio_chart(ratios: Mapping[str, float], title: str, *, names_above: bool = False) -> Drawing:
    """Draw a bar for each case, from 1 to the rival's time divided by ours.

    The scale is logarithmic. Bars to the right of 1 are cases in which ours is faster.
    ``names_above`` writes cases above their bars, so that the chart fits on a phone.
    """
    left, high, top, width = (8, 38, 30, 320) if names_above else (290, 20, 30, 360)
    lowest, highest = min(0.5, *ratios.values()) / 1.1, max(2.0, *ratios.values()) * 1.1
    drawing = Drawing(left + width + 70, top + len(ratios) * high + 34, title)

    def place(ratio: float) -> float:
        return left + width * math.log(ratio / lowest) / math.log(highest / lowest)

    bars = [top + (number + 1) * high - 18 for number in range(len(ratios))]
    # names above the bars are not crossed by lines
    spans = [(bar - 2, bar + 17) for bar in bars] if names_above else [(top - 4, bars[-1] + 18)]

    def vertical(ratio: float, color: str) -> None:
        for start, end in spans:
            drawing.line(place(ratio), start, place(ratio), end, color=color)

    for tick in (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0, 50.0):
        if lowest < tick < highest:
            vertical(tick, FAINT)
            drawing.text(place(tick), top - 10, f"{tick:g}", size=11, color=FAINT)
    for bar, (case, ratio) in zip(bars, ratios.items(), strict=True):
        start, end = sorted((place(1.0), place(ratio)))
        fill = FILLS[2] if ratio >= 1 else FILLS[4]
        drawing.rectangle(start, bar, max(end - start, 1), 15, fill)
        if names_above:
            drawing.text(left, bar - 6, case, size=11, anchor="start")
        else:
            drawing.text(left - 8, bar + 12, case, size=11, anchor="end")
        drawing.text(left + width + 8, bar + 12, f"{ratio:.2f}", size=11, anchor="start")
    vertical(1.0, INK)
    y = top + len(ratios) * high + 22
    drawing.text(place(1.0) - 10, y, "← the rival is faster", size=11, anchor="end", color=FAINT)
    drawing.text(place(1.0) + 10, y, "Tilewright is faster →", size=11, anchor="start", color=FAINT)
    return drawing
