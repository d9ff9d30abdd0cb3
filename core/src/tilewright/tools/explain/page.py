"""An explanation as one self-contained HTML page.

Its frame is ``page.html`` beside this file; its contents are put into it as JSON.
"""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tilewright.tools.explain.source_lines import Line, SourceLine

if TYPE_CHECKING:
    from tilewright.tools.explain.explanation import Explanation


def page(explanation: Explanation) -> str:
    """The page."""
    frame = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    parts = {
        "title": escape(f"{explanation.kernel} for {explanation.target}"),
        "data": _script(_data(explanation)),
    }
    # the frame alone is looked through: sources have braces, too
    head, *rest = frame.split("{{")
    return head + "".join(
        parts[name] + after for name, _, after in (piece.partition("}}") for piece in rest)
    )


def _data(explanation: Explanation) -> dict[str, Any]:
    numbers: dict[SourceLine, int] = {}

    def number(place: SourceLine | None) -> int:
        return -1 if place is None else numbers.setdefault(place, len(numbers))

    def pane(name: str, lines: tuple[Line, ...]) -> dict[str, Any]:
        return {"name": name, "lines": [[line.text, number(line.place)] for line in lines]}

    sections = [
        {
            "file": section.file,
            "first": section.first,
            "lines": [
                [text, number(SourceLine(section.file, section.first + offset))]
                for offset, text in enumerate(section.lines)
            ],
        }
        for section in explanation.sections
    ]
    panes = [pane(name, lines) for name, lines in explanation.panes.items()]
    findings = [
        {"kind": found.kind, "place": number(found.place), "text": found.text}
        for found in explanation.findings
    ]
    return {
        "facts": explanation.facts,
        "options": {
            name: str(value) for name, value in explanation.options.items() if name != "line_info"
        },
        "times": explanation.times,
        "sections": sections,
        "panes": panes,
        "findings": findings,
        "praise": explanation.praise,
        "roofline": explanation.roofline.lines(),
        "layouts": list(explanation.layouts),
        "instructions": [
            [number(place), count] for place, count in explanation.instructions.items()
        ],
        "lines": [place.line for place in numbers],
    }


def _script(data: Any) -> str:
    # in a script element only the beginning of a tag could end the text early
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
