"""Source of functions that no file defines: typed at a prompt, from ``-c`` or ``exec``.

Such texts are looked for where they may still be: the command line, a redirected standard input,
the history of the prompt, the variables and constants of the functions that are running. What is
found is compiled, and taken only where a function of the same code comes out. Python 3.13 and
IPython keep what is typed in :mod:`linecache`, where nothing has to be looked for; but the text of
``python -c`` is there under the name that all texts have which ``exec`` is given: it is held
against the function, too.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any

#: ``from __future__`` flags of code objects.
_FUTURES = 0x1FF0000
#: The name of every text that is run without one.
_NO_NAME = "<string>"
#: How many lines of a prompt's history a function may have been typed in.
_TYPED = 1000


def is_of_another(fn: Callable[..., Any], lines: Sequence[str]) -> bool:
    """Return whether :mod:`linecache` has the lines of another text for a function's file name."""
    return fn.__code__.co_filename == _NO_NAME and not _makes("".join(lines), "exec", fn.__code__)


def typed_text(fn: FunctionType, frame: FrameType | None) -> str | None:
    """Return the text in which ``fn`` begins at line ``co_firstlineno``; None where none is found.

    ``frame`` defines the function.
    """
    code = fn.__code__
    for text, mode in _candidates(code, frame):
        if f"def {code.co_name}" in text and _makes(text, mode, code):
            return text
    return None


def _candidates(code: CodeType, frame: FrameType | None) -> Iterator[tuple[str, str]]:
    for text in sys.orig_argv:
        yield text, "exec"
    if code.co_filename == "<stdin>":
        yield from ((text, "exec") for text in _standard_input())
        yield from ((text, "single") for text in _prompt(code.co_name))
    while frame is not None:
        for value in (*frame.f_locals.values(), *frame.f_code.co_consts):
            if type(value) is str:
                yield value, "exec"
            elif type(value) is bytes:
                yield value.decode(errors="replace"), "exec"
        frame = frame.f_back


def _standard_input() -> Iterator[str]:
    """Yield the contents of the file that standard input was redirected from."""
    try:
        found = os.fstat(0)
        if stat.S_ISREG(found.st_mode):
            yield os.pread(0, found.st_size, 0).decode(errors="replace")
    except OSError:
        return


def _prompt(name: str) -> Iterator[str]:
    """Yield the latest input of the prompt, from each line on that may begin the function.

    The prompt's history has no empty lines.
    """
    readline = sys.modules.get("readline")
    if readline is None:
        return
    last = readline.get_current_history_length()
    lines: list[str] = []
    for number in range(last, max(0, last - _TYPED), -1):
        lines.insert(0, readline.get_history_item(number) or "")
        if lines[0].startswith((f"def {name}", "@")):
            yield "\n".join(lines) + "\n"


def _makes(text: str, mode: str, code: CodeType) -> bool:
    """Return whether compiling a text yields a function of this code."""
    try:
        whole = compile(
            text, code.co_filename, mode, flags=code.co_flags & _FUTURES, dont_inherit=True
        )
    except (SyntaxError, ValueError):
        return False
    stack: list[CodeType] = [whole]
    while stack:
        inner = [constant for constant in stack.pop().co_consts if isinstance(constant, CodeType)]
        if code in inner:
            return True
        stack.extend(inner)
    return False
