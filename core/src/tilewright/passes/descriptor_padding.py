"""Descriptors of different padding that meet in one value, through control flow and selects."""

from __future__ import annotations

from collections import defaultdict

from tilewright.ir.core import Function, Value
from tilewright.ir.ops.arithmetic import Select
from tilewright.ir.ops.control import Condition, For, If, While
from tilewright.ir.ops.memory import MakeDescriptor
from tilewright.ir.types import DescriptorType, FloatType


def mixed_paddings(function: Function) -> set[Value]:
    """The descriptors of floats that may pad with zero, or with NaN: which, is known only when the
    kernel runs."""
    successors = _successors(function)
    if not successors:
        return set()
    reached = [_spread(sources, successors) for sources in _sources(function)]
    return reached[0] & reached[1]


def _sources(function: Function) -> tuple[list[Value], list[Value]]:
    """The descriptors that come into being with padding zero, and those with padding NaN."""
    zero: list[Value] = []
    nan: list[Value] = []
    for argument, known in zip(function.arguments, function.argument_attributes, strict=True):
        (nan if known.get("padding") == "nan" else zero).append(argument)
    for operation in function.walk():
        if isinstance(operation, MakeDescriptor):
            (nan if operation.padding == "nan" else zero).append(operation.result)
    return zero, nan


def _spread(sources: list[Value], successors: dict[Value, list[Value]]) -> set[Value]:
    """Everything that the sources may become."""
    found, waiting = set(sources), list(sources)
    while waiting:
        for target in successors.get(waiting.pop(), ()):
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found


def _successors(function: Function) -> dict[Value, list[Value]]:
    """The values that a descriptor of floats is handed on to, for each that is."""
    successors: dict[Value, list[Value]] = defaultdict(list)

    def hand_on(values: list[Value], *targets: list[Value]) -> None:
        for into in targets:
            for value, target in zip(values, into, strict=True):
                if isinstance(value.type, DescriptorType) and isinstance(
                    value.type.element, FloatType
                ):
                    successors[value].append(target)

    for operation in function.walk():
        results = list(operation.results)
        yields = [
            list(region.terminator.operands) if region.terminator is not None else []
            for region in operation.regions
        ]
        if isinstance(operation, If):
            for values in yields:
                hand_on(values, results)
        elif isinstance(operation, For):
            for values in (list(operation.inits), yields[0]):
                hand_on(values, operation.body.arguments[1:], results)
        elif isinstance(operation, While):
            condition = operation.before.terminator
            assert isinstance(condition, Condition)
            for values in (list(operation.inits), yields[1]):
                hand_on(values, operation.before.arguments)
            hand_on(list(condition.values), operation.after.arguments, results)
        elif isinstance(operation, Select):
            for value in (operation.a, operation.b):
                hand_on([value], results)
    return successors
