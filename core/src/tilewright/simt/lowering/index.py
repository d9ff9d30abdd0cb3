"""Lowering of constants, index tiles and program coordinates, and of scalar-to-tile moves."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Operation
from tilewright.ir.ops.arithmetic import Arange, Constant, NumPrograms, ProgramId
from tilewright.ir.ops.debug import Assume
from tilewright.ir.ops.shape import Splat, Unsplat
from tilewright.ir.types import TileType, element_type
from tilewright.llvm.emission.registers import constant
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.lowering.emission.context import UNWRITTEN, SimtContext
from tilewright.simt.lowering.mbarrier import clusters_of


def lower_constant(context: SimtContext, operation: Constant) -> None:
    result = operation.results[0]
    context.bind(result, [constant(element_type(result.type), operation.value)])


def lower_arange(context: SimtContext, operation: Arange) -> None:
    result, start = operation.results[0], operation.start
    context.bind(
        result,
        element_numbers(
            context,
            context.layout(result),
            start,
            needed=lambda register: context.is_needed(result, register),
        ),
    )


def element_numbers(
    context: SimtContext,
    layout: LinearLayout,
    start: int = 0,
    needed: Callable[[int], bool] = lambda register: True,
) -> list[str]:
    """Emit the row-major number of each register's element plus ``start``, as i32.

    Only for registers that are ``needed``. The thread's part and the register's part seldom share
    bits:
    adding a constant to the thread's part is then the form that address arithmetic folds best.
    """
    w = context.writer
    thread = context.thread_part(layout.lanes, layout.warps)
    occupied = 0
    for image in (*layout.lanes, *layout.warps):
        occupied |= image
    names = []
    for register, number in enumerate(layout.register_elements()):
        if not needed(register):
            names.append(UNWRITTEN)
        elif thread == "0":
            names.append(str(number + start))
        elif number & occupied:
            mixed = w.emit(f"xor i32 {thread}, {number}")
            names.append(w.emit(f"add nsw i32 {mixed}, {start}") if start else mixed)
        else:
            names.append(
                w.emit(f"add nsw i32 {thread}, {number + start}") if number + start else thread
            )
    return names


def lower_rank(context: SimtContext, operation: Operation) -> None:
    with context.at_entry() as w:
        context.bind(
            operation.results[0], [clusters_of(context).rank(w) if context.cluster > 1 else "0"]
        )


def lower_program_id(context: SimtContext, operation: ProgramId) -> None:
    with context.at_entry() as w:
        context.bind(operation.results[0], [context.target.threads.program_id(w, operation.axis)])


def lower_num_programs(context: SimtContext, operation: NumPrograms) -> None:
    with context.at_entry() as w:
        context.bind(operation.results[0], [context.target.threads.num_programs(w, operation.axis)])


def lower_splat(context: SimtContext, operation: Splat) -> None:
    result = operation.results[0]
    assert isinstance(result.type, TileType)
    context.bind(result, [context.scalar(operation.x)] * context.layout(result).register_count)


def lower_unsplat(context: SimtContext, operation: Unsplat) -> None:
    """Bind the scalar to a tile's only element, which every thread holds."""
    context.bind(operation.results[0], context.registers[operation.x])


def lower_assume(context: SimtContext, operation: Assume) -> None:
    condition = context.scalar(operation.condition)
    if condition.startswith("%"):
        context.writer.call("llvm.assume", "void", [("i1", condition)])


INTERFACES = register_interfaces(
    {
        "constant": Interface(lower_constant),
        "arange": Interface(lower_arange),
        "simt.rank": Interface(lower_rank),
        "program_id": Interface(lower_program_id),
        "num_programs": Interface(lower_num_programs),
        "splat": Interface(lower_splat),
        "unsplat": Interface(lower_unsplat, shape_rules.indifferent),
        "assume": Interface(lower_assume),
    }
)
