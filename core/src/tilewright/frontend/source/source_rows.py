"""The table of how each operation is written in the language.

A row is a function of the writer and the operation. A plugin's operation brings its own: a method
``source_expression(self, writer)`` of its class, which returns an expression, such as a call of the
function of the language that emits the operation.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.errors import TilewrightError, with_help
from tilewright.frontend.loops import STEP_IS_NOT_POSITIVE
from tilewright.ir.ops.debug import Assert
from tilewright.language.builtin_functions.operators import OVERFLOW_DETECTED

if TYPE_CHECKING:
    from tilewright.ir.core import Operation, Region, Value
    from tilewright.ir.ops.control import Call

#: Writes an operation. An expression row returns its value, or the tuple of its values; a statement
#: row writes lines and returns nothing.
Write = Callable[[Any, Any], Any]


class SourceError(TilewrightError):
    """The language has no source for an operation."""


class CalledFunctions(Protocol):
    """The functions that one function calls, which are written before it.

    Attributes:
        parameters: names of the parameters of the function that is written.
    """

    parameters: frozenset[str]

    def captured(self, value: Value) -> SourceError:
        """Return the error for a value that a function would have to capture."""
        ...

    def callee(self, call: Call) -> str:
        """Return the name of the function that a call runs."""
        ...

    def constant(self, wanted: str, text: str) -> str:
        """Return the name of a constant of the file."""
        ...

    def function_of(self, region: Region, kind: str) -> str:
        """Return the name of a function that does what a region does."""
        ...


class SourceForm(enum.Enum):
    """Place of an operation in the source."""

    EXPRESSION = "an expression"
    STATEMENT = "lines of its own"
    #: rewritten wherever it is read, because it costs nothing or the language implies it
    IMPLIED = "within what reads it"
    #: written by the operation around it
    TERMINATOR = "the end of a block"


@dataclass(frozen=True, slots=True)
class SourceRow:
    """Row of the table: where an operation stands, and what writes it."""

    form: SourceForm
    write: Write


#: operation -> its row
ROWS: dict[str, SourceRow] = {}


def written(*names: str, form: SourceForm = SourceForm.EXPRESSION) -> Callable[[Write], Write]:
    """Register the function that writes the operations of these names."""

    def register(write: Write) -> Write:
        for name in names:
            if name in ROWS:
                raise ValueError(f"operation {name!r} has two rows of source")
            ROWS[name] = SourceRow(form, write)
        return write

    return register


def row_of(operation: Operation) -> SourceRow:
    """Return the row of an operation.

    Raises:
        SourceError: it has none.
    """
    row = ROWS.get(operation.name)
    if row is not None:
        return row
    write = getattr(type(operation), "source_expression", None)
    if write is None:
        raise unwritable(
            operation,
            "the language has no function for it that is known here",
            "let its class have a method source_expression",
        )
    return SourceRow(SourceForm.EXPRESSION, lambda writer, op: write(op, writer))


def is_implied_check(operation: Operation) -> bool:
    """Return whether an operation is an assertion that the frontend makes by itself.

    In debug mode it asserts that integers do not overflow, and on some targets that the step of a
    loop is positive.
    """
    if not isinstance(operation, Assert):
        return False
    return operation.message == STEP_IS_NOT_POSITIVE or OVERFLOW_DETECTED in operation.message


def unwritable(operation: Operation, why: str, remedy: str = "") -> SourceError:
    """Return the error for an operation that the language cannot express."""
    where = "" if operation.location is None else f" (of {operation.location})"
    return SourceError(with_help(f"{operation.name}{where} has no source: {why}", remedy))
