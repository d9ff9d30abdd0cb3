"""The documentation as text: ``tilewright help``, which needs no network.

Pages are the Markdown files of ``docs/site``, which the wheel contains. Reference pages that the
site generates are not among them: Python's ``help`` shows the docstrings that they are made of.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import tilewright
from tilewright.errors import similar
from tilewright.tools.usage import UsageError

_HEADING = re.compile(r"^(#{1,6}) (.+?)(?:\s+\{ *#([\w-]+) *\})?$")


#: Words of questions that say nothing about their subject.
_QUESTION_WORDS = frozenset(
    (
        *("a", "an", "and", "are", "can", "do", "does", "for", "how", "i", "in", "is", "it", "my"),
        *("of", "on", "or", "the", "to", "what", "when", "where", "which", "why"),
    )
)


class PageSection(NamedTuple):
    """A heading of a page and the lines below it, up to the next heading.

    Attributes:
        topic: what ``tilewright help`` prints it by: ``debugging`` or ``debugging#logs``.
        level: 1 of the page's title, 2 of its sections, and so on.
    """

    topic: str
    level: int
    title: str
    text: str


def folder() -> Path:
    """Return the folder of the pages: the package's own, or that of the repository."""
    package = Path(tilewright.__file__).parent
    for found in (package / "documentation", package.parents[2] / "docs" / "site"):
        if found.is_dir():
            return found
    raise UsageError(
        f"this installation has no documentation: {package / 'documentation'} is missing; "
        "install tilewright from a wheel"
    )


def pages() -> dict[str, Path]:
    """Return the pages by topic, such as ``debugging`` or ``guides/numerics``."""
    root = folder()
    return {
        path.relative_to(root).with_suffix("").as_posix().removesuffix("/index"): path
        for path in sorted(root.rglob("*.md"))
    }


def slug(title: str) -> str:
    """Return the anchor of a heading, as the site has it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def sections(topic: str, text: str) -> list[PageSection]:
    """Return the sections of a page; headings within blocks of code are none."""
    found: list[PageSection] = []
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        heading = None if fenced else _HEADING.match(line)
        if heading:
            found[-1:] = [each._replace(text=_joined(lines)) for each in found[-1:]]
            lines = []
            name = topic if not found else f"{topic}#{heading[3] or slug(heading[2])}"
            found.append(PageSection(name, len(heading[1]), heading[2], ""))
        lines.append(line)
    found[-1:] = [each._replace(text=_joined(lines)) for each in found[-1:]]
    return found


def _joined(lines: list[str]) -> str:
    return "\n".join(lines).strip("\n")


def page_text(topic: str) -> str:
    """Return a page, or the section of it that a topic names after ``#``."""
    name, _, anchor = topic.strip("/").partition("#")
    known = pages()
    if name not in known:
        return _found(topic, known)
    found = sections(name, known[name].read_text(encoding="utf-8"))
    if not anchor:
        return "\n\n".join(section.text for section in found)
    topics = [section.topic for section in found]
    if f"{name}#{anchor}" not in topics:
        raise UsageError(f"page {name} has no section {anchor!r}; it has {', '.join(topics[1:])}")
    place = topics.index(f"{name}#{anchor}")
    below = [section.level <= found[place].level for section in found[place + 1 :]]
    end = below.index(True) if True in below else len(below)
    return "\n\n".join(section.text for section in found[place : place + 1 + end])


def _found(words: str, known: dict[str, Path]) -> str:
    """Return the topics whose heading has all words, or else those whose text has them.

    If there are none, return those that have the most of the words, and at least two. Words such as
    "why" and "is" count only if there are no others.
    """
    every = [
        section
        for topic, path in known.items()
        for section in sections(topic, path.read_text(encoding="utf-8"))
    ]
    wanted = [word for word in words.lower().rstrip("?").split() if word not in _QUESTION_WORDS]
    wanted = wanted or words.lower().split()
    titled = [each for each in every if all(word in each.title.lower() for word in wanted)]
    matching = titled or [
        each for each in every if all(word in each.text.lower() for word in wanted)
    ]
    if not matching:
        matching = _with_most(wanted, every)
    if not matching:
        remedy = similar(words, (topic.rpartition("/")[2] for topic in known))
        raise UsageError(
            f"no page has {words!r}: {remedy or 'tilewright help without a topic lists the pages'}"
        )
    return listing(matching)


def _with_most(words: list[str], every: list[PageSection]) -> list[PageSection]:
    """Return the sections with the most of some words, and at least two of them."""
    counts = [sum(word in each.text.lower() for word in words) for each in every]
    most = max([2, *counts])
    return [each for each, count in zip(every, counts, strict=True) if count == most]


def listing(found: list[PageSection]) -> str:
    """Return a line for each section: its topic and its title."""
    width = max(len(section.topic) for section in found)
    return "\n".join(f"{section.topic:<{width}}  {section.title}" for section in found)


def help_text(words: list[str]) -> str:
    """Return the text of ``tilewright help WORDS``; without words, the list of pages."""
    if words:
        return page_text(" ".join(words))
    titles = [
        sections(topic, path.read_text(encoding="utf-8"))[0] for topic, path in pages().items()
    ]
    return listing(titles)
