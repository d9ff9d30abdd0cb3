"""The parser of ``run:`` directives.

    directive = "run" ":" ["grid" "(" INTEGER {"," INTEGER} ")"] call ["==" results] {"," contents}
    call      = "@" NAME "(" [value {"," value}] ")"
    results   = expected | "(" expected {"," expected} ")"
    contents  = "%" NAME "==" expected
    expected  = value ["within" NUMBER "ulp"]
    value     = NUMBER | "true" | "false" | list ["*" INTEGER]
    list      = "[" [value {"," value}] "]" | "range" "(" INTEGER "," INTEGER ")"

A directive is a comment, a line that begins with ``;``. It goes on in the next comment where a
bracket is open, the line ends with a comma, or that comment begins with ``==``. ``results`` are
those of the function, ``contents`` are what the memory behind a pointer argument holds after the
run. ``NUMBER`` may be decimal, hexadecimal (``0x1F``, ``0x1.8p3``), ``inf`` or ``nan``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NoReturn, TypeVar

from tilewright.ir.parser import ParseError
from tilewright_conformance.runtests.literals import Literal

_T = TypeVar("_T")
_COMMENT = re.compile(r"\s*;")
#: The word with a colon that makes a comment a directive.
_WORD = re.compile(r"\s*;\s*(?P<word>\w+)\s*:")
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>-?(?:0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?(?:[pP][+-]?\d+)?
               |\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|inf\b|nan\b))
  | (?P<name>[@%][\w.]+)
  | (?P<word>[A-Za-z]\w*)
  | (?P<mark>==|[()\[\],*])
  )""",
    re.X,
)
_OPEN, _CLOSE = ("(", "["), (")", "]")
#: Elements of a repeated list at most: longer ones are a mistake.
_LONGEST = 1 << 20


@dataclass(frozen=True)
class Expected:
    """An expected value, and by how many units in the last place a float may differ from it."""

    literal: Literal
    ulp: float = 0.0


@dataclass(frozen=True)
class Contents:
    """The expected contents of the memory behind a pointer argument."""

    name: str
    expected: Expected
    line: int
    column: int


@dataclass(frozen=True)
class Run:
    """One directive: a call, and its expected results.

    Attributes:
        text: the source text of the call and its results.
        grid: programs along each axis.
    """

    name: str
    arguments: tuple[Literal, ...]
    results: tuple[Expected, ...]
    contents: tuple[Contents, ...]
    grid: tuple[int, int, int]
    text: str
    line: int
    column: int


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int
    column: int


@dataclass
class Directives:
    """The directives of a text, and the text without comments, with lines and columns kept."""

    ir: str
    runs: list[Run] = field(default_factory=list)


def parse(text: str) -> Directives:
    """Separate a file into Tile IR and directives.

    Raises:
        ParseError: a directive is malformed, or the file has none.
    """
    lines = text.split("\n")
    found = Directives("\n".join("" if _COMMENT.match(line) else line for line in lines))
    at = 0
    while at < len(lines):
        word = _WORD.match(lines[at])
        if word is None:
            at += 1
            continue
        if word["word"] != "run":
            if not get_close_matches(word["word"].lower(), ["run"]):
                at += 1  # prose with a colon
                continue
            message = f"there is no directive '{word['word']}:', only 'run:'"
            raise ParseError(at + 1, word.start("word") + 1, message, lines[at])
        parser = _Parser(lines, at, word.end())
        found.runs.append(parser.run(word.start("word") + 1))
        at = parser.last + 1
    if not found.runs:
        raise ParseError(1, 1, "the file has no directive '; run: @function(...) == ...'", lines[0])
    return found


class _Parser:
    """Tokens of one directive, which begins in line ``first`` of ``lines`` after ``start``."""

    def __init__(self, lines: list[str], first: int, start: int) -> None:
        self.lines, self.first, self.last = lines, first, first
        self.tokens: list[_Token] = list(self._tokens(first, start))
        for following in lines[first + 1 :]:
            comment = _COMMENT.match(following)
            if comment is None or _WORD.match(following):
                break
            if not self._is_open() and not following[comment.end() :].lstrip().startswith("=="):
                break
            self.last += 1
            self.tokens += self._tokens(self.last, comment.end())
        end = len(lines[self.last].rstrip()) + 1
        self.tokens.append(_Token("end", "the end of the directive", self.last + 1, end))
        self.at = 0

    def _tokens(self, number: int, start: int) -> Iterator[_Token]:
        line = self.lines[number]
        while line[start:].strip():
            match = _TOKEN.match(line, start)
            if match is None:
                start += len(line[start:]) - len(line[start:].lstrip())
                message = f"{line[start]!r} begins nothing that a directive has"
                raise ParseError(number + 1, start + 1, message, line)
            kind = match.lastgroup or ""
            yield _Token(kind, match[kind], number + 1, match.start(kind) + 1)
            start = match.end()

    def _is_open(self) -> bool:
        """Return whether the directive goes on in the next comment."""
        marks = [token.text for token in self.tokens if token.kind == "mark"]
        depth = sum((mark in _OPEN) - (mark in _CLOSE) for mark in marks)
        return depth > 0 or bool(self.tokens and self.tokens[-1].text == ",")

    # Tokens.

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def _fail(self, message: str, at: _Token | Literal | None = None) -> NoReturn:
        place = at or self.token
        raise ParseError(place.line, place.column, message, self.lines[place.line - 1])

    def _expected(self, what: str) -> NoReturn:
        found = self.token.text if self.token.kind == "end" else f"'{self.token.text}'"
        self._fail(f"expected {what}, found {found}")

    def _accept(self, text: str) -> bool:
        if self.token.text != text or self.token.kind not in ("mark", "word"):
            return False
        self.at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._expected(f"'{text}'")

    def _name(self, mark: str, what: str) -> _Token:
        token = self.token
        if token.kind != "name" or token.text[0] != mark:
            self._expected(what)
        self.at += 1
        return token

    def _listed(self, item: Callable[[], _T], end: str) -> list[_T]:
        """Parse items between commas up to and with ``end``."""
        found: list[_T] = []
        if self._accept(end):
            return found
        while True:
            found.append(item())
            if self._accept(end):
                return found
            if not self._accept(","):
                self._expected(f"',' or '{end}'")

    # Directives.

    def run(self, column: int) -> Run:
        grid = self._grid()
        start = self.token
        name = self._name("@", "the function to call, @name").text[1:]
        self._expect("(")
        arguments = self._listed(self._value, ")")
        results = self._results() if self._accept("==") else []
        contents: list[Contents] = []
        while self._accept(","):
            contents.append(self._contents())
        if not (results or contents):
            self._expected("'==' and the expected results, or ',' and a pointer's contents")
        if self.token.kind != "end":
            self._expected("',' or the end of the directive")
        called = name, tuple(arguments), tuple(results), tuple(contents)
        text = self.lines[start.line - 1][start.column - 1 :].strip()
        text += " ..." if self.last > self.first else ""
        return Run(*called, grid, text, start.line, column)

    def _grid(self) -> tuple[int, int, int]:
        if not self._accept("grid"):
            return 1, 1, 1
        self._expect("(")
        start = self.token
        extents = self._listed(lambda: self._integer("a number of programs", 1), ")")
        if not 1 <= len(extents) <= 3:
            self._fail("a grid has one to three extents", start)
        x, y, z = (*extents, 1, 1)[:3]
        return x, y, z

    def _results(self) -> list[Expected]:
        return self._listed(self._expectation, ")") if self._accept("(") else [self._expectation()]

    def _contents(self) -> Contents:
        name = self._name("%", "a pointer argument, %name")
        self._expect("==")
        return Contents(name.text[1:], self._expectation(), name.line, name.column)

    def _expectation(self) -> Expected:
        literal = self._value()
        if not self._accept("within"):
            return Expected(literal)
        where = self.token
        ulp = self._number("a number of units in the last place").value
        if isinstance(ulp, tuple) or not 0 < ulp < float("inf"):
            self._fail("expected a positive number of units in the last place", where)
        self._expect("ulp")
        return Expected(literal, float(ulp))

    def _value(self) -> Literal:
        token = self.token
        if token.kind == "number":
            return self._number("a value")
        if self._accept("true") or self._accept("false"):
            return Literal(token.text == "true", token.line, token.column)
        if self._accept("range"):
            self._expect("(")
            first = self._integer("the first integer")
            self._expect(",")
            end = self._integer("the integer after the last")
            self._expect(")")
            numbers = range(first, min(end, first + _LONGEST))
            items = [Literal(number, token.line, token.column) for number in numbers]
        elif self._accept("["):
            items = self._listed(self._value, "]")
        else:
            self._expected("a value: a number, true, false, or a list in brackets")
        if self._accept("*"):
            where = self.token
            times = self._integer("how often the list is repeated", 1)
            if times * len(items) > _LONGEST:
                self._fail(f"a list has at most {_LONGEST} elements", where)
            items = items * times
        return Literal(tuple(items), token.line, token.column)

    def _number(self, what: str) -> Literal:
        token = self.token
        if token.kind != "number":
            self._expected(what)
        self.at += 1
        text = token.text.lower()
        value: int | float
        try:
            if "0x" in text:
                hexadecimal = "." in text or "p" in text
                value = float.fromhex(text) if hexadecimal else int(text, 16)
            else:
                value = int(text) if text.lstrip("-").isdecimal() else float(text)
        except OverflowError:
            self._fail(f"{token.text} is beyond every float", token)
        return Literal(value, token.line, token.column)

    def _integer(self, what: str, minimum: int | None = None) -> int:
        token = self.token
        value = self._number(what).value
        if not isinstance(value, int) or (minimum is not None and value < minimum):
            bound = "an integer" if minimum is None else f"at least {minimum}"
            self._fail(f"expected {what}, {bound}", token)
        return value
