"""From an assigned function to LLVM IR for one thread: operations are dispatched to the modules of :mod:`tilewright.simt.lowering`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.errors import LoweringError, TilewrightError
from tilewright.ir.core import Function, Operation, Region
from tilewright.llvm.registers import register_type
from tilewright.llvm.writer import ModuleWriter
from tilewright.passes.axis import axis_info
from tilewright.simt.assignment import Assignment
from tilewright.simt.context import SimtContext
from tilewright.simt.target import SimtTarget

#: Writes one operation.
Lowering = Callable[[SimtContext, Operation], None]


@functools.cache
def lowerings() -> Mapping[str, Lowering]:
    """The lowering of each operation that is not elementwise, by name."""
    from tilewright.simt.lowering import TABLES

    return {name: lowering for table in TABLES for name, lowering in table.items()}


def lower_function(function: Function, target: SimtTarget, assignment: Assignment, options: Mapping[str, Any]) -> str:
    """LLVM IR of a kernel whose tiles have layouts and whose shared memory is allocated."""
    from tilewright.simt.needs import needed_registers
    from tilewright.simt.notes import note_slow_paths

    module = ModuleWriter("nounwind")
    types = [register_type(argument.type) for argument in function.arguments]
    target.prepare(function, assignment)
    writer = target.begin(module, function.name, [(type_, f"a{i}") for i, type_ in enumerate(types)], assignment.num_warps, options)
    axes = axis_info(function)
    note_slow_paths(function, target, assignment, axes, options)
    context = SimtContext(writer, target, assignment, axes, options, needed_registers(function, target, assignment, axes))
    body = writer.place(writer.new_block("body"))
    for i, argument in enumerate(function.arguments):
        context.registers[argument] = [f"%a{i}"]
    lower_region(context, function.body)
    writer.ret()
    writer.entry.terminator = f"  br label %{body.label}"
    return module.text()


def lower_region(context: SimtContext, region: Region) -> Operation:
    """Write the operations of a region but its terminator, which is returned."""
    from tilewright.simt.lowering.elementwise import lower_elementwise

    table = lowerings()
    for operation in region:
        if operation.spec.terminator:
            return operation
        context.operation = operation
        try:
            lowering = table.get(operation.name)
            if lowering is not None:
                lowering(context, operation)
            else:
                lower_elementwise(context, operation)
        except TilewrightError:
            raise
        except Exception as error:
            raise LoweringError(
                f"could not lower {operation.name} at {operation.location} for {context.target.name}: {type(error).__name__}: {error}"
            ) from error
    raise AssertionError("a region without a terminator")
