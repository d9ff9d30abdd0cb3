"""Rows of exact mode: an operation's law, and what a verdict may conclude behind it.

A row stands beside the function that emits it (:func:`elementwise`, :func:`whole`). Operations
without a row have the trait ``BITWISE``: they move floats, or have none.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.ir.core import Operation, Value
from tilewright.ir.expressions import Number
from tilewright.ir.ops import TABLE
from tilewright.ir.table import Trait
from tilewright.ir.types import element_type
from tilewright.passes.exact.ring import is_float, ring_of
from tilewright.passes.package_modules import import_modules

if TYPE_CHECKING:
    from tilewright.passes.exact.context import ExactContext


class Meaning(enum.Enum):
    """The algebra that an operation keeps."""

    RING = "an operation of the ring: its identities hold"
    LOSES_DIGIT = "an operation of the ring, whose result has one digit less"
    UNINTERPRETED = "equal operands have equal results, and nothing else is known"


@dataclass(frozen=True, slots=True)
class Rule:
    """The row of an operation.

    Attributes:
        operation: its name in the op table.
        law: its value, in one line.
        keeps: identities of real numbers that hold in the ring.
        breaks: identities of real numbers that do not.
        meaning: how much algebra is left.
        digitwise: whether the value modulo 251^j is a function of the operands modulo 251^j, so
            that a narrowing cast may be moved across the operation.
        emit: ``emit(rewriter, operation)`` returns the values of the results: payloads for floats.
        applies: whether the row is about an operation on floats at hand; others are moved.
        is_uninterpreted: whether nothing but the operands is known of an operation at hand.
    """

    operation: str
    law: str
    keeps: tuple[str, ...]
    breaks: tuple[str, ...]
    meaning: Meaning
    digitwise: bool
    emit: Callable[[Any, Any], list[Value]]
    applies: Callable[[Any], bool]
    is_uninterpreted: Callable[[Any], bool]


_RULES: dict[str, Rule] = {}


@functools.cache
def rules() -> Mapping[str, Rule]:
    """The rows by operation."""
    import_modules("tilewright.passes.exact")
    return _RULES


def touches_floats(operation: Operation) -> bool:
    """Return whether an operand or a result holds floats."""
    return any(is_float(value.type) for value in (*operation.operands, *operation.results))


def rule_of(operation: Operation) -> Rule | None:
    """Return the row of an operation that computes floats; None for one that moves them."""
    rule = rules().get(operation.name)
    return rule if rule is not None and rule.applies(operation) else None


def is_moved(operation: Operation) -> bool:
    """Return whether an operation moves floats, or has none.

    The op table says so, or a row does that is about other kinds of the operation.
    """
    bitwise = operation.spec.traits & (Trait.BITWISE | Trait.SHAPE)
    return bool(bitwise) or operation.name in rules() or not touches_floats(operation)


def whole(
    operation: str,
    law: str,
    *,
    keeps: tuple[str, ...] = (),
    breaks: tuple[str, ...] = (),
    meaning: Meaning = Meaning.RING,
    digitwise: bool = True,
    applies: Callable[[Any], bool] = touches_floats,
    is_uninterpreted: Callable[[Any], bool] | None = None,
) -> Callable[[Callable[..., list[Value]]], Callable[..., list[Value]]]:
    """Register ``emit(rewriter, operation)`` as an operation's row.

    ``is_uninterpreted`` is as the meaning says by default.
    """

    def register(emit: Callable[..., list[Value]]) -> Callable[..., list[Value]]:
        if operation in _RULES:
            raise ValueError(f"operation {operation!r} has two rows in exact mode")
        assert operation in TABLE
        _RULES[operation] = Rule(
            operation,
            law,
            keeps,
            breaks,
            meaning,
            digitwise,
            emit,
            applies,
            is_uninterpreted or (lambda _: meaning is Meaning.UNINTERPRETED),
        )
        return emit

    return register


def elementwise(
    operation: str,
    law: str,
    *,
    attributes: tuple[str, ...] = (),
    keeps: tuple[str, ...] = (),
    breaks: tuple[str, ...] = (),
    meaning: Meaning = Meaning.RING,
    digitwise: bool = True,
) -> Callable[[Callable[..., Number]], Callable[..., Number]]:
    """Register ``write(ring, *numbers)`` as an elementwise operation's row.

    The ring is that of the first float operand, or of the result. Numbers are payloads of floats,
    and integers as they are; the attributes named are keyword arguments.
    """

    def register(write: Callable[..., Number]) -> Callable[..., Number]:
        def emit(rewriter: ExactContext, found: Operation) -> list[Value]:
            values = tuple((name, found.attribute(name)) for name in attributes)
            like = next(v.type for v in (*found.operands, *found.results) if is_float(v.type))

            def written(*numbers: Number) -> Number:
                return write(ring_of(like), *numbers, **dict(values))

            key = (operation, element_type(like), values)
            return rewriter.applied(key, written, found.operands, found.result.type)

        whole(
            operation,
            law,
            keeps=keeps,
            breaks=breaks,
            meaning=meaning,
            digitwise=digitwise,
        )(emit)
        return write

    return register
