"""Facts that verdicts rest on: operations without algebra, lost digits, identities not kept."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.core import Location, Module, Operation
from tilewright.passes.exact.rules import Meaning, rule_of, touches_floats


@dataclass(frozen=True, slots=True)
class Uninterpreted:
    """An operation of which only the operands are known."""

    operation: str
    location: Location | None

    def __str__(self) -> str:
        return self.operation if self.location is None else f"{self.operation} at {self.location}"


@dataclass(frozen=True, slots=True)
class ExactReport:
    """Facts about a module on floats.

    Attributes:
        uninterpreted: its operations without algebra, in program order.
        loses_digit: whether an operation loses the upper digit, as logarithms do.
        breaks: identities of real numbers that its operations do not keep, without repetition.
    """

    uninterpreted: tuple[Uninterpreted, ...] = ()
    loses_digit: bool = False
    breaks: tuple[str, ...] = ()

    def __or__(self, other: ExactReport) -> ExactReport:
        return ExactReport(
            tuple(dict.fromkeys((*self.uninterpreted, *other.uninterpreted))),
            self.loses_digit or other.loses_digit,
            tuple(dict.fromkeys((*self.breaks, *other.breaks))),
        )


def uninterpreted_of(operation: Operation) -> Uninterpreted | None:
    """Return the fact that only an operation's operands are known; None where more is."""
    rule = rule_of(operation) if touches_floats(operation) else None
    if rule is None or not rule.is_uninterpreted(operation):
        return None
    return Uninterpreted(operation.name, operation.location)


def report(module: Module) -> ExactReport:
    """Return the facts about a module as the frontend built it."""
    uninterpreted: dict[Uninterpreted, None] = {}
    breaks: dict[str, None] = {}
    loses_digit = False
    for operation in module.walk():
        rule = rule_of(operation) if touches_floats(operation) else None
        if rule is None:
            continue
        found = uninterpreted_of(operation)
        if found is not None:
            uninterpreted[found] = None
        loses_digit |= rule.meaning is Meaning.LOSES_DIGIT
        breaks.update(dict.fromkeys(rule.breaks))
    return ExactReport(tuple(uninterpreted), loses_digit, tuple(breaks))
