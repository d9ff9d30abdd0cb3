"""The exceptions that users meet, and reproducer files for defects.

All exceptions derive from :class:`TilewrightError` and can be pickled.

Messages say what happened, where, with which types, and what to do about it.
"""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable

E = TypeVar("E", bound=BaseException)


def noted(error: E, note: str) -> E:
    """Attach the circumstances to ``error`` as a note, and return it.

    ``str`` returns the rule alone; the display of the error adds the note.
    """
    error.add_note(note)
    return error


def with_help(message: str, remedy: str) -> str:
    """``message``, then the remedy."""
    return f"{message}\n  help: {remedy}" if remedy else message


def helped(error: E, remedy: str) -> E:
    """Attach a remedy to ``error`` as a note, and return it.

    An error of a kernel's source shows it below the caret; see :func:`noted`.
    """
    error.add_note(with_help("", remedy).lstrip("\n"))
    if len(notes := error.__notes__) > 1 and notes[-2].startswith(SEE):  # stays the last line
        notes[-2:] = reversed(notes[-2:])
    return error


def closest(name: str, names: Iterable[str], *, shortened: bool = False) -> str:
    """The name most like ``name``; empty where none is.

    Args:
        shortened: whether a name may also be meant where one of the two begins with the other, as
            ``BLOCK`` for ``B``.
    """
    import difflib

    known = {other.lower(): other for other in names if other.isidentifier() and other != name}
    wanted = name.lower()
    found = difflib.get_close_matches(wanted, known, n=1, cutoff=0.8) or [
        other for other in known if sorted(other) == sorted(wanted)
    ]
    if not found and shortened:
        found = sorted(
            (other for other in known if other.startswith(wanted) or wanted.startswith(other)),
            key=lambda other: abs(len(other) - len(wanted)),
        )
    return known[found[0]] if found else ""


def similar(name: str, names: Iterable[str], *, shortened: bool = False) -> str:
    """Return a remedy that proposes the name most like ``name`` (see :func:`closest`), or ""."""
    meant = closest(name, names, shortened=shortened)
    return f"did you mean {meant}?" if meant else ""


def integer_text(value: int) -> str:
    """Format an integer for a message: the leading digits alone where there are many.

    Python itself refuses to format more than a few thousand digits.
    """
    return (
        str(value)
        if value.bit_length() < 200
        else f"{value:#x}"[:20] + f"... (of {value.bit_length()} bits)"
    )


#: What the note begins with that names the page of the documentation about an error.
SEE = "  see: tilewright help "


#: The page that lists messages with their causes and remedies.
_MESSAGES = "guides/faq#errors-by-message"


class TilewrightError(Exception):
    """Base class of the errors that Tilewright defines and raises.

    Attributes:
        page: the page of the documentation about such errors, as an argument of ``tilewright
            help``, or an empty string. Python displays it as a note: in the last line of the error,
            but not in ``str(error)``.
    """

    page: ClassVar[str] = ""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        if self.page:
            self.add_note(f"{SEE}{self.page}")


class CompilationError(TilewrightError):
    """An error in a kernel's source.

    The text ``str(error)`` contains the file, the line number, the source line with a caret below
    the error, and the calls that led to this line.

    If a kernel calls a function, and the error is in this function, ``src`` and ``node`` of the
    raised error describe the call. The attribute ``__cause__`` of the raised error is then a second
    ``CompilationError``, whose ``src`` and ``node`` describe the line in the function. If a kernel
    calls a function of ``tl`` that raises an exception of another type, this exception is the
    ``__cause__`` of the ``CompilationError``.

    Attributes:
        message: the text of the error without the location; ``error_message`` is the same.
        file, line, column: the location of the error, also if it is in a called function. Lines
            count from 1, and columns from 0; None if it is unknown.
        src: the source of the function that contains ``node``, from its ``def`` on.
        node: the node of the syntax tree of ``src`` that is wrong, or the call that led to the
            error.
    """

    page = _MESSAGES

    def __init__(
        self,
        message: str,
        text: str | None = None,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        src: str | None = None,
        node: ast.AST | None = None,
    ) -> None:
        super().__init__(text if text is not None else message)
        self.message, self.text, self.file, self.line, self.column = (
            message,
            text,
            file,
            line,
            column,
        )
        self.src, self.node = src, node
        #: while compiling: the same error as the kernel's author will meet it, if it is another
        self.outer: CompilationError | None = None

    @property
    def error_message(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (
            self.message,
            self.text,
            self.file,
            self.line,
            self.column,
            self.src,
            self.node,
        )


class CompileTimeAssertionFailure(CompilationError):
    """A ``static_assert`` of a kernel does not hold."""

    page = "debugging#prints-and-asserts"


class DefinitionError(TilewrightError, TypeError, ValueError):
    """A function that cannot become part of the language, or invalid arguments of its decorator."""

    page = _MESSAGES


class UnsupportedLanguageConstruct(CompilationError):
    """A kernel uses Python that the language does not have."""


class BackendError(TilewrightError):
    """A backend is missing or broken, or does not support a device or a feature of a kernel."""

    page = _MESSAGES


class LoweringError(BackendError):
    """A backend could not compile the Tile IR of a kernel to machine code."""


class OutOfResources(BackendError):
    """A kernel needs more of a resource than the target has.

    The attribute ``name`` contains the name of the resource, and sometimes the name of the kernel,
    as in ``"shared memory of matmul"``.
    """

    def __init__(self, required: int, limit: int, name: str) -> None:
        resource, _, where = name.partition(" of ")
        text = (
            f"out of resource: {resource}, Required: {required}, Hardware limit: "
            f"{limit}{f', in {where}' if where else ''}"
        )
        super().__init__(f"{text}. Reducing block sizes or `num_stages` may help.")
        self.required, self.limit, self.name = required, limit, name

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.required, self.limit, self.name)


class ResidencyError(OutOfResources):
    """A cooperative launch has more programs than can be resident at once; nothing was started.

    ``required`` and ``limit`` count programs.
    """

    page = "reference/cooperative"

    def __init__(self, kernel: str, grid: tuple[int, ...], limit: int, why: str) -> None:
        required = math.prod(grid)
        super().__init__(required, limit, f"programs at once of kernel {kernel}")
        self.args = (
            f"kernel {kernel}: a cooperative launch runs all its programs at once, and of the "
            f"{required} of grid {grid} {limit} fit: {why}. Launch at most {limit} programs, and "
            "let each do the work of several in a loop: for tile in range(tl.program_id(0), tiles, "
            "tl.num_programs(0))",
        )
        self.kernel, self.grid, self.why = kernel, grid, why

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kernel, self.grid, self.limit, self.why)


class VariableError(TilewrightError, ValueError):
    """A variable of the environment has a value that means nothing."""

    page = "reference/environment"


class LaunchError(TilewrightError):
    """The arguments, the grid or the options of a launch do not match the kernel.

    If a launch has too few or too many arguments, it raises the subclass
    ``tilewright.errors.BindingError``, which is also a ``TypeError``.
    """

    page = _MESSAGES


class BindingError(LaunchError, TypeError):
    """A launch's arguments cannot be bound to the kernel's parameters as Python binds them."""


class UnknownOptionError(LaunchError, KeyError):
    """A keyword of a launch is neither a parameter of the kernel nor an option of the backend."""

    __str__ = Exception.__str__  # a KeyError shows its message in quotes


class ReservedOptionError(LaunchError, AssertionError):
    """A keyword of a launch would set what follows from its arguments."""


class RefusedError(LaunchError):
    """A launch's arguments violate assumptions of the kernel's code; nothing was started.

    See :mod:`tilewright.runtime.launch.fallback_kernel`.
    """


class KernelError(TilewrightError, RuntimeError):
    """An assertion failed while a kernel ran, or checked mode found a fault of the kernel."""

    page = "debugging#checks-in-compiled-code"


class HostCallError(TilewrightError, RuntimeError, ValueError):
    """A function of the language was called from the host, outside of every kernel."""

    page = _MESSAGES


class ForeignKernelError(TilewrightError):
    """A pickled kernel comes from a process where another package is named ``triton``."""

    page = "reference/triton#use-the-name-triton"

    def __init__(self) -> None:
        super().__init__(
            "a kernel was sent by a process in which 'triton' is another package, while Tilewright "
            "answers to that name here. Importing tilewright.compat.triton does not reach "
            "processes that this one starts, such as PyTorch's compile workers: start the program "
            "with TILEWRIGHT_TRITON=1 in the environment, or by python -m tilewright.compat.triton"
        )


class AutotunerError(TilewrightError):
    """The autotuner cannot choose a configuration of the kernel."""

    page = "reference/tuning"

    def __str__(self) -> str:
        return f"Autotuner error: {super().__str__()}"


class TuningArgumentError(TilewrightError, ValueError):
    """An argument of ``autotune`` is invalid for the kernel."""

    page = "reference/tuning"


class BenchmarkError(TilewrightError, ValueError):
    """An argument of a measurement is invalid."""

    page = "performance#measure"


class ConfigError(TilewrightError, TypeError):
    """A configuration of the wrong type, or with settings that configurations do not have."""

    page = "reference/tuning"


def write_reproducer(content: str | bytes, suffix: str = ".ll") -> Path:
    """Write IR text, or other input that a tool rejects, to a file named by its content.

    The file lies in ``TILEWRIGHT_REPRODUCER_DIR``, or in the directory of temporary files.

    Others may write to that directory and guess the name: what lies there already is left alone,
    unless it is this user's file of the same content.
    """
    import hashlib
    import tempfile

    written = content.encode() if isinstance(content, str) else content
    folder = Path(os.environ.get("TILEWRIGHT_REPRODUCER_DIR") or tempfile.gettempdir())
    folder.mkdir(parents=True, exist_ok=True)
    name = f"tilewright-{hashlib.sha256(written).hexdigest()[:16]}"
    path = folder / f"{name}{suffix}"
    try:
        handle = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600
        )
    except FileExistsError:
        if _is_own_file(path) and path.read_bytes() == written:
            return path
        handle, other = tempfile.mkstemp(suffix, f"{name}-", folder)
        path = Path(other)
    with os.fdopen(handle, "wb") as file:
        file.write(written)
    return path


def _is_own_file(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and (
        not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    )
