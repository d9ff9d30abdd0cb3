"""Lowering of accumulators in tensor memory.

The program allocates it, its threads write and read it, and matmuls that one thread starts add to
it.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir.types import TileType
from tilewright.llvm.emission.registers import constant
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.op_interface import Interface, Reader, SharedEffects
from tilewright.simt.dialect.ops import tensor_memory as ops
from tilewright.simt.dialect.ops.mbarrier import ArriveAfter
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.dialect.types import slot_type
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.mbarrier import barrier_address, in_one_thread
from tilewright.simt.lowering.shared_memory import slot_address
from tilewright.simt.target.capabilities.tensor_memory import TensorMemory
from tilewright.simt.target.matmul_plan import SharedOperand, TensorMemoryAccumulator
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget, required

#: Bytes of shared memory for the address of the allocated tensor memory.
_SCRATCH: Final = 16


def _tensor_memory(context: SimtContext) -> TensorMemory:
    return required(context.target.tensor_memory, context.target, "tensor memory")


def lower_take(context: SimtContext, operation: ops.Accumulators) -> None:
    """Allocate tensor memory.

    One warp writes the scratch space, and all threads read it after a barrier.
    """
    context.bind(
        operation.result,
        [_tensor_memory(context).allocate(context, operation.units, context.scratch(operation))],
    )


def lower_place(context: SimtContext, operation: ops.Accumulator) -> None:
    memory, first = context.scalar(operation.memory), operation.first
    context.bind(
        operation.result, [context.writer.emit(f"add i32 {memory}, {first}") if first else memory]
    )


def lower_load(context: SimtContext, operation: ops.AccumulatorLoad) -> None:
    """Load an accumulator from tensor memory, or select zeros if nothing was written yet.

    A branch would need registers for both values.
    """
    w, there, type_ = context.writer, operation.there, operation.result.type
    names = _accumulator(context, operation).load(context, context.scalar(operation.accumulator))
    if there is not None:
        assert isinstance(type_, TileType)
        kind, zero, known = (
            context.llvm_type(type_),
            constant(type_.element, 0),
            context.scalar(there),
        )
        names = [w.emit(f"select i1 {known}, {kind} {name}, {kind} {zero}") for name in names]
    context.bind(operation.result, names)


def lower_store(context: SimtContext, operation: ops.AccumulatorStore) -> None:
    _accumulator(context, operation).store(
        context, context.scalar(operation.accumulator), context.registers[operation.x]
    )


def lower_into(context: SimtContext, operation: ops.DotInto) -> None:
    sources = [
        SharedOperand(
            slot_address(context, operand), slot_type(operand).layout, slot_type(operand).element
        )
        for operand in (operation.a, operation.b)
    ]
    plan, accumulator = (
        plan_of(operation, context.target),
        [context.scalar(operation.accumulator), context.scalar(operation.adds)],
    )

    def start() -> None:
        assert plan.emit is not None
        plan.emit(context, sources[0], sources[1], accumulator)

    in_one_thread(context, start)


def lower_arrive(context: SimtContext, operation: ArriveAfter) -> None:
    address = barrier_address(context, operation)
    in_one_thread(
        context, lambda: _tensor_memory(context).arrive_after(context, address), operation.condition
    )


def lower_free(context: SimtContext, operation: ops.FreeAccumulators) -> None:
    taken = operation.memory.definition
    assert isinstance(taken, ops.Accumulators)
    _tensor_memory(context).free(context, taken.units, context.scalar(operation.memory))


def _accumulator(
    context: SimtContext, operation: ops.AccumulatorLoad | ops.AccumulatorStore
) -> TensorMemoryAccumulator:
    found = plan_of(operation, context.target).accumulator
    assert found is not None
    return found


# ---- the interface to passes


def _check_tile(operation: ops.AccumulatorLoad | ops.AccumulatorStore, target: SimtTarget) -> str:
    tile = operation.x if isinstance(operation, ops.AccumulatorStore) else operation.result
    return (
        ""
        if layout_of(tile) == plan_of(operation, target).c
        else "the layout of the accumulator must be the plan's"
    )


def _check_into(operation: ops.DotInto, target: SimtTarget) -> str:
    plan = plan_of(operation, target)
    for position, operand in enumerate((operation.a, operation.b)):
        if not plan.can_read(position, slot_type(operand).layout):
            return f"{plan.name} cannot read {'ab'[position]} from shared memory in this layout"
    return ""


def _reads(operation: ops.DotInto) -> SharedEffects:
    slots = operation.a, operation.b
    return SharedEffects(reads=slots, engines=slots)


def _announces(operation: ArriveAfter) -> SharedEffects:
    return SharedEffects(announced=((operation.barriers, operation.index),))


def _describe(
    report: Reader, operation: ops.AccumulatorLoad | ops.AccumulatorStore | ops.DotInto
) -> list[str]:
    return [f"by {operation.plan}"]


INTERFACES = register_interfaces(
    {
        "simt.accumulators": Interface(lower_take, scratch=lambda operation, target: _SCRATCH),
        "simt.accumulator": Interface(lower_place),
        "simt.accumulator_load": Interface(lower_load, check=_check_tile, describe=_describe),
        "simt.accumulator_store": Interface(lower_store, check=_check_tile, describe=_describe),
        "simt.dot_into": Interface(
            lower_into, check=_check_into, effects=_reads, describe=_describe
        ),
        "simt.arrive_after": Interface(lower_arrive, effects=_announces),
        "simt.free_accumulators": Interface(lower_free),
    }
)
