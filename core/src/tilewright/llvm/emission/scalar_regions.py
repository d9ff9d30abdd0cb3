"""Scalar regions (combine, map) on LLVM scalars, or lane by lane on vectors."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Function, Region, Value
from tilewright.ir.ops.arithmetic import Constant
from tilewright.ir.types import element_type
from tilewright.llvm.emission.element_context import ElementContext
from tilewright.llvm.emission.registers import constant


def is_straight_line(region: Region) -> bool:
    """Return whether a region has only elementwise operations and constants, and reads scalars.

    Its terminator does not count.
    """
    for operation in region:
        if operation.spec.terminator:
            continue
        if not (operation.spec.elementwise or isinstance(operation, Constant)):
            return False
    return True


def evaluate_vectors(
    context: ElementContext, region: Region, arguments: Sequence[str], width: int
) -> list[str]:
    """Evaluate a straight-line region on vectors of ``width`` lanes (scalars for width 0)."""
    names: dict[Value, str] = dict(zip(region.arguments, arguments, strict=True))

    def operand(value: Value) -> str:
        name = names.get(value)
        if name is None:
            # a scalar from outside the region
            name = context.scalar(value)
            if width:
                name = context.writer.splat(context.llvm_type(value.type), name, width)
            names[value] = name
        return name

    for operation in region:
        if operation.spec.terminator:
            return [operand(value) for value in operation.operands]
        if isinstance(operation, Constant):
            names[operation.results[0]] = constant(
                element_type(operation.results[0].type), operation.attribute("value"), width
            )
        else:
            names[operation.results[0]] = context.emit_elementwise(
                operation, [operand(value) for value in operation.operands], width
            )
    raise AssertionError("a region has no terminator")


def run_function(context: ElementContext, function: object, operands: list[str], width: int) -> str:
    """Inline a pure scalar function of one result lane by lane.

    Its own roundings count: nothing is contracted.
    """
    assert isinstance(function, Function)
    saved, context.contract = context.contract, ""
    try:
        (result,) = evaluate_vectors(context, function.body, operands, width)
    finally:
        context.contract = saved
    return result
