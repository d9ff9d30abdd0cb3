"""Errors of a kernel's source: the rule, then the source lines with a caret, then each call the code was inlined at.

cannot add pointers together
  --> kernels.py:12:8 in scale
   11 |     a = x_ptr + i
   12 |     b = a + y_ptr
      |         ^^^^^^^^^
  inlined at kernels.py:30:4 in kernel
   30 |     scale(x, y)
      |     ^^^^^^^^^^^
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from tilewright.errors import CompilationError, UnsupportedLanguageConstruct

if TYPE_CHECKING:
    from tilewright.frontend.frame import Frame

E = TypeVar("E", bound=CompilationError)

#: Source lines shown above the line of the innermost caret.
_CONTEXT_LINES = 3
#: Of a longer chain of calls, as many are shown at either end.
_CHAIN_ENDS = 4


def with_help(message: str, remedy: str) -> str:
    """``message``, then the remedy."""
    return f"{message}\n  help: {remedy}" if remedy else message


def similar(name: str, names: Iterable[str]) -> str:
    """A remedy that proposes the name most like ``name``; empty where none is."""
    found = difflib.get_close_matches(name, [known for known in names if known.isidentifier()], n=1, cutoff=0.8)
    return f"did you mean {found[0]}?" if found else ""


def located(frame: Frame, node: ast.AST, message: str, kind: type[E]) -> E:
    """An error of ``kind`` at ``node`` of the function that ``frame`` is visiting, with its chain of calls."""
    rule, *notes = message.split("\n  help: ")
    parts = [rule, *_excerpt(frame, node, "-->", _CONTEXT_LINES)]
    chain = list(_calls(frame))
    hidden = len(chain) - 2 * _CHAIN_ENDS
    for index, (outer, call, separate) in enumerate(chain):
        if hidden > 1 and index == _CHAIN_ENDS:
            parts.append(f"  ... {hidden} more calls ...")
        if hidden > 1 and _CHAIN_ENDS <= index < len(chain) - _CHAIN_ENDS:
            continue
        parts.extend(_excerpt(outer, call, "called from" if separate else "inlined at", 0))
    parts.extend(f"  help: {note}" for note in notes)
    line, column = position(frame, node)
    return kind(message, "\n".join(parts), frame.file, line, column)


def _calls(frame: Frame) -> Iterator[tuple[Frame, ast.AST, bool]]:
    """The calls that led to ``frame``, innermost first: (the caller, the call, whether the callee is compiled on its own)."""
    while frame.caller is not None:
        if frame.call_node is not None:
            yield frame.caller, frame.call_node, frame.separate
        frame = frame.caller


def relocated(frame: Frame, node: ast.AST, error: Exception) -> CompilationError:
    """``error``, raised by a builtin or by the compiler itself, as an error at ``node``."""
    if isinstance(error, CompilationError):
        return located(frame, node, error.message, type(error))
    message = str(error)
    if isinstance(error, KeyError) and len(error.args) == 1:
        message = str(error.args[0])
    return located(frame, node, message or type(error).__name__, CompilationError)


def unsupported(frame: Frame, node: ast.AST, construct: str, alternative: str = "") -> UnsupportedLanguageConstruct:
    """An error that names a construct of Python the language does not have ("lambda is"), and what to write instead."""
    message = f"{construct} not supported in a kernel" if construct.endswith((" is", " are")) else f"{construct} in a kernel"
    return located(frame, node, with_help(message, alternative), UnsupportedLanguageConstruct)


def position(frame: Frame, node: ast.AST) -> tuple[int, int]:
    """(1-based line of the file, 0-based column) of a node."""
    return getattr(node, "lineno", 1) + frame.line_offset, getattr(node, "col_offset", 0) + frame.indent


def _excerpt(frame: Frame, node: ast.AST, label: str, context: int) -> list[str]:
    lines = frame.source_lines
    number = getattr(node, "lineno", 1)
    line, column = position(frame, node)
    found = [f"  {label} {frame.file}:{line}:{column} in {frame.name}"]
    if not 1 <= number <= len(lines):
        return found
    text = lines[number - 1]
    # The tree counts columns in bytes of UTF-8.
    start = len(text.encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore"))
    end_offset = getattr(node, "end_col_offset", None)
    on_one_line = getattr(node, "end_lineno", None) == number and end_offset is not None
    end = len(text.encode()[:end_offset].decode(errors="ignore")) if on_one_line else len(text.rstrip())
    width = len(str(line))
    shown = range(max(1, number - context), number + 1)
    found.extend(f"  {i + frame.line_offset:>{width}} | {' ' * frame.indent}{lines[i - 1].rstrip()}".rstrip() for i in shown)
    found.append(f"  {' ' * width} | {' ' * (frame.indent + start)}{'^' * max(1, end - start)}")
    return found
