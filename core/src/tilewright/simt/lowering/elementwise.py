"""Lowering of elementwise operations.

The emitters of :mod:`tilewright.llvm.emission.elementwise` run on each register.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation, Value
from tilewright.ir.types import I1, IntType, TileType, element_type
from tilewright.llvm.emission.elementwise import emit_operation
from tilewright.passes.analysis.axis_info import power_of_two_in
from tilewright.passes.fold import fold
from tilewright.simt.layouts.linear_layout import axis_shifts
from tilewright.simt.lowering.emission.context import UNWRITTEN, SimtContext

_LITERAL: Final = re.compile(r"-?[0-9]+")


def lower_elementwise(context: SimtContext, operation: Operation) -> None:
    if not operation.spec.elementwise:
        raise LoweringError(
            f"operation {operation.name} at {operation.location} has no lowering for "
            f"{context.target.name}"
        )
    (result,) = operation.results
    operands = [context.registers[operand] for operand in operation.operands]
    names: dict[int, str] = {}
    found = []
    for register, group in enumerate(_equal_registers(context, result)):
        if not context.is_needed(result, register):
            found.append(UNWRITTEN)
            continue
        if group not in names:
            of_register = [own[register if len(own) > 1 else 0] for own in operands]
            names[group] = _folded(operation, of_register) or emit_operation(
                context, operation, of_register, 0
            )
        found.append(names[group])
    context.bind(result, found)


def _folded(operation: Operation, operands: Sequence[str]) -> str | None:
    """Fold an integer operation on literals to a literal, or return None.

    Elements of index tiles that are the same in every thread are literals.
    """
    types = [element_type(value.type) for value in (*operation.operands, *operation.results)]
    if not all(isinstance(type_, IntType) and type_ is not I1 for type_ in types) or not all(
        _LITERAL.fullmatch(operand) for operand in operands
    ):
        return None
    found = fold(operation, [int(operand) for operand in operands])
    return None if found is None else str(int(found))


def _equal_registers(context: SimtContext, result: Value) -> Sequence[int]:
    """Number the registers of a result so that registers known to be equal share a number.

    They are equal in every thread, such as the masks of vectors. Registers differ from a thread's
    first element by what they add to its coordinates, without carries: two that differ only within
    an aligned run of equal elements are equal.
    """
    if not isinstance(result.type, TileType):
        return (0,)
    layout, info = context.layout(result), context.axes.get(result)
    elements = layout.register_elements()
    if info is None or all(run == 1 for run in info.constancy):
        return range(len(elements))
    kept = 0
    for shift, extent, run in zip(
        axis_shifts(layout.shape), layout.shape, info.constancy, strict=True
    ):
        kept |= (extent - 1 & -power_of_two_in(run)) << shift
    return [element & kept for element in elements]
