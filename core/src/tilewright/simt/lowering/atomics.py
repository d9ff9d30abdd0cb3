"""Lowering of atomic accesses of global memory.

One thread updates each element; if several threads hold the element, its old value is broadcast
through shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.memory import AtomicCas, AtomicLoad, AtomicRmw, AtomicStore, Clock
from tilewright.ir.types import TileType, Type, element_type, shape_of
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.layout_rules import one_layout
from tilewright.simt.dialect.op_interface import Interface, Reader
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.lowering.emission.broadcast import both, give_to_all
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.global_memory import groups
from tilewright.simt.target.capabilities.global_memory import Update
from tilewright.simt.target.cost_model import element_size
from tilewright.simt.target.simt_target import SimtTarget

Atomic = AtomicRmw | AtomicCas | AtomicLoad | AtomicStore
#: Emits one access: (pointer, for each operand its elements, predicate, order, whether the old
#: values are used) -> the old values.
Emit = Callable[[str, Sequence[Sequence[str]], str | None, str, bool], Sequence[str]]

_RELEASES: Final = frozenset({"release", "acq_rel"})
_ACQUIRES: Final = frozenset({"acquire", "acq_rel"})


def lower_atomic_rmw(context: SimtContext, operation: AtomicRmw) -> None:
    kind, scope, element = operation.kind, operation.scope, element_type(operation.value.type)
    width = context.target.memory.atomic_width(kind, element, scope)

    def update(
        pointer: str,
        operands: Sequence[Sequence[str]],
        predicate: str | None,
        order: str,
        used: bool,
    ) -> Sequence[str]:
        return context.target.memory.atomic_rmw(
            context, Update(kind, element, order, scope, used), pointer, operands[0], predicate
        )

    _access(context, operation, [operation.value], width, update)


def lower_atomic_cas(context: SimtContext, operation: AtomicCas) -> None:
    scope, element = operation.scope, element_type(operation.value.type)

    def update(
        pointer: str,
        operands: Sequence[Sequence[str]],
        predicate: str | None,
        order: str,
        used: bool,
    ) -> Sequence[str]:
        compare, value = (names[0] for names in operands)
        return [
            context.target.memory.atomic_cas(
                context, pointer, element, compare, value, predicate, order, scope
            )
        ]

    _access(context, operation, [operation.compare, operation.value], 1, update)


def lower_atomic_load(context: SimtContext, operation: AtomicLoad) -> None:
    scope, element = operation.scope, element_type(operation.results[0].type)

    def read(
        pointer: str,
        operands: Sequence[Sequence[str]],
        predicate: str | None,
        order: str,
        used: bool,
    ) -> Sequence[str]:
        return [
            context.target.memory.atomic_load(context, pointer, element, predicate, order, scope)
        ]

    _access(context, operation, [], 1, read)


def lower_atomic_store(context: SimtContext, operation: AtomicStore) -> None:
    scope, element = operation.scope, element_type(operation.value.type)

    def write(
        pointer: str,
        operands: Sequence[Sequence[str]],
        predicate: str | None,
        order: str,
        used: bool,
    ) -> Sequence[str]:
        context.target.memory.atomic_store(
            context, pointer, element, operands[0][0], predicate, order, scope
        )
        return ()

    _access(context, operation, [operation.value], 1, write)


def lower_clock(context: SimtContext, operation: Clock) -> None:
    """Broadcast one thread's time to all, so that values computed from it are uniform."""
    (result,) = operation.results
    now = context.target.debugging.clock(context.writer)
    context.bind(
        result,
        give_to_all(context, operation, result, [now], context.is_first_thread())
        if result.uses
        else [now],
    )


def _access(
    context: SimtContext, operation: Atomic, operands: Sequence[Value], width: int, emit: Emit
) -> None:
    """Emit an operation's accesses, each of at most ``width`` elements, and bind the old values.

    One thread accesses each element. If a thread has several accesses, they are relaxed: one fence
    before all of them releases, and one after them acquires.
    """
    w, pointer, order = context.writer, operation.pointer, operation.order
    mask = None if isinstance(operation, AtomicCas) else operation.mask
    if isinstance(pointer.type, TileType):
        limit = width * element_size(pointer)
        ranges, owner = (
            groups(context, pointer, mask, limit),
            context.is_owner(context.layout(pointer)),
        )
    else:
        ranges, owner = [range(1)], context.is_first_thread()
    if owner == "true":
        owner = None
    used = any(result.uses for result in operation.results)
    registers = [context.registers[operand] for operand in operands]
    pointers, masks = (
        context.registers[pointer],
        context.registers[mask] if mask is not None else None,
    )
    fenced = len(ranges) > 1
    if fenced and order in _RELEASES:
        with w.when(owner or "true"):
            context.target.memory.fence(w, "release", operation.scope)
    old: list[str] = []
    for part in ranges:
        predicate = both(context, owner, masks[part.start] if masks is not None else None)
        names = [values[part.start : part.stop] for values in registers]
        # only an update that reads can acquire, even if its old value is unused
        old += emit(
            pointers[part.start],
            names,
            predicate,
            "relaxed" if fenced else order,
            used or order in _ACQUIRES,
        )
    if fenced and order in _ACQUIRES:
        with w.when(owner or "true"):
            context.target.memory.fence(w, "acquire", operation.scope)
    if used:
        (result,) = operation.results
        context.bind(
            result,
            list(old) if owner is None else give_to_all(context, operation, result, old, owner),
        )


def _scratch(operation: Operation, target: SimtTarget) -> int:
    """Return the bytes of scratch space that broadcast old values.

    It is 0 if every element has one thread, or if the old values are unused.
    """
    (result,) = operation.results
    if not result.uses:
        return 0
    if isinstance(result.type, TileType) and layout_of(result).redundant_threads() == (0, 0):
        return 0
    type_: Type = element_type(result.type)
    return math.prod(shape_of(result.type)) * storage_size(type_)


def _describe(report: Reader, operation: Atomic) -> list[str]:
    pointer = operation.pointer
    if not isinstance(pointer.type, TileType):
        return []
    width = 1
    if isinstance(operation, AtomicRmw):
        width = report.target.memory.atomic_width(
            operation.kind, element_type(operation.value.type), operation.scope
        )
    mask = None if isinstance(operation, AtomicCas) else operation.mask
    return [report.accesses(pointer, mask, width * element_size(pointer), "atomic accesses")]


INTERFACES = register_interfaces(
    {
        "atomic_rmw": Interface(
            lower_atomic_rmw, shape_rules.updated, one_layout, _scratch, describe=_describe
        ),
        "atomic_cas": Interface(
            lower_atomic_cas, shape_rules.updated, one_layout, _scratch, describe=_describe
        ),
        "atomic_load": Interface(
            lower_atomic_load, shape_rules.updated, one_layout, _scratch, describe=_describe
        ),
        "atomic_store": Interface(
            lower_atomic_store, shape_rules.updated, one_layout, describe=_describe
        ),
        "clock": Interface(lower_clock, scratch=_scratch),
    }
)
