"""Errors of a kernel's source: the rule, the source lines with a caret, and the inlined calls.

cannot add pointers together
  --> kernels.py:12:8 in scale
   11 |     a = x_ptr + i
   12 |     b = a + y_ptr
      |         ^^^^^^^^^
  inlined at kernels.py:30:4 in kernel
   30 |     scale(x, y)
      |     ^^^^^^^^^^^

Where a function of the library, or of a plugin, refuses what a kernel gave it, the kernel's line
comes first, and the library's after it:

not a power of two
  --> kernels.py:30:8 in kernel
   30 |     y = tl.zeros_like_rows(x)
      |         ^^^^^^^^^^^^^^^^^^^^^
  raised in .../standard/zero_tensors.py:40:11 in zeros_like_rows
   40 |     return tl.full(...)
      |            ^^^^^^^^^^^^

Programs written for Triton get each location twice: in parentheses also as the line within the
function, whose ``def`` is line 1, since their tests look for it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from tilewright.errors import SEE, CompilationError, UnsupportedLanguageConstruct, with_help
from tilewright.plugins.versions import plugin_version

if TYPE_CHECKING:
    from tilewright.frontend.frame import FunctionFrame

    #: (the caller, the call, whether the callee is compiled on its own)
    _Call = tuple[FunctionFrame, ast.AST, bool]

E = TypeVar("E", bound=CompilationError)
_PACKAGE = __name__.partition(".")[0]

#: Source lines shown above the line of the innermost caret.
_CONTEXT_LINES = 3
#: Maximum columns shown of a source line; of a longer line those around the caret.
_WIDTH = 160
#: Number of calls shown at either end of a longer chain.
_CHAIN_ENDS = 4


def located(
    frame: FunctionFrame,
    node: ast.AST,
    message: str,
    kind: type[E],
    conclusion: str = "",
) -> E:
    """Make an error of ``kind`` at ``node`` in the function that ``frame`` visits.

    ``conclusion`` is shown last.

    Inside a called function it is the cause of another one, kept as its ``outer``: see
    :func:`whole`.
    """
    rule, *notes = message.split("\n  help: ")
    remedies = [f"  help: {note}" for note in notes] + ([conclusion] if conclusion else [])
    line, column = position(frame, node)
    own = _excerpt(frame, node, "-->", _CONTEXT_LINES)
    error = kind(
        message,
        "\n".join((rule, *own, *remedies)),
        frame.file,
        line,
        column,
        frame.function.src,
        node,
    )
    chain = list(_calls(frame))
    if chain:
        outermost, call, _ = chain[-1]
        first, at, library, chain = _users_first(frame, node, chain)
        text = "\n".join(
            (
                rule,
                *_excerpt(first, at, "-->", _CONTEXT_LINES),
                *_inlined_at(chain),
                *library,
                *remedies,
            )
        )
        error.outer = kind(
            message, text, first.file, *position(first, at), outermost.function.src, call
        )
    return error


def _users_first(
    frame: FunctionFrame, node: ast.AST, chain: list[_Call]
) -> tuple[FunctionFrame, ast.AST, list[str], list[_Call]]:
    """Return the user's innermost location, the library's lines within it, and the call chain.

    The user's location is shown first.
    """
    places = [(frame, node), *((caller, call) for caller, call, _ in chain)]
    within = next((index for index, (found, _) in enumerate(places) if not _is_library(found)), 0)
    library: list[str] = []
    for index in range(within - 1, -1, -1):
        library += _excerpt(*places[index], "called in" if index else "raised in", 0)
    return *places[within], library, chain[within:]


def _is_library(frame: FunctionFrame) -> bool:
    """Return whether a function belongs to this package, a backend or another plugin.

    Otherwise its lines are those of the kernel's author.
    """
    module = frame.function.__module__ or ""
    return module.partition(".")[0] == _PACKAGE or plugin_version(module) != ""


def whole(error: CompilationError) -> CompilationError:
    """Return the error to raise to the kernel's author.

    This is ``error`` itself, or the error at the kernel's call that led there, with ``error`` as
    its cause.
    """
    outer = error.outer
    if outer is None:
        return error
    error.outer = None
    outer.__cause__ = error
    return outer


def _inlined_at(chain: list[_Call]) -> Iterator[str]:
    """Format the calls of a chain, innermost first."""
    hidden = len(chain) - 2 * _CHAIN_ENDS
    for index, (outer, call, separate) in enumerate(chain):
        if hidden > 1 and index == _CHAIN_ENDS:
            yield f"  ... {hidden} more calls ..."
        if hidden > 1 and _CHAIN_ENDS <= index < len(chain) - _CHAIN_ENDS:
            continue
        yield from _excerpt(outer, call, "called from" if separate else "inlined at", 0)


def _calls(frame: FunctionFrame) -> Iterator[_Call]:
    """Yield the calls that led to ``frame``, innermost first."""
    while frame.caller is not None:
        if frame.call_node is not None:
            yield frame.caller, frame.call_node, frame.separate
        frame = frame.caller


def relocated(frame: FunctionFrame, node: ast.AST, error: Exception) -> CompilationError:
    """Relocate ``error``, raised by a builtin or by the compiler itself, to ``node``.

    An exception of Python is its cause; an error of ours is replaced by it.
    """
    if isinstance(error, CompilationError):
        return located(frame, node, error.message, type(error))
    notes = [note for note in getattr(error, "__notes__", ()) if not note.startswith(SEE)]
    remedies = [note for note in notes if note.startswith("  help: ")]
    message = "\n".join(
        (": ".join((str(error), *(note for note in notes if note not in remedies))), *remedies)
    )
    if isinstance(error, KeyError) and len(error.args) == 1:
        message = str(error.args[0])
    return located(frame, node, message or type(error).__name__, CompilationError)


def cause(error: Exception) -> Exception | None:
    """Return the cause to chain in ``raise relocated(...) from``.

    None for a CompilationError or a RecursionError, which add nothing to the relocated copy.
    """
    return None if isinstance(error, CompilationError | RecursionError) else error


def unsupported(
    frame: FunctionFrame, node: ast.AST, construct: str, alternative: str = ""
) -> UnsupportedLanguageConstruct:
    """Make the error for an unsupported Python construct ("lambda is"), with its replacement."""
    message = (
        f"{construct} not supported in a kernel"
        if construct.endswith((" is", " are"))
        else f"{construct} in a kernel"
    )
    return located(frame, node, with_help(message, alternative), UnsupportedLanguageConstruct)


def position(frame: FunctionFrame, node: ast.AST) -> tuple[int, int]:
    """Return the (1-based line of the file, 0-based column) of a node."""
    return getattr(node, "lineno", 1) + frame.line_offset, getattr(
        node, "col_offset", 0
    ) + frame.indent


def _excerpt(frame: FunctionFrame, node: ast.AST, label: str, context: int) -> list[str]:
    lines = frame.source_lines
    number = getattr(node, "lineno", 1)
    line, column = position(frame, node)
    own = f" (at {number}:{getattr(node, 'col_offset', 0)}:)" if frame.own_lines else ""
    found = [f"  {label} {frame.file}:{line}:{column} in {frame.name}{own}"]
    if not 1 <= number <= len(lines):
        return found
    text = lines[number - 1]
    # The tree counts columns in bytes of UTF-8.
    start = len(text.encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore"))
    end_offset = getattr(node, "end_col_offset", None)
    on_one_line = getattr(node, "end_lineno", None) == number and end_offset is not None
    end = (
        len(text.encode()[:end_offset].decode(errors="ignore"))
        if on_one_line
        else len(text.rstrip())
    )
    width = len(str(line))
    shown = [
        " " * frame.indent + lines[i - 1].rstrip()
        for i in range(max(1, number - context), number + 1)
    ]
    start, end = start + frame.indent, end + frame.indent
    left = (
        0 if len(shown[-1]) <= _WIDTH else max(0, min(start - _WIDTH // 2, len(shown[-1]) - _WIDTH))
    )
    texts = [*(_window(text, 0) for text in shown[:-1]), _window(shown[-1], left)]
    found.extend(
        f"  {line - len(shown) + i:>{width}} | {text}".rstrip() for i, text in enumerate(texts, 1)
    )
    end = min(end, left + _WIDTH)
    found.append(f"  {' ' * width} | {' ' * (start - left)}{'^' * max(1, end - start)}")
    return found


def _window(text: str, left: int) -> str:
    """Cut a source line to the columns shown from ``left`` on, with ellipses where it continues."""
    shown = text[left : left + _WIDTH]
    if left and shown:
        shown = "…" + shown[1:]
    return f"{shown[:-1]}…" if left + _WIDTH < len(text) else shown


def source_of(node: ast.AST) -> str:
    """Return the source text of a node for a message, truncated if it is long."""
    try:
        text = ast.unparse(node)
    except RecursionError:
        return "..."
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
