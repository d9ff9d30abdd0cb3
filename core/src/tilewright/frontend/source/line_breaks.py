"""Lines of the source that fit the page: brackets are opened where a statement is long."""

from __future__ import annotations

from collections.abc import Iterator

#: The columns of a page.
WIDTH = 99
_OPEN, _CLOSE = "([{", ")]}"


def broken(text: str, indent: int) -> list[str]:
    """Return a statement as lines, with what is in its last outermost brackets on lines of its own.

    A statement without brackets in which it can be broken stays as it is.
    """
    blank = " " * indent
    if indent + len(text) <= WIDTH:
        return [blank + text]
    span = _widest_brackets(text)
    if span is None:
        return [blank + text]
    start, end = span
    head, inner, tail = text[: start + 1], text[start + 1 : end], text[end:]
    parts = list(_at_commas(inner))
    if len(parts) == 1:
        lines = [blank + head, *broken(parts[0], indent + 4), blank + tail]
        return lines
    lines = [blank + head]
    joined = ", ".join(parts)
    if indent + 4 + len(joined) <= WIDTH:
        lines.append(f"{blank}    {joined}")
    else:
        for part in parts:
            *first, last = broken(part, indent + 4)
            lines += [*first, f"{last},"]
    return [*lines, blank + tail]


def _widest_brackets(text: str) -> tuple[int, int] | None:
    """Return the outermost brackets with the most between them."""
    spans = []
    depth, start = 0, 0
    for position, char in _code(text):
        if char in _OPEN:
            if depth == 0:
                start = position
            depth += 1
        elif char in _CLOSE:
            depth -= 1
            if depth == 0 and position - start > 1:
                spans.append((start, position))
    return max(spans, key=lambda span: span[1] - span[0], default=None)


def _at_commas(text: str) -> Iterator[str]:
    """Yield the parts between the commas that are in no brackets."""
    depth, begin = 0, 0
    for position, char in _code(text):
        if char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and depth == 0:
            yield text[begin:position].strip()
            begin = position + 1
    yield text[begin:].strip()


def _code(text: str) -> Iterator[tuple[int, str]]:
    """Yield the characters of a text that are in no string, with their positions."""
    quote, escaped = "", False
    for position, char in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        else:
            yield position, char
