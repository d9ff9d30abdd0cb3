"""Charts of a rate over sizes, a line for each library or configuration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from drawings.svg import FAINT, INK, Drawing

#: Strokes that differ in lightness as well as in hue, on a light ground.
STROKES = ("#0b5cad", "#b4451f", "#2e7d32", "#7b3fb3", "#8a6d00", "#5f6670")
_LEFT, _TOP, _WIDTH, _HEIGHT = 48, 40, 432, 230
#: Pixels from the axis to the legend, and from one of its lines to the next.
_TO_LEGEND, _LINE = 62, 19


def ticks(largest: float) -> list[float]:
    """Return round numbers from 0 to the first that is not below ``largest``, at most seven."""
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(
        each * power
        for each in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0)
        if math.ceil(largest / (each * power)) <= 6
    )
    return [step * number for number in range(math.ceil(largest / step) + 1)]


def line_chart(
    series: Mapping[str, Mapping[int, float]], title: str, across: str, up: str, roof: float = 0.0
) -> Drawing:
    """Draw a line for each series, over sizes at equal distances.

    Args:
        series: name -> size -> value.
        title: says in a sentence what there is to see.
        across: what the sizes are.
        up: what the values are, with their unit.
        roof: the value that the machine cannot exceed, drawn as a line; 0 where there is none.
    """
    sizes = sorted({size for values in series.values() for size in values})
    legend = _TOP + _HEIGHT + _TO_LEGEND
    drawing = Drawing(_LEFT + _WIDTH + 16, legend + _LINE * len(series), title)
    marks = ticks(max(roof, *(value for values in series.values() for value in values.values())))

    def x(size: int) -> float:
        return _LEFT + _WIDTH * (sizes.index(size) + 0.3) / (len(sizes) - 0.4)

    def y(value: float) -> float:
        return _TOP + _HEIGHT * (1 - value / marks[-1])

    drawing.text(_LEFT, _TOP - 18, up, size=12, anchor="start", color=INK)
    for mark in marks:
        drawing.line(_LEFT, y(mark), _LEFT + _WIDTH, y(mark), color="#e3e6ea")
        drawing.text(_LEFT - 8, y(mark) + 4, f"{mark:g}", size=11, anchor="end", color=INK)
    for size in sizes:
        drawing.line(x(size), _TOP + _HEIGHT, x(size), _TOP + _HEIGHT + 5, color=FAINT)
        drawing.text(x(size), _TOP + _HEIGHT + 19, short(size), size=11)
    drawing.text(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 40, across, size=12)
    if roof:
        drawing.line(_LEFT, y(roof), _LEFT + _WIDTH, y(roof), color=FAINT)
        drawing.text(
            _LEFT + _WIDTH, y(roof) - 5, "data sheet", size=11, anchor="end", color="#5f6670"
        )
    for number, ((name, values), color) in enumerate(zip(series.items(), STROKES, strict=False)):
        points = [(x(size), y(value)) for size, value in sorted(values.items())]
        for (x_from, y_from), (x_to, y_to) in itertools.pairwise(points):
            drawing.line(x_from, y_from, x_to, y_to, color=color, width=2)
        for x_at, y_at in points:
            drawing.rectangle(x_at - 3, y_at - 3, 6, 6, color, color)
        height = legend + _LINE * number
        drawing.rectangle(_LEFT, height - 9, 10, 10, color, color)
        drawing.text(_LEFT + 18, height, name, size=12, anchor="start")
    return drawing


def short(size: int) -> str:
    """Return a size with a suffix for thousands and millions of 1024."""
    for suffix, unit in (("M", 1 << 20), ("K", 1 << 10)):
        if size >= unit and size % unit == 0 and size >= 16 * (1 << 10):
            return f"{size // unit}{suffix}"
    return str(size)
