"""Values carried by control flow: the values in ``for``, ``while`` and ``if`` that must agree."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.control import LOOPS, For, If, While
from tilewright.simt.dialect.ops.warp_specialize import Part, Partition
from tilewright.simt.layouts.linear_layout import LinearLayout


@dataclass(slots=True, eq=False)
class Carried:
    """Value carried by control flow.

    Attributes:
        operation: the operation that carries it.
        values: the block arguments and results that stand for it.
        sources: (operation, operand index) of its incoming values.
        layouts: the layouts that it is carried in, once they are known.
    """

    operation: Operation
    values: list[Value]
    sources: list[tuple[Operation, int]]
    layouts: list[LinearLayout] = field(default_factory=list)

    def incoming(self) -> list[Value]:
        return [operation.operands[position] for operation, position in self.sources]


def terminator(region: Region) -> Operation:
    """Return the terminator of a region."""
    last = region.terminator
    assert last is not None
    return last


def carried_values(operation: Operation) -> list[Carried]:
    """Return the values that an operation with regions carries, in order.

    For ``while``, the arguments of ``before`` come first, then the values that it forwards.
    """
    if isinstance(operation, For):
        (body,) = operation.regions
        last, first = terminator(body), len(operation.operands) - len(operation.results)
        return [
            Carried(operation, [body.arguments[i + 1], result], [(operation, first + i), (last, i)])
            for i, result in enumerate(operation.results)
        ]  # fmt: skip
    if isinstance(operation, If):
        lasts = [terminator(region) for region in operation.regions]
        return [
            Carried(operation, [result], [(last, i) for last in lasts])
            for i, result in enumerate(operation.results)
        ]
    if isinstance(operation, While):
        before, after = operation.regions
        condition, last = terminator(before), terminator(after)
        again = [
            Carried(operation, [argument], [(operation, i), (last, i)])
            for i, argument in enumerate(before.arguments)
        ]
        forwarded = [
            Carried(operation, [argument, result], [(condition, i + 1)])
            for i, (argument, result) in enumerate(
                zip(after.arguments, operation.results, strict=True)
            )
        ]
        return again + forwarded
    return []


#: Operations that carry values.
CARRIERS = (For, While, If)
#: Operations whose regions run beside each other, and those regions.
PARTITIONED = (Partition, Part)


def all_carried(function: Function) -> dict[Value, Carried]:
    """The carried value that each region argument or result is."""
    found: dict[Value, Carried] = {}
    for operation in operations_of_program(function.body):
        if isinstance(operation, CARRIERS):
            for carried in carried_values(operation):
                for value in carried.values:
                    found[value] = carried
    return found


def is_repeated(operation: Operation) -> bool:
    """Return whether an operation is in a loop."""
    return any(isinstance(outer, LOOPS) for outer in operation.ancestors())


def operations_of_program(region: Region) -> list[Operation]:
    """The operations on tiles in program order: regions of ``reduce``, ``scan`` and ``map``, which
    are about scalars, stay outside."""
    found: list[Operation] = []
    _collect(region, found)
    return found


def _collect(region: Region, found: list[Operation]) -> None:
    for operation in region:
        found.append(operation)
        if isinstance(operation, (CARRIERS, PARTITIONED)):
            for inner in operation.regions:
                _collect(inner, found)
