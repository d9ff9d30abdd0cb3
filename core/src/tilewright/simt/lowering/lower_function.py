"""Lowering of a function with layouts to LLVM IR for one thread.

Operations are dispatched to the modules of :mod:`tilewright.simt.lowering`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.core import Function, Operation
from tilewright.ir.types import DescriptorType
from tilewright.llvm.emission.debug_locations import LineTable
from tilewright.llvm.emission.registers import register_type
from tilewright.llvm.emission.writer import ModuleWriter
from tilewright.passes.analysis.axis import axis_info
from tilewright.simt.dialect.attributes import WARPS
from tilewright.simt.dialect.registry import interface_of
from tilewright.simt.lowering.async_copy import copies_of
from tilewright.simt.lowering.elementwise import lower_elementwise
from tilewright.simt.lowering.emission.address_steps import AddressSteps
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.live_registers import needed_registers
from tilewright.simt.target.simt_target import SimtTarget, required


def lower_function(function: Function, target: SimtTarget, options: Mapping[str, Any]) -> str:
    """Return LLVM IR of a kernel whose tiles have layouts and whose shared memory is allocated."""
    return write_function(function, target, options).text()


def lower_operation(context: SimtContext, operation: Operation) -> None:
    """Emit an operation through its interface, or as an elementwise operation if it has none."""
    interface = interface_of(context.target, operation.name)
    lower = lower_elementwise if interface is None else interface.lower
    lower(context, operation)


def write_function(
    function: Function, target: SimtTarget, options: Mapping[str, Any]
) -> ModuleWriter:
    """Emit the module of :func:`lower_function`, with the target's state for the kernel."""
    axes = axis_info(function)
    module = ModuleWriter("nounwind")
    types = [
        "ptr" if isinstance(argument.type, DescriptorType) else register_type(argument.type)
        for argument in function.arguments
    ]
    module.state = target.prepare(function)
    writer = target.begin(
        module,
        function.name,
        [(type_, f"a{i}") for i, type_ in enumerate(types)],
        function.attributes[WARPS],
        options,
    )
    steps = AddressSteps(function, target)
    needs = needed_registers(function, target, axes, steps)
    context = SimtContext(
        writer,
        target,
        function,
        axes,
        options,
        needs,
        steps,
        lower_operation,
        copies_of,
    )
    if options.get("line_info") and function.location is not None:
        context.lines = LineTable(writer, function.location)
    body = writer.place(writer.new_block("body"))
    for i, argument in enumerate(function.arguments):
        context.registers[argument] = [f"%a{i}"]
    context.lower_region(function.body)
    if context.cluster > 1:
        # other CTAs may still write to this CTA's shared memory, and arrive at its mbarriers
        required(target.clusters, target, "clusters").barrier(context)
    writer.ret()
    writer.entry.terminator = f"  br label %{body.label}"
    return module
