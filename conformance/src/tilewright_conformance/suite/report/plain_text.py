"""Sanitizing of a report's texts: no characters that move the cursor or begin a line.

Nor may they turn the direction of writing. Whoever writes a report could otherwise forge the
printed output, such as a line that names the signer.
"""

from __future__ import annotations

import re
from typing import Any, Final

#: Control characters, ends of lines and paragraphs, marks of direction, and halves of characters.
_FORBIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
#: The field whose texts have several lines: what a case's exception said.
_OF_LINES: Final = "message"
#: Characters with a meaning in Markdown, and beginnings of links.
_MARKDOWN: Final = re.compile(r"[\\`*_{}\[\]<>()#+!|~&:@$]|(?<=www)\.", re.IGNORECASE)


def objections(value: Any, place: str = "report", lines: bool = False) -> list[str]:
    """The texts of a report's values and names with forbidden characters, each with its place."""
    if isinstance(value, str):
        found = _FORBIDDEN.search(value.replace("\n", "").replace("\t", "") if lines else value)
        return (
            [f"{place} holds {found[0]!a}, which no text of a report may: {value!a:.80}"]
            if found
            else []
        )
    if isinstance(value, dict):
        names = [text for name in value for text in objections(name, f"a name in {place}")]
        return names + [
            text
            for name, item in value.items()
            for text in objections(item, f"{place}.{name}", name == _OF_LINES)
        ]
    if isinstance(value, list | tuple):
        return [
            text
            for index, item in enumerate(value)
            for text in objections(item, f"{place}[{index}]")
        ]
    return []


def plain(value: Any, lines: bool = False) -> Any:
    """Replace forbidden characters of a value's texts.

    Ends of lines and tabs become spaces, where a text has one line alone, others their numbers.
    """
    if isinstance(value, str):
        return _FORBIDDEN.sub(lambda found: _replaced(found[0], lines), value)
    if isinstance(value, dict):
        return {plain(name): plain(item, name == _OF_LINES) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _replaced(character: str, lines: bool) -> str:
    if character in "\n\t":
        return character if lines else " "
    return ascii(character)[1:-1]


def markdown_of(text: str) -> str:
    """A text that Markdown shows as it is."""
    return _MARKDOWN.sub(lambda found: f"\\{found[0]}", text)
