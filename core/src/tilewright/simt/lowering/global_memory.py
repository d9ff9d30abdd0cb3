"""Lowering of loads and stores of global memory.

A thread's registers are split into the widest accesses that its pointers and masks allow.
"""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.types import TileType, element_type
from tilewright.llvm.emission.registers import constant, storage_size
from tilewright.simt.analysis.masked_off_lanes import fills_with_zeros
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.dialect.layout_rules import one_layout
from tilewright.simt.dialect.op_interface import Interface, Reader
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.lowering.emission.broadcast import both, give_to_all
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.global_memory import Access
from tilewright.simt.target.cost_model import access_width, element_size
from tilewright.simt.target.simt_target import SimtTarget


def groups(context: SimtContext, pointer: Value, mask: Value | None, limit: int) -> list[range]:
    """Return the registers of each access of a tile, of at most ``limit`` bytes."""
    layout = context.layout(pointer)
    width = access_width(
        layout,
        context.axes[pointer],
        context.axes[mask] if mask is not None else None,
        element_size(pointer),
        limit,
    )
    return [range(start, start + width) for start in range(0, layout.register_count, width)]


def _access(operation: Load | Store) -> Access:
    return Access(
        operation.cache, operation.eviction, isinstance(operation, Load) and operation.volatile
    )


def lower_load(context: SimtContext, operation: Load) -> None:
    pointer, mask, other = operation.pointer, operation.mask, operation.other
    (result,) = operation.results
    element, access = element_type(result.type), _access(operation)
    pointers = context.registers[pointer]
    masks = context.registers[mask] if mask is not None else None
    others = context.registers[other] if other is not None else None
    if fills_with_zeros(operation):
        others = [constant(element, 0)] * len(pointers)
    if is_shared_read(operation):
        first = context.is_first_thread()
        found = context.target.memory.load(
            context.writer,
            pointers[0],
            element,
            1,
            both(context, first, masks[0] if masks else None),
            others,
            access,
        )
        context.bind(result, give_to_all(context, operation, result, found, first))
        return
    ranges = (
        groups(context, pointer, mask, context.target.resources.max_access)
        if isinstance(result.type, TileType)
        else [range(1)]
    )
    names: list[str] = []
    for part in ranges:
        predicate = masks[part.start] if masks is not None else None
        fallback = [others[i] for i in part] if others is not None else None
        names += context.target.memory.load(
            context.writer, pointers[part.start], element, len(part), predicate, fallback, access
        )
    context.bind(result, names)


def lower_store(context: SimtContext, operation: Store) -> None:
    pointer, value, mask = operation.pointer, operation.value, operation.mask
    element, access = element_type(value.type), _access(operation)
    pointers, values = context.registers[pointer], context.registers[value]
    masks = context.registers[mask] if mask is not None else None
    if isinstance(value.type, TileType):
        ranges, writer = (
            groups(context, pointer, mask, context.target.resources.max_access),
            context.is_owner(context.layout(value)),
        )
    else:
        ranges, writer = [range(1)], context.is_first_thread()
    for part in ranges:
        predicate = both(context, writer, masks[part.start] if masks is not None else None)
        context.target.memory.store(
            context.writer,
            pointers[part.start],
            element,
            [values[i] for i in part],
            predicate,
            access,
        )


def is_shared_read(operation: Load) -> bool:
    """Return whether one thread reads on behalf of all, as for a volatile scalar.

    Another program may change the scalar between two threads' reads, but values computed from it
    must be uniform.
    """
    return operation.volatile and not isinstance(operation.results[0].type, TileType)


def _scratch(operation: Load, target: SimtTarget) -> int:
    return storage_size(operation.results[0].type) if is_shared_read(operation) else 0


def _describe(report: Reader, operation: Load | Store) -> list[str]:
    pointer, mask = operation.pointer, operation.mask
    if not isinstance(pointer.type, TileType):
        return []
    facts = [] if operation.results else [report.layout(pointer)]
    return [*facts, report.accesses(pointer, mask, report.target.resources.max_access)]


INTERFACES = register_interfaces(
    {
        "load": Interface(lower_load, shape_rules.access, one_layout, _scratch, describe=_describe),
        "store": Interface(lower_store, shape_rules.access, one_layout, describe=_describe),
    }
)
