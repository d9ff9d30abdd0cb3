"""A docstring taken apart: what it says, the parameters, results and errors it names, and its
example.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import re
from dataclasses import dataclass, field
from typing import Any

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example):$", re.M)
_ENTRY = re.compile(r"^(?P<names>[*\w]+(?:, [*\w]+)*): (?P<text>.*)$", re.S)


@dataclass
class Docstring:
    """The parts of one docstring.

    Attributes:
        summary: its first paragraph.
        description: the paragraphs after it.
        parameters: name -> meaning; attributes of a class stand here too.
        returns: the result; empty where there is none.
        raises: error -> when.
        example: lines of a kernel, or of the host, that use it.
    """

    summary: str = ""
    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    returns: str = ""
    raises: dict[str, str] = field(default_factory=dict)
    example: str = ""


def parse(found: Any) -> Docstring:
    """The docstring of an object."""
    text = inspect.cleandoc(getattr(found, "__doc__", None) or "")
    pieces = _SECTION.split(text)
    summary, _, description = pieces[0].strip().partition("\n\n")
    result = Docstring(_flat(summary), description.strip("\n").rstrip())
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        block = _indented(body)
        if title in ("Args", "Attributes"):
            result.parameters |= _entries(block)
        elif title == "Raises":
            result.raises |= _entries(block)
        elif title == "Returns":
            result.returns = _flat(block)
        else:
            result.example = block
    return result


def _indented(body: str) -> str:
    """The indented lines at the start of a section, moved to the left."""
    lines: list[str] = []
    for line in body.strip("\n").splitlines():
        if line and not line.startswith(" "):
            break
        lines.append(line)
    return inspect.cleandoc("\n" + "\n".join(lines)).strip("\n")


def _entries(block: str) -> dict[str, str]:
    """``name: text`` entries; their continuation lines are indented.

    Several names may share one text.
    """
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?! )", block):
        match = _ENTRY.match(entry)
        if match:
            for name in match["names"].split(", "):
                found[name] = _flat(match["text"])
    return found


def rows(entries: dict[str, str]) -> list[tuple[str, str]]:
    """Return (names in backticks, text) of each row; names with the same text share a row."""
    grouped = itertools.groupby(entries.items(), key=operator.itemgetter(1))
    return [(f"`{', '.join(name for name, _ in group)}`", text) for text, group in grouped]


def _flat(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())
