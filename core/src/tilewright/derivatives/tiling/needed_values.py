"""The part of a kernel that computes some of its writes."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.control import For


def needed_values(writes: Iterable[Operation]) -> set[Value]:
    """Return the values from which writes are computed: data, addresses, masks and conditions.

    Of what a loop carries only those are needed that the writes depend on.
    """
    found: set[Value] = set()
    pending: list[Value] = []
    entered: set[Operation] = set()

    def enter(operation: Operation) -> None:
        for around in operation.ancestors():
            if around in entered:
                continue
            entered.add(around)
            pending.extend(around.operands[:3] if isinstance(around, For) else around.operands)

    for write in writes:
        pending += write.operands
        enter(write)
    while pending:
        value = pending.pop()
        if value in found:
            continue
        found.add(value)
        owner = value.owner
        if isinstance(owner, Operation):
            enter(owner)
            pending += _sources(owner, value.index)
        elif isinstance(owner.owner, Operation):
            around = owner.owner
            position = value.index - 1 if isinstance(around, For) else value.index
            pending += _sources(around, position)
    return found


def _sources(operation: Operation, position: int) -> list[Value]:
    """Return the values that the result, or the carried value, of a position depends on."""
    yields = [region.last for region in operation.regions if region.last is not None]
    if not isinstance(operation, For):
        return [*operation.operands, *(value for last in yields for value in last.operands)]
    bounds = [operation.lower, operation.upper, operation.step]
    if position < 0:
        return bounds
    (last,) = yields
    return [*bounds, operation.inits[position], last.operands[position]]


__all__ = ["needed_values"]
