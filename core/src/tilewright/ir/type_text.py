"""Reading a type back from its text form."""

from __future__ import annotations

import re
from typing import Final

from tilewright.ir.types import (
    FLOATS,
    INTEGERS,
    DescriptorType,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
)

#: What the text of a type of Tile IR's own begins with, up to its bracket.
KEYWORDS: Final = frozenset(("tile", "desc", "ptr", *map(str, (*INTEGERS, *FLOATS))))
_INTEGER = re.compile(r"([iu])(1|8|16|32|64)$")
_SHAPED = re.compile(r"((?:\d+x)+)(.+)$", re.S)


def parse_type(text: str) -> Type:
    """The type whose ``str`` is ``text``.

    Raises:
        ValueError: the text is not a type; the message quotes it.
    """
    text = text.strip()
    found = _INTEGER.match(text)
    if found:
        if text == "u1":
            raise ValueError("'u1' is not a type; the boolean is i1")
        return IntType(int(found[2]), signed=found[1] == "i")
    head, bracket, rest = text.partition("<")
    if not bracket:
        return FloatType(text)
    if not rest.endswith(">"):
        raise ValueError(f"{text!r} is not a type: '>' is missing")
    body = rest[:-1]
    if head == "ptr":
        pointee, comma, space = split_comma(body)
        return PointerType(parse_type(pointee), space.strip() if comma else "global")
    shaped = _SHAPED.match(body)
    if head not in ("tile", "desc") or not shaped:
        raise ValueError(f"{text!r} is not a type")
    shape = tuple(int(extent) for extent in shaped[1].split("x")[:-1])
    element = parse_type(shaped[2])
    return TileType(shape, element) if head == "tile" else DescriptorType(shape, element)


def split_comma(body: str) -> tuple[str, str, str]:
    """Split ``first, rest`` at the first comma outside any bracket: (first, "," or "", rest)."""
    depth = 0
    for index, char in enumerate(body):
        depth += (char == "<") - (char == ">")
        if char == "," and depth == 0:
            return body[:index], ",", body[index + 1 :]
    return body, "", ""
