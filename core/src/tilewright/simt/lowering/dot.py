"""Lowering of matmuls by the plans of :class:`~tilewright.simt.target.matmul_plan.MatmulPlan`.

Operands are in registers, or in shared memory, from where they are loaded when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import LoweringError
from tilewright.ir.core import Operation, Value
from tilewright.ir.types import Type
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.op_interface import Interface, Reader, SharedEffects
from tilewright.simt.dialect.ops.dot import DotFragment, DotStart, DotStep, PlannedDot, TileMatmul
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.dialect.types import MATMULS, SlotType, slot_type
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shared_access import places, plan_accesses, read, read_tile
from tilewright.simt.lowering.fma_matmul import emit_fma_block
from tilewright.simt.lowering.shared_memory import slot_address
from tilewright.simt.target.fma_plan import FMA_IN_SEQUENCE, fma_block
from tilewright.simt.target.fragments import k_axis, step_registers
from tilewright.simt.target.matmul_plan import (
    REGISTERS,
    MatmulPlan,
    OperandSource,
    SharedOperand,
    matmul_of,
)
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


def lower_dot(context: SimtContext, operation: PlannedDot) -> None:
    """Emit a matmul; if its plan is asynchronous, wait for it at once."""
    names = _multiply(context, operation)
    if plan_of(operation, context.target).asynchronous:
        (names,) = context.target.async_copy.wait(context, MATMULS.queue, 0, [names])
    context.bind(operation.results[0], names)


def lower_dot_start(context: SimtContext, operation: DotStart) -> None:
    result, token = operation.results
    context.bind(result, _multiply(context, operation))
    context.bind(token, ["0"])


def _multiply(context: SimtContext, operation: TileMatmul) -> list[str]:
    plan = plan_of(operation, context.target)
    if plan.accumulator is not None:
        raise LoweringError(
            f"{operation.name} at {operation.location} is to be written out first: its accumulator "
            "is not in registers (stage accumulators)"
        )
    c = context.registers[operation.c]
    step = plan.k_step if plan.reads == (REGISTERS, REGISTERS) else 0
    fetch = [
        _fetch(context, plan, position, operand, step)
        for position, operand in enumerate((operation.a, operation.b))
    ]
    if plan.emit is None:
        return emit_fma_block(
            context,
            fma_block(plan.c, matmul_of(operation)),
            fetch[0](0),
            fetch[1](0),
            c,
            in_sequence=plan.name == FMA_IN_SEQUENCE,
        )
    for first in range(0, plan.a.shape[-1], step or plan.a.shape[-1]):
        c = plan.emit(context, fetch[0](first), fetch[1](first), c)
    return c


def _fetch(
    context: SimtContext, plan: MatmulPlan, position: int, value: Value, step: int
) -> Callable[[int], OperandSource]:
    """Return a function from a step's first coordinate along K to the emitter's operand.

    Without steps the operand is the whole one.
    """
    if plan.reads[position] != REGISTERS:
        type_ = slot_type(value)
        operand = SharedOperand(slot_address(context, value), type_.layout, type_.element)
        return lambda first: operand
    layout, axis = plan.operand(position), k_axis(plan, position)
    if not isinstance(value.type, SlotType):
        names = context.registers[value]
        return lambda first: [
            names[register] for register in step_registers(layout, axis, first, step)
        ]
    return _reader(
        context,
        slot_address(context, value),
        value.type.layout,
        value.type.element,
        layout,
        axis,
        step,
        plan.load(position),
    )


def _reader(
    context: SimtContext,
    address: str,
    shared: SharedLayout,
    element: Type,
    layout: LinearLayout,
    axis: int,
    k_step: int,
    load: Callable[..., list[str] | None] | None,
) -> Callable[[int], list[str]]:
    """Return a function that loads a step's registers of an operand from shared memory."""
    if load is not None:

        def fast(first: int) -> list[str]:
            found = (
                load(context, address, shared, first) if k_step else load(context, address, shared)
            )
            return found if found is not None else slow(first)

    if not k_step:

        def slow(first: int) -> list[str]:
            return read_tile(context, address, layout, shared, element)

    else:
        known: dict[int, str] = {}

        def slow(first: int) -> list[str]:
            wanted = step_registers(layout, axis, first, k_step)
            missing = {register for register in wanted if register not in known}
            plan = plan_accesses(context, layout, shared, element)
            if missing:
                for place in places(context, address, plan, element):
                    if missing.intersection(place.registers):
                        known.update(
                            zip(place.registers, read(context, place, element), strict=True)
                        )
            return [known[register] for register in wanted]

    return fast if load is not None else slow


def lower_fragment(context: SimtContext, operation: DotFragment) -> None:
    plan, slot, position = plan_of(operation, context.target), operation.slot, operation.operand_
    type_ = slot_type(slot)
    layout, axis = plan.operand(position), k_axis(plan, position)
    fetch = _reader(
        context,
        slot_address(context, slot),
        type_.layout,
        type_.element,
        layout,
        axis,
        plan.k_step,
        plan.load(position),
    )
    context.bind(
        operation.results[0],
        context.target.matrix.pack(context.writer, fetch(operation.first), type_.element),
    )


def lower_dot_step(context: SimtContext, operation: DotStep) -> None:
    plan, target, w = plan_of(operation, context.target), context.target, context.writer
    a, b, c = (
        context.registers[operand] for operand in (operation.a_in, operation.b_in, operation.c_in)
    )
    a, b = target.matrix.unpack(w, a, operation.a), target.matrix.unpack(w, b, operation.b)
    assert plan.emit is not None, "matmuls without matrix instructions have no steps"
    context.bind(operation.results[0], plan.emit(context, a, b, c))


# ---- the interface to passes


def _check(operation: TileMatmul, target: SimtTarget) -> str:
    plan = plan_of(operation, target)
    if any(layout_of(value) != plan.c for value in (operation.c, operation.results[0])):
        return "the accumulator's layout must be the plan's"
    for position, operand in enumerate((operation.a, operation.b)):
        if isinstance(operand.type, SlotType):
            if not plan.can_read(position, operand.type.layout):
                return f"{plan.name} cannot read {'ab'[position]} from shared memory in this layout"
        elif plan.reads[position] == REGISTERS and layout_of(operand) != plan.operand(position):
            return "layouts must be the plan's"
    return ""


def _slots(operation: Operation) -> tuple[Value, ...]:
    return tuple(operand for operand in operation.operands if isinstance(operand.type, SlotType))


def _reads(operation: Operation) -> SharedEffects:
    return SharedEffects(reads=_slots(operation), engines=_slots(operation))


def _loads(operation: Operation) -> SharedEffects:
    return SharedEffects(reads=_slots(operation))


def _starts(operation: Operation) -> SharedEffects:
    return SharedEffects(matmuls=_slots(operation))


def _describe(report: Reader, operation: TileMatmul | DotStep) -> list[str]:
    return [f"by {operation.plan}"]


INTERFACES = register_interfaces(
    {
        # the layouts of a matmul are known once its plan is chosen; it then becomes a simt.dot
        "dot": Interface(lower_dot, shape_rules.matmul),
        "simt.dot": Interface(lower_dot, check=_check, effects=_reads, describe=_describe),
        "simt.dot_start": Interface(
            lower_dot_start, check=_check, effects=_starts, describe=_describe
        ),
        "simt.fragment": Interface(lower_fragment, effects=_loads),
        "simt.dot_step": Interface(lower_dot_step, describe=_describe),
    }
)
