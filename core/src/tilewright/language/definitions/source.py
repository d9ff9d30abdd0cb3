"""Source of a Python function: found once, cut out of its file, dedented."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tilewright.errors import DefinitionError, with_help
from tilewright.language.definitions.typed_text import is_of_another, typed_text
from tilewright.recursion import deep_recursion

_DEFINITION = re.compile(r"[ \t]*(?:async[ \t]+)?def\b")
_CLOSING = (")", "]", "}")


_UNREADABLE = (
    "@jit functions should be defined in a Python file; the source of {name!r} ({file}) cannot be "
    "read\n"
    "  help: put the function in a file and import it, or run it in IPython, a notebook or the "
    "prompt of Python 3.13. A program that makes the text itself says it:\n"
    '        linecache.cache["<kernels>"] = '
    '(len(text), None, text.splitlines(keepends=True), "<kernels>")\n'
    '        exec(compile(text, "<kernels>", "exec"), names)'
)


class FunctionSource:
    """Where a function is written, and its text.

    The file's lines are taken when the function is made, so that a later edit of the file changes
    nothing; everything else is worked out when it is first asked for.

    Attributes:
        file: the path the function was compiled from.
        first_line: the 1-based line of its first decorator, or of its ``def``.
    """

    __slots__ = ("_lines", "_parsed", "_raw", "_tree", "file", "first_line")

    def __init__(self, fn: Callable[..., Any]) -> None:
        """Take the lines of ``fn``'s file.

        Raises:
            DefinitionError: the function was not defined in a file, and its text is nowhere else to
                be found.
        """
        code = fn.__code__
        self.file: str = code.co_filename
        self.first_line: int = code.co_firstlineno
        linecache.checkcache(self.file)
        self._lines = linecache.getlines(self.file, fn.__globals__)
        if len(self._lines) < self.first_line or is_of_another(fn, self._lines):
            text = typed_text(fn, sys._getframe(1)) if isinstance(fn, FunctionType) else None
            if text is None:
                raise DefinitionError(_UNREADABLE.format(name=fn.__name__, file=self.file))
            self._lines = text.splitlines(keepends=True)
        self._raw: list[str] | None = None
        self._tree: ast.Module | None = None
        self._parsed: tuple[str, int, int] | None = None

    @property
    def raw_lines(self) -> list[str]:
        """The lines of the function as they stand in the file, decorators included."""
        if self._raw is None:
            self._raw = self._cut()
        return self._raw

    @property
    def text(self) -> str:
        """The dedented text from ``def`` on."""
        return self._definition()[0]

    @property
    def definition_line(self) -> int:
        """The 1-based line of the file that holds ``def``."""
        return self._definition()[1]

    @property
    def indent(self) -> int:
        """Return the number of columns by which :attr:`text` was dedented."""
        return self._definition()[2]

    def relocate(
        self,
        *,
        file: str | None = None,
        first_line: int | None = None,
        definition_line: int | None = None,
        indent: int | None = None,
        raw_lines: list[str] | None = None,
    ) -> None:
        """Set another location of the function for messages and line tables; its text stays.

        None leaves an attribute as it is.
        """
        text, line, columns = self._definition()
        self._parsed = (
            text,
            line if definition_line is None else definition_line,
            columns if indent is None else indent,
        )
        self.file = self.file if file is None else file
        self.first_line = self.first_line if first_line is None else first_line
        self._raw = self.raw_lines if raw_lines is None else raw_lines

    def parse(self) -> ast.FunctionDef:
        """The syntax tree of :attr:`text`.

        Raises:
            DefinitionError: there is another kind of function.
        """
        text = self.text
        tree, self._tree = self._tree, None
        return _only_definition(
            tree if tree is not None else syntax_tree(text, self.file, self.definition_line)
        )

    def _definition(self) -> tuple[str, int, int]:
        if self._parsed is None:
            lines = self.raw_lines
            start = next((i for i, line in enumerate(lines) if _DEFINITION.match(line)), None)
            if start is None:
                raise DefinitionError(
                    f"@jit functions are written with `def`; at {self.file}:{self.first_line} "
                    "there is another kind of function"
                )
            self._parsed = _dedent(lines[start:]), self.first_line + start, _indent_of(lines[start])
        return self._parsed

    def _cut(self) -> list[str]:
        """The lines of the block that starts at :attr:`first_line`.

        The block ends where a line is indented no more than its ``def``. A line inside a string or
        a bracket may be, and then the text cut off is not valid Python: only in that case the
        (slow) tokenizer of :mod:`inspect` decides.
        """
        lines = self._lines[self.first_line - 1 :]
        start = next((i for i, line in enumerate(lines) if _DEFINITION.match(line)), None)
        if start is None:
            return inspect.getblock(lines)
        indent = _indent_of(lines[start])
        end = last = start + 1
        for end in range(start + 1, len(lines) + 1):
            if end == len(lines):
                break
            line = lines[end]
            stripped = line.lstrip()
            if not stripped or stripped.startswith("#"):
                continue
            if len(line) - len(stripped) <= indent and not stripped.startswith(_CLOSING):
                break
            last = end + 1
        block = lines[:last]
        try:
            self._tree = syntax_tree(_dedent(block[start:]), self.file, self.first_line + start)
        except SyntaxError:
            return inspect.getblock(lines)
        return block


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def _dedent(lines: list[str]) -> str:
    """Dedent the lines by the indent of the first.

    Lines of strings and comments that stand further left go to the margin.
    """
    indent = _indent_of(lines[0])
    if not indent:
        return "".join(lines)
    # A line of nothing but white space, shorter than the indent, keeps its end: the numbers of the
    # lines after it are counted from it.
    return "".join(
        (line[indent:] or "\n") if not line[:indent].strip() else line.lstrip(" \t")
        for line in lines
    )


def parse_definition(text: str) -> ast.FunctionDef:
    """The syntax tree of the one function in ``text``.

    Raises:
        DefinitionError: the text holds something else.
    """
    return _only_definition(syntax_tree(text))


def syntax_tree(text: str, file: str = "<text>", line: int = 1) -> ast.Module:
    """The syntax tree of ``text``, which stands at ``line`` of ``file``.

    Raises:
        SyntaxError: it is no Python.
        DefinitionError: it is nested more deeply than Python's parser goes.
    """
    try:
        with deep_recursion():
            return ast.parse(text)
    except (RecursionError, MemoryError):  # the latter is what the parser's own stack ends with
        message = (
            f"the function at {file}:{line} has an expression that is nested more deeply than "
            "Python reads"
        )
        raise DefinitionError(with_help(message, "split it into several statements")) from None


def _only_definition(tree: ast.Module) -> ast.FunctionDef:
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        found = type(tree.body[0]).__name__ if tree.body else "nothing"
        raise DefinitionError(f"a @jit function is one `def`, not {found}")
    return tree.body[0]
