"""Drawings as SVG: rectangles, lines and text on a light ground, readable in both schemes."""

from __future__ import annotations

from xml.sax.saxutils import escape

INK, FAINT, GROUND = "#1f2328", "#8c959f", "#ffffff"
#: Fills that differ in lightness as well as in hue.
FILLS = ("#cfe8ff", "#ffd8a8", "#c6f0c2", "#e5d4ff", "#ffd0d7", "#fff3a3", "#bfeee8", "#e3e3e3")
#: Fill of what a mask leaves out.
MASKED = "#f0f0f0"


class Drawing:
    """A picture of ``width`` by ``height`` pixels.

    Args:
        title: says in a sentence what there is to see, for readers that do not see it.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def rectangle(
        self, x: float, y: float, width: float, height: float, fill: str = GROUND, line: str = INK
    ) -> None:
        """Draw a rectangle whose upper left corner is at ``x`` and ``y``."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" '
            f'stroke="{line}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 13,
        anchor: str = "middle",
        color: str = INK,
        is_code: bool = False,
    ) -> None:
        """Write a line of text, whose anchor ("start", "middle" or "end") is at ``x`` and ``y``."""
        family = "ui-monospace, monospace" if is_code else "system-ui, sans-serif"
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" '
            f'fill="{color}" font-family="{family}">{escape(text)}</text>'
        )

    def line(
        self, x: float, y: float, to_x: float, to_y: float, *, color: str = INK, width: float = 1
    ) -> None:
        """Draw a line."""
        self._parts.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{color}" '
            f'stroke-width="{width:g}"/>'
        )

    def cell(
        self, x: float, y: float, width: float, height: float, label: str, fill: str, size: float
    ) -> None:
        """Draw a rectangle with a label in its middle."""
        self.rectangle(x, y, width, height, fill)
        self.text(x + width / 2, y + height / 2 + size * 0.35, label, size=size, is_code=True)

    def __str__(self) -> str:
        body = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'role="img" width="{self.width:g}">\n<title>{escape(self.title)}</title>\n'
            f'<rect width="100%" height="100%" fill="{GROUND}" rx="6"/>\n{body}\n</svg>\n'
        )
