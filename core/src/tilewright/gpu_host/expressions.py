"""Integer expressions over a launch's arguments, as plain data for a code object's metadata.

    Expression = int | ("word", argument, index) | (operator, Expression, Expression)

A word is one of the 8-byte words in which the kernel receives an argument
(:mod:`tilewright.runtime.arguments.argument_words`): word 0 of a scalar or pointer is its value, a
descriptor's are its address, its extents and its strides in elements, outermost first. Arguments
are counted as the launcher is given them. Every word, constant and result has 64 bits with sign. An
expression whose value, or the value of a part of it, does not fit, and one that divides by zero,
has none. Division rounds towards zero.

An expression is evaluated in Python (:func:`evaluate`) or written as LLVM IR (:class:`Emitter`);
both agree on the value and on whether there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tilewright.errors import TilewrightError
from tilewright.llvm.emission.writer import FunctionWriter

#: See the module's documentation. A recursive alias of tuples is more than type checkers follow.
Expression = int | tuple[Any, ...]

WORD: Final = "word"
_MIN, _MAX = -(2**63), 2**63 - 1


class ExpressionError(TilewrightError, ValueError):
    """Malformed expression data, or an expression without a value for a launch's words."""


def _quotient(x: int, y: int) -> int:
    if y == 0:
        raise ExpressionError(f"{x} is divided by zero")
    magnitude = abs(x) // abs(y)
    return magnitude if (x < 0) == (y < 0) else -magnitude


#: The operators, which have the names of Tile IR's operations.
OPERATORS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "min": min,
    "max": max,
    "div": _quotient,
}
#: Operators whose result may overflow -> the name in LLVM's overflow intrinsics.
_OVERFLOWING: Final = {"add": "sadd", "sub": "ssub", "mul": "smul"}


def word(argument: int, index: int = 0) -> Expression:
    """Make the expression of word ``index`` of an argument."""
    return (WORD, argument, index)


def checked(expression: Any) -> Expression:
    """Validate an ``expression`` read from JSON, and convert its lists to tuples.

    Raises:
        ExpressionError: it is no expression; names the part that is none.
    """
    if type(expression) is int:
        if not _MIN <= expression <= _MAX:
            raise ExpressionError(f"{expression} does not fit 64 bits")
        return expression
    if isinstance(expression, list | tuple) and len(expression) == 3:
        operator, first, second = expression
        if operator == WORD:
            if type(first) is int and type(second) is int and first >= 0 and second >= 0:
                return (WORD, first, second)
        elif operator in OPERATORS:
            return (operator, checked(first), checked(second))
    raise ExpressionError(
        f"{expression!r:.200} is no expression: an integer, ('word', argument, index) or one of "
        f"{', '.join(OPERATORS)} with two operands"
    )


def plain(expression: Expression) -> Any:
    """Convert ``expression`` to JSON data, with lists for tuples; the inverse of
    :func:`checked`."""
    return (
        [part if isinstance(part, str) else plain(part) for part in expression]
        if isinstance(expression, tuple)
        else expression
    )


def words_of(expression: Expression) -> Iterator[tuple[int, int]]:
    """Yield the (argument, index) of each word in an expression, in order, with repetitions."""
    if isinstance(expression, tuple):
        operator, first, second = expression
        if operator == WORD:
            yield first, second
        else:
            yield from words_of(first)
            yield from words_of(second)


def with_words(expression: Expression, replacement: Callable[[int, int], Expression]) -> Expression:
    """Substitute ``replacement(argument, index)`` for each word of ``expression``."""
    if not isinstance(expression, tuple):
        return expression
    operator, first, second = expression
    return (
        replacement(first, second)
        if operator == WORD
        else (operator, with_words(first, replacement), with_words(second, replacement))
    )


def evaluate(expression: Expression, words: Sequence[Sequence[int]]) -> int:
    """Evaluate an expression for a launch.

    Args:
        words: of each argument. Words outside the signed 64-bit range are reinterpreted as signed.

    Raises:
        ExpressionError: there is no value, or no such word.
    """
    if not isinstance(expression, tuple):
        return expression
    operator, first, second = expression
    if operator == WORD:
        try:
            found = words[first][second]
        except IndexError:
            raise ExpressionError(f"there is no word {second} of argument {first}") from None
        return (found - _MIN) % 2**64 + _MIN
    value = OPERATORS[operator](evaluate(first, words), evaluate(second, words))
    if not _MIN <= value <= _MAX:
        raise ExpressionError(f"the value {value} of {expression!r:.200} does not fit 64 bits")
    return value


class Emitter:
    """Emitter of expressions as LLVM IR; each subexpression is emitted once.

    Attributes:
        faults: i1 values, one of which holds where an expression that was written has no value.
            What is computed then is of no meaning, but is computed.
    """

    def __init__(self, writer: FunctionWriter, word: Callable[[int, int], str]) -> None:
        """Begin.

        Args:
            word: (argument, index) -> the i64 value of a word.
        """
        self.faults: list[str] = []
        self._w, self._word = writer, word
        self._written: dict[Expression, str] = {}

    def emit(self, expression: Expression) -> str:
        """Emit an expression and return its i64 value.

        All expressions go into one block, or each into a block dominated by those of the earlier
        ones.
        """
        if not isinstance(expression, tuple):
            return str(expression)
        found = self._written.get(expression)
        if found is None:
            operator, first, second = expression
            found = (
                self._word(first, second)
                if operator == WORD
                else self._operation(operator, self.emit(first), self.emit(second))
            )
            self._written[expression] = found
        return found

    def _operation(self, operator: str, x: str, y: str) -> str:
        w = self._w
        if operator in _OVERFLOWING:
            both = w.call(
                f"llvm.{_OVERFLOWING[operator]}.with.overflow.i64",
                "{i64, i1}",
                [("i64", x), ("i64", y)],
            )
            self.faults.append(w.emit(f"extractvalue {{i64, i1}} {both}, 1"))
            return w.emit(f"extractvalue {{i64, i1}} {both}, 0")
        if operator in ("min", "max"):
            return w.call(f"llvm.s{operator}.i64", "i64", [("i64", x), ("i64", y)])
        overflows = w.emit(
            f"and i1 {w.emit(f'icmp eq i64 {x}, {_MIN}')}, {w.emit(f'icmp eq i64 {y}, -1')}"
        )
        fault = w.emit(f"or i1 {overflows}, {w.emit(f'icmp eq i64 {y}, 0')}")
        self.faults.append(fault)
        return w.emit(f"sdiv i64 {x}, {w.emit(f'select i1 {fault}, i64 1, i64 {y}')}")

    def fault(self) -> str:
        """Emit an i1 that is true where an emitted expression has no value."""
        found = "false"
        for each in self.faults:
            found = each if found == "false" else self._w.emit(f"or i1 {found}, {each}")
        return found
