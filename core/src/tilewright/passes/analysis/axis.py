"""Axis analysis: how the values of integer and pointer tiles run along each axis.

A forward data-flow analysis over structured control flow; loops are iterated to a fixed point,
optimistically from what their carried values begin as. Backends read from it how wide a memory
access may be, how far it is aligned, and where a mask changes.

Index arithmetic is taken not to overflow its type: a run that wrapped around inside would address
memory on both ends of the address space. So are addresses taken not to be made of negative
remainders: ``x % n``, which keeps kernels inside an array of n elements, runs on where x is not
negative, and that is only known of x by what it is for (:attr:`AxisInfo.addressing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.control import Condition, For, If, While
from tilewright.passes.analysis.axis_arithmetic import AxisArithmetic
from tilewright.passes.analysis.axis_info import (
    AxisInfo,
    join,
    power_of_two_in,
    unit_of,
    unknown,
)


def axis_info(function: Function) -> dict[Value, AxisInfo]:
    """Analyze every value of a function."""
    analysis = _Analysis()
    for argument, attributes in zip(function.arguments, function.argument_attributes, strict=True):
        info = unknown(argument.type)
        analysis.known[argument] = replace(
            info, divisibility=(power_of_two_in(attributes.get("divisibility", 1)),) * info.rank
        )
    analysis.region(function.body)
    return analysis.known


class _Analysis(AxisArithmetic):
    """Forward analysis in program order; ``known`` holds the attributes found."""

    def __init__(self) -> None:
        self.known: dict[Value, AxisInfo] = {}

    def region(self, region: Region) -> None:
        for operation in region:
            structured = _STRUCTURED.get(operation.name)
            if structured is not None:
                structured(self, operation)
                continue
            if operation.name in self.rules or operation.spec.elementwise:
                found = self.transfer(operation, self._infos(operation.operands))
                self.known.update(dict.fromkeys(operation.results, found))
                continue
            if operation.spec.forwards:
                self.known.update(
                    zip(operation.results, self._infos(operation.forwarded), strict=True)
                )
                continue
            for result in operation.results:
                self.known[result] = unknown(result.type)
            for inner in operation.regions:
                for argument in inner.arguments:
                    self.known[argument] = unknown(argument.type)
                self.region(inner)

    def _infos(self, values: Sequence[Value]) -> list[AxisInfo]:
        return [self.known[value] for value in values]

    def _merge_into(self, values: Sequence[Value], found: Sequence[AxisInfo]) -> bool:
        """Weaken the attributes of ``values`` by ``found``; return whether anything changed."""
        changed = False
        for value, info in zip(values, found, strict=True):
            joined = join(self.known[value], info, unit_of(value.type))
            if joined != self.known[value]:
                self.known[value] = joined
                changed = True
        return changed

    def if_(self, operation: If) -> None:
        for region in operation.regions:
            self.region(region)
        then, otherwise = (self._infos(_last(region).operands) for region in operation.regions)
        for result, a, b in zip(operation.results, then, otherwise, strict=True):
            self.known[result] = join(a, b, unit_of(result.type))

    def for_(self, operation: For) -> None:
        lower, step = self.known[operation.lower], self.known[operation.step]
        inits, body = self._infos(operation.inits), operation.body
        divisibility = (min(lower.divisibility[0], step.divisibility[0]),)
        self.known[body.arguments[0]] = AxisInfo((1,), divisibility, (1,), None, lower.nonnegative)
        carried = body.arguments[1:]
        self.known.update(zip(carried, inits, strict=True))
        while True:
            self.region(body)
            if not self._merge_into(carried, self._infos(_last(body).operands)):
                break
        self.known.update(zip(operation.results, self._infos(carried), strict=True))

    def while_(self, operation: While) -> None:
        before, after = operation.before, operation.after
        condition = _last(before)
        assert isinstance(condition, Condition)
        self.known.update(zip(before.arguments, self._infos(operation.inits), strict=True))
        while True:
            self.region(before)
            forwarded = self._infos(condition.values)
            self.known.update(zip(after.arguments, forwarded, strict=True))
            self.region(after)
            if not self._merge_into(before.arguments, self._infos(_last(after).operands)):
                break
        self.known.update(zip(operation.results, forwarded, strict=True))


def _last(region: Region) -> Operation:
    assert region.last is not None
    return region.last


_STRUCTURED: dict[str, Callable[[_Analysis, Any], None]] = {
    "if": _Analysis.if_,
    "for": _Analysis.for_,
    "while": _Analysis.while_,
}

__all__ = ["AxisInfo", "axis_info"]
